package runtime

import (
	"bytes"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Redactor takes out of calls what must not be stored. It has no effect on the world, and any
// number of goroutines may ask it.
//
// The arguments of a call that is redacted are in memory alone, so only who brings them can have
// it sent: the process that was called, until it dies, and whoever makes the same call again.
// Recovery, an approval that comes later, a timer and a licence never send it.
type Redactor interface {
	// Args returns what is kept of the arguments of a call: a JSON object. The same arguments
	// of the same key leave the same bytes, and others leave others: that is how a repeat is
	// known. Key is the caller's, "" where it has none; there is no trace and no attempt yet.
	Args(call Call) (kept []byte, redacted bool, err error)
	// Reply returns what is kept of an answer. Args are whole where they are at hand.
	Reply(call Call, reply Reply) (kept Reply, redacted bool, err error)
}

// redactions applies a Redactor; nil keeps everything.
type redactions struct {
	by   Redactor
	mint *minter
	held *heldArgs
}

// request takes out of a request what is not stored. It is asked once, where the request enters:
// everything behind it, the digests and the rules and the identity of a call, knows what is left.
func (r redactions) request(req *Request) (err error) {
	if r.by == nil {
		return nil
	}
	whole, err := r.mint.canonicalArgs(req.Args)
	if err != nil {
		return err
	}
	kept, redacted, err := r.by.Args(Call{
		Namespace: firstOf(req.Namespace, tga.DefaultNamespace), Server: req.Server, Tool: req.Tool, Args: whole, Key: req.Key,
	})
	if err != nil || !redacted {
		return err
	}
	if req.Args, err = r.mint.canonicalArgs(kept); err != nil {
		return err
	}
	req.whole, req.own = whole, mergeMeta(req.own, tga.Meta{tga.MetaRedacted: true})
	return nil
}

// unredacted refuses a request of somebody's own making that has in it what is not to be stored.
func (r redactions) unredacted(request *tga.Artifact) error {
	if r.by == nil {
		return nil
	}
	q := request.Request
	_, redacted, err := r.by.Args(Call{
		Namespace: namespaceOf(request), Server: q.Proposal.ToolServer, Tool: q.Proposal.ToolName, Args: q.Proposal.Args, Key: q.IdempotencyKey,
	})
	if err == nil && redacted {
		err = tga.Errorf(tga.ValidationError, "arguments of %s on %s are not stored: call or begin it", q.Proposal.ToolName, q.Proposal.ToolServer).At("/proposal/args").In(request.TraceID)
	}
	return err
}

// unredactedAnswer refuses an effect of somebody's own making likewise, in its documents and words.
func (r redactions) unredactedAnswer(call *tga.Artifact, namespace string, effect chain.NewArtifact) error {
	if r.by == nil || call == nil {
		return nil
	}
	c, o := call.Call, effect.Artifact.Effect.Outcome
	of := Call{Namespace: namespace, Server: c.Call.ToolServer, Tool: c.Call.ToolName, Args: c.Call.Args, Key: c.IdempotencyKey}
	replies := []Reply{{Status: o.Status, Summary: o.Summary}}
	if o.Error != nil {
		replies[0].ErrorMessage = o.Error.Message
	}
	for _, d := range effect.Documents {
		replies = append(replies, Reply{Status: o.Status, Result: d.Data})
	}
	for _, reply := range replies {
		_, redacted, err := r.by.Reply(of, reply)
		if err == nil && redacted {
			err = tga.Errorf(tga.ValidationError, "parts of answers of %s on %s are not stored: finish or resolve it", c.Call.ToolName, c.Call.ToolServer).In(call.TraceID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// words takes out of what an executor says of its attempt what is not stored.
func (r redactions) words(call Call, words string) string {
	if r.by == nil || words == "" {
		return words
	}
	kept, _, err := r.by.Reply(call, Reply{Status: tga.StatusError, Summary: words})
	if err != nil {
		return "the words cannot be redacted"
	}
	return kept.Summary
}

// reply takes out of an answer what is not stored. The effect has happened: where that cannot be
// done, nothing of what the tool said is kept, but for its status and class.
func (r redactions) reply(call Call, reply Reply) (_ Reply, redacted bool, err error) {
	if r.by == nil {
		return reply, false, nil
	}
	kept, redacted, err := r.by.Reply(call, reply)
	if err != nil {
		return Reply{Status: reply.Status, Class: reply.Class, RetryAfter: reply.RetryAfter}, true, err
	}
	return kept, redacted, nil
}

// cause takes out of the words of an error what is not stored: they are kept as the cause of a doubt.
// What the error is stays as it is.
func (r redactions) cause(call Call, err error) error {
	if r.by == nil || err == nil {
		return err
	}
	if left := r.words(call, err.Error()); left != err.Error() {
		return redactedError{left, err}
	}
	return err
}

type redactedError struct {
	words string
	error
}

func (e redactedError) Error() string { return e.words }
func (e redactedError) Unwrap() error { return e.error }

// isRedacted says that a request or an effect lacks something that was taken out.
func isRedacted(a *tga.Artifact) bool {
	is, _ := a.Meta[tga.MetaRedacted].(bool)
	return is
}

// brings gives the loop the whole arguments that a caller has brought, where they are those of its
// call: what is left of them is the same.
func (l *loop) brings(server, tool string, kept, whole []byte) {
	p := l.request.Request.Proposal
	if whole != nil && p.ToolServer == server && p.ToolName == tool && bytes.Equal(p.Args, kept) {
		l.whole = whole
	}
}

// sendable says that the arguments of the call are at hand.
func (l *loop) sendable() bool { return l.whole != nil || !isRedacted(l.request) }

// sentCall is the call as it is sent.
func (l *loop) sentCall(attempt uint32) Call {
	c := l.dispatchCall(attempt)
	if l.whole != nil {
		c.Args = l.whole
	}
	return c
}

// errNotAtHand ends a run of a call that was not sent and whose arguments are not at hand.
func errNotAtHand(l *loop) error {
	return tga.Errorf(tga.IdempotencyKeyInFlight, "arguments of the call were redacted: it waits until the same call is made again, with its trace id").In(l.lease.TraceID)
}
