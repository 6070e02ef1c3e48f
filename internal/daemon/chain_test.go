package daemon

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// callChain is the four artifacts of one call, made as a gateway would that keeps the log
// itself.
type callChain struct {
	trace                           tga.ID
	request, decision, call, effect *tga.Artifact
	answer                          []byte
}

func mintChain(t *testing.T, key string, meta tga.Meta) callChain {
	t.Helper()
	return mintChainOn(t, "remote", key, meta)
}

func mintChainOn(t *testing.T, server, key string, meta tga.Meta) callChain {
	t.Helper()
	return mintChainOf(t, server, key, meta, []byte(`{"amount":5}`))
}

func mintChainOf(t *testing.T, server, key string, meta tga.Meta, args []byte) callChain {
	t.Helper()
	c := callChain{trace: newID(), answer: []byte(`{ "paid": 5 }`)}
	plan := newID()
	seal := func(a *tga.Artifact) *tga.Artifact {
		a.ID, a.TraceID, a.PlanID, a.TS = newID(), c.trace, plan, tga.MillisOf(time.Now())
		if err := a.Seal(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	proposal := tga.Proposal{ToolServer: server, ToolName: "charge", Args: args}
	c.request = seal(&tga.Artifact{Type: tga.RequestType, Meta: meta, Request: &tga.ActionRequest{
		AgentID: newID(), RiskLevel: tga.RiskWrite, Intent: "charge a customer", IdempotencyKey: key,
		Resources: []tga.Resource{{Kind: "service", ID: server}}, Proposal: proposal,
	}})
	token, err := signer.Mint(t.Context(), runtime.Grant{
		TraceID: c.trace, PlanID: plan, Server: proposal.ToolServer, Tool: proposal.ToolName, ArgsDigest: tga.Sum(proposal.Args),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.decision = seal(&tga.Artifact{Type: tga.DecisionType, Decision: &tga.SupervisorDecision{
		RequestID: c.request.ID, RequestDigest: c.request.Digest, Decision: tga.Approve, Rationale: "it is a test of it", MintedCapability: token,
	}})
	c.call = seal(&tga.Artifact{Type: tga.CallType, Call: &tga.ToolCall{
		DecisionID: c.decision.ID, DecisionDigest: c.decision.Digest, Call: proposal,
		CapabilityDigest: tga.Sum([]byte(token)), IdempotencyKey: key, ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
	}})
	c.effect = seal(&tga.Artifact{Type: tga.EffectType, Effect: &tga.ToolEffect{
		CallID: c.call.ID, CallDigest: c.call.Digest, BatchTotalBytes: -1, ContentHashAlg: "sha256",
		Outcome:        tga.Outcome{Status: tga.StatusSuccess},
		DocumentHashes: []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: tga.Sum(c.answer), SizeBytes: int64(len(c.answer))}},
	}})
	return c
}

// decided is the chain with another decision, and the call that follows from it.
func (c callChain) decided(t *testing.T, word, token string) callChain {
	t.Helper()
	decision, call := *c.decision, *c.call
	d, k := *c.decision.Decision, *c.call.Call
	decision.Decision, call.Call = &d, &k
	d.Decision, d.MintedCapability = word, token
	if err := decision.Seal(); err != nil {
		t.Fatal(err)
	}
	k.DecisionDigest, k.CapabilityDigest = decision.Digest, tga.Digest{}
	if token != "" {
		k.CapabilityDigest = tga.Sum([]byte(token))
	}
	if err := call.Seal(); err != nil {
		t.Fatal(err)
	}
	c.decision, c.call = &decision, &call
	return c
}

// grant is what an approval of the chain's request permits.
func (c callChain) grant() runtime.Grant {
	p := c.request.Request.Proposal
	return runtime.Grant{TraceID: c.trace, PlanID: c.request.PlanID, Server: p.ToolServer, Tool: p.ToolName, ArgsDigest: tga.Sum(p.Args)}
}

func appending(lease string, artifacts ...*tga.Artifact) wire.AppendRequest {
	r := wire.AppendRequest{Lease: lease}
	for _, a := range artifacts {
		r.Artifacts = append(r.Artifacts, wire.NewArtifact{Artifact: a.Canonical})
	}
	return r
}

// begin is the append of the first three; end that of the effect with the answer. An
// effect in the batch of its own call would say that nothing was sent between them.
func (c callChain) begin(lease string) wire.AppendRequest {
	return appending(lease, c.request, c.decision, c.call)
}

func (c callChain) end(lease string) wire.AppendRequest {
	r := appending(lease, c.effect)
	r.Artifacts[0].Documents = []wire.NewDocument{{Pointer: tga.PointerResult, Data: json.RawMessage(c.answer)}}
	return r
}

// one is the append of the artifact of a type alone.
func (c callChain) one(lease string, typ tga.ArtifactType) wire.AppendRequest {
	if typ == tga.EffectType {
		return c.end(lease)
	}
	m := c.begin(lease)
	m.Artifacts = m.Artifacts[typ-1 : typ]
	return m
}
