package runtime

import (
	"fmt"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// answer reads a reply by the tool's rules. The effect has happened: a rule that cannot
// be applied is noted in the effect's meta and changes nothing else.
func (rt *Runtime) answer(l *loop, attempt uint32, r Reply) (answer, error) {
	var wrong error
	if rules := rt.opts.Trust.Outcome; rules != nil && l.call != nil {
		read := r
		wrong = rules(l.dispatchCall(attempt), &read)
		if r.Status == tga.StatusSuccess && read.Status == tga.StatusFailure {
			// The transport was content, the operator's rule is not.
			r.Status, r.ErrorCode, r.ErrorMessage = read.Status, read.ErrorCode, read.ErrorMessage
		}
		if read.Class == ledger.ClassNone || read.Class.Agree(r.Status) && read.Class != ledger.ClassNotSent {
			r.Class, r.Changes = read.Class, read.Changes
		} else if wrong == nil {
			wrong = tga.Errorf(tga.ValidationError, "class %v for an answer with status %s", read.Class, r.Status)
		}
	}
	if r.Class != ledger.ClassNone && !r.Class.Agree(r.Status) || r.Class == ledger.ClassNotSent {
		return answer{}, tga.Errorf(tga.ValidationError, "class %v for an answer with status %s", r.Class, r.Status)
	}
	w, err := answerOf(l.class(), r)
	if err != nil {
		return w, err
	}
	if len(r.Changes) > 0 {
		raw, err := tga.EncodeStateChanges(r.Changes)
		if err == nil {
			w.documents = append(w.documents, wal.Document{Pointer: tga.PointerStateChanges, Data: raw})
		} else if wrong == nil {
			wrong = err
		}
	}
	if wrong != nil {
		w.meta = mergeMeta(w.meta, tga.Meta{tga.MetaOutcomeError: clip(wrong.Error(), 200)})
	}
	return w, nil
}

// answerOf classifies a reply. A tool that fails for a reason no rule knows has
// failed for good: a repeat is a new call and needs a new key.
func answerOf(class string, r Reply) (answer, error) {
	w := answer{status: r.Status, class: r.Class, summary: r.Summary, errorCode: r.ErrorCode, errorText: r.ErrorMessage}
	switch r.Status {
	case tga.StatusSuccess:
		if w.class == ledger.ClassNone {
			w.class = ledger.ClassCommitted
			if class == tga.ClassRead {
				w.class = ledger.ClassSuccess
			}
		}
	case tga.StatusFailure, tga.StatusDenied, tga.StatusError:
		if w.class == ledger.ClassNone {
			w.class = ledger.ClassPermanent
		}
		if w.errorCode == "" {
			w.errorCode = string(tga.ToolError)
		}
		w.retryable = w.class == ledger.ClassRetryable
	default:
		return answer{}, tga.Errorf(tga.ToolError, "dispatcher answered with status %q", r.Status)
	}
	if r.Truncated {
		// What happened does not depend on how long its account is: a success stays one.
		w.summary = firstOf(w.summary, fmt.Sprintf("the answer of %d bytes is over the limit: its length and digest are kept", r.ResultBytes))
		w.cut = tga.DocumentHash{Pointer: tga.PointerResult, Hash: r.ResultDigest, SizeBytes: r.ResultBytes}
		w.documents = []wal.Document{{Pointer: tga.PointerResult, Erased: true}}
		return w, nil
	}
	if !r.Received.IsZero() {
		w.received = tga.DocumentHash{Pointer: tga.PointerReceived, Hash: r.Received, SizeBytes: r.ReceivedBytes}
	}
	if r.Result != nil {
		w.documents = []wal.Document{{Pointer: tga.PointerResult, Data: r.Result}}
	}
	return w, nil
}
