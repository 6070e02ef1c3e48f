package turn

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// redact removes from an answer what the agent may not keep (OSSA 0.2.9 §1 phase 5 rule 4),
// before the answer is stored. The digest /result covers what is stored. A keyed digest of what
// was received is stored too: whoever has the original answer and the store's key can prove that
// it was received.
func (r *Runner) redact(a *Agent, reply runtime.Reply) (runtime.Reply, error) {
	if a.Redact.Off() {
		return reply, nil
	}
	compiled, err := a.redactor()
	if err != nil {
		return reply, err
	}
	for _, text := range []*string{&reply.Summary, &reply.ErrorMessage} {
		if clean, _, err := compiled.ApplyBytes([]byte(*text)); err == nil {
			*text = string(clean)
		} else {
			*text = "" // longer than the filter permits
		}
	}
	if len(reply.Result) == 0 {
		return reply, nil
	}
	clean, findings, err := compiled.ApplyBytes(reply.Result)
	if err != nil {
		// The answer may contain what must not be stored, so only its length and keyed digest
		// are.
		clean, findings = nil, []message.Finding{{}}
	}
	if len(findings) == 0 {
		return reply, nil
	}
	reply.Received, reply.ReceivedBytes = keyedDigest(r.store.Secret(), reply.Result), int64(len(reply.Result))
	reply.Result = clean
	return reply, nil
}

// redactor is the agent's filter of answers. An answer cannot be refused, because the effect has
// happened, so all of its rules redact.
func (a *Agent) redactor() (*message.Compiled, error) {
	filter := a.Redact
	filter.Action, filter.Actions = message.Redact, nil
	return filter.Compile()
}

// probers redacts what tool servers say of the calls of agents when they are asked about them.
func (r *Runner) probers(next func(server, tool string) runtime.Prober) func(server, tool string) runtime.Prober {
	if next == nil {
		return nil
	}
	return func(server, tool string) runtime.Prober {
		if p := next(server, tool); p != nil {
			return prober{r, p}
		}
		return nil
	}
}

type prober struct {
	r    *Runner
	next runtime.Prober
}

// Probe implements [runtime.Prober].
func (p prober) Probe(ctx context.Context, call runtime.Call) (runtime.Probed, error) {
	probed, err := p.next.Probe(ctx, call)
	if err != nil {
		return probed, err
	}
	agent, _, err := p.r.callerOf(ctx, call.Key)
	if err != nil || agent == nil || agent.Redact.Off() {
		return probed, err
	}
	if probed.Reply, err = p.r.redact(agent, probed.Reply); err != nil {
		return probed, err
	}
	compiled, err := agent.redactor()
	if err != nil {
		return probed, err
	}
	if probed.Evidence.Detail, _, err = compiled.ApplyBytes(probed.Evidence.Detail); err != nil {
		probed.Evidence.Detail = nil // longer than the filter permits
	}
	return probed, nil
}

// keyedDigest returns an HMAC-SHA-256 of b. Its key is derived from the secret for this purpose
// only.
func keyedDigest(secret [32]byte, b []byte) (out tga.Digest) {
	purpose := hmac.New(sha256.New, secret[:])
	purpose.Write([]byte("tgad received v1"))
	m := hmac.New(sha256.New, purpose.Sum(nil))
	m.Write(b)
	copy(out[:], m.Sum(nil))
	return out
}
