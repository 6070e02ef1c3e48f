package runtime

import (
	"bytes"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Redactor removes from calls what must not be stored. It has no effect on the world, and any
// number of goroutines may call it.
//
// The whole arguments of a redacted call are only in memory. So the call is sent only by the
// process that was called, until it dies, or when a caller makes the same call again. Recovery, a
// later approval, a timer or a licence never sends it.
type Redactor interface {
	// Args returns what is kept of the arguments of a call: a JSON object. The same arguments
	// with the same key must give the same bytes, and other arguments other bytes: so a repeat
	// is recognized. Key is the caller's, "" if it has none; there is no trace and no attempt yet.
	Args(call Call) (kept []byte, redacted bool, err error)
	// Reply returns what is kept of an answer. Args of call are whole if they are in memory. Status
	// and ErrorCode of the answer are words of the contract and are kept whatever Reply returns.
	Reply(call Call, reply Reply) (kept Reply, redacted bool, err error)
}

// redactions applies a Redactor; without one it keeps everything.
type redactions struct {
	by   Redactor
	mint *minter
	held *heldArgs
}

// request removes from a request what is not stored. It is called once, where the request enters:
// digests, rules and the identity of a call all see the redacted arguments only.
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

// unredacted refuses a request that a peer made itself if it contains what must not be stored.
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

// unredactedAnswer refuses an effect that a peer made itself if its documents, its summary, its
// error message or the tool's words in its meta contain what must not be stored.
func (r redactions) unredactedAnswer(call *tga.Artifact, namespace string, effect chain.NewArtifact) error {
	if r.by == nil || call == nil {
		return nil
	}
	c, o := call.Call, effect.Artifact.Effect.Outcome
	of := Call{Namespace: namespace, Server: c.Call.ToolServer, Tool: c.Call.ToolName, Args: c.Call.Args, Key: c.IdempotencyKey}
	replies := []Reply{{Status: o.Status, Summary: o.Summary}}
	for _, name := range []string{tga.MetaToolStatus, tga.MetaToolErrorCode, tga.MetaOutcomeError} {
		replies = append(replies, Reply{Status: o.Status, Summary: effect.Artifact.Meta.String(name)})
	}
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

// words removes what must not be stored from an executor's text about its attempt.
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

// maxSaid is how many characters of a tool's own status or code are kept in meta.
const maxSaid = 200

// said removes what must not be stored from the tool's own status and code, and cuts them. It cuts
// last, because a redactor cannot find a secret of which a part is cut off.
func (r redactions) said(call Call, said tga.Meta) (redacted bool) {
	for _, name := range []string{tga.MetaToolStatus, tga.MetaToolErrorCode} {
		if word, ok := said[name].(string); ok {
			left := r.words(call, word)
			said[name], redacted = clip.Short(left, maxSaid), redacted || left != word
		}
	}
	return redacted
}

// reply removes from an answer what must not be stored. The effect has happened, so there must be
// a record: if the answer cannot be redacted, only its status, class, code and Retry-After are kept.
// These four are never the tool's own words, so they stay as they are, whatever the redactor
// returns: an effect with a status or a code that the contract does not have cannot be recorded.
func (r redactions) reply(call Call, reply Reply) (_ Reply, redacted bool, err error) {
	if r.by == nil {
		return reply, false, nil
	}
	kept, redacted, err := r.by.Reply(call, reply)
	if err != nil {
		kept, redacted = Reply{}, true
	}
	kept.Status, kept.Class, kept.ErrorCode, kept.RetryAfter = reply.Status, reply.Class, reply.ErrorCode, reply.RetryAfter
	return kept, redacted, err
}

// evidence removes what must not be stored from what a tool server or a verifier says about a call.
// Evidence that cannot be redacted is not kept.
func (r redactions) evidence(call Call, e Evidence) Evidence {
	if r.by == nil {
		return e
	}
	kept, _, err := r.by.Reply(call, Reply{Status: tga.StatusSuccess, Summary: e.Source, Result: e.Detail})
	if err != nil {
		return Evidence{Source: "the evidence cannot be redacted"}
	}
	return Evidence{Source: kept.Summary, Detail: kept.Result}
}

// cause removes what must not be stored from the message of an error, because the message is kept
// as the cause of a doubt. errors.Is and errors.As still see the original error.
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

// isRedacted reports whether something was removed from a request or an effect.
func isRedacted(a *tga.Artifact) bool {
	is, _ := a.Meta[tga.MetaRedacted].(bool)
	return is
}

// brings gives the loop the whole arguments of a caller if they belong to its call: tool and
// redacted arguments must be the same.
func (l *loop) brings(server, tool string, kept, whole []byte) {
	p := l.request.Request.Proposal
	if whole != nil && p.ToolServer == server && p.ToolName == tool && bytes.Equal(p.Args, kept) {
		l.whole = whole
	}
}

// sendable reports whether the whole arguments of the call are in memory.
func (l *loop) sendable() bool { return l.whole != nil || !isRedacted(l.request) }

// askedCall returns the call that the request of a run asks for. It need not be durable.
func (l *loop) askedCall() Call {
	q := l.request.Request
	return Call{
		TraceID: l.lease.TraceID, ToolCallID: l.callID, Attempt: 1, Namespace: l.namespace,
		Server: q.Proposal.ToolServer, Tool: q.Proposal.ToolName, Args: q.Proposal.Args,
		Key: firstOf(q.IdempotencyKey, l.callID.String()),
	}
}

// sentCall returns the call as it is sent, with its whole arguments if they are in memory.
func (l *loop) sentCall(attempt uint32) Call { return l.unredacted(l.dispatchCall(attempt)) }

// unredacted returns the call of this run with its whole arguments, if they are in memory.
func (l *loop) unredacted(c Call) Call {
	if l.whole != nil {
		c.Args = l.whole
	}
	return c
}

// errNotAtHand ends a run of a call that was not sent and whose whole arguments are not in memory.
func errNotAtHand(l *loop) error {
	return tga.Errorf(tga.IdempotencyKeyInFlight, "the arguments are not stored (redacted), so tgad cannot send this call: make the same call again with this trace id").In(l.lease.TraceID)
}
