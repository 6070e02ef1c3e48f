package runtime

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// answers turns the replies of tools into the content of effects.
type answers struct {
	rules     func(call Call, reply *Reply) error // [Trust.Outcome]; nil has none
	maxAnswer int64                               // bytes of an answer that are kept
	redact    redactions
}

// read applies the tool's rules to a reply. The effect has happened, so read never fails: if a
// rule cannot be applied, the effect's meta says so, and the rule changes nothing.
//
// attempts is how many attempts the call has. If there are several, the tool's answer to one says
// nothing about the others. From a sender of an attempt, an answer that says that its attempt did not run refuses
// that attempt alone, see [answer.refused]; otherwise its class does not free the key. A person speaks of all
// attempts. 0 means that the words are a model's: the rules read only what a tool answered.
//
// A status or code that the contract does not have is no error either: read replaces it by
// a word of the contract, and keeps the tool's own word in the effect's meta.
func (a *answers) read(l *loop, by Writer, attempts uint32, r Reply) answer {
	if int64(len(r.Result)) <= a.maxAnswer { // of a longer answer, only the digest is kept
		r = r.own()
	}
	r, said, wrong := a.spelled(r)
	ruled := false
	if a.rules != nil && attempts != 0 {
		var err error
		if r, ruled, err = a.byRules(l.dispatchCall(attempts), r); wrong == nil {
			wrong = err
		}
	}
	refused := false
	if attempts > 1 && didNotRun(r) {
		switch {
		case by == ByProcess || by == ByPermit:
			refused = true
		case r.Class.Releases() && (by != ByPerson || ruled):
			if wrong == nil {
				wrong = tga.Errorf(tga.ValidationError, "class %v for an answer to one of %d attempts: another one may have run", r.Class, attempts)
			}
			r.Class = ledger.ClassNone
		}
	}
	whole, call := r.Result, l.sentCall(attempts)
	wrong = a.redact.cause(call, wrong)
	spoken := a.redact.said(call, said)
	r, redacted, err := a.redact.reply(call, r)
	if wrong == nil {
		wrong = err
	}
	redacted = redacted || spoken
	// Cut it only now: of what was taken out, no digest may be left that somebody could compare with a guess.
	if r = a.cut(r); r.Truncated {
		whole = nil
	}
	w := answerOf(l.class(), r)
	w.meta = said
	if redacted {
		w.meta = mergeMeta(w.meta, tga.Meta{tga.MetaRedacted: true})
		w.whole = whole
	}
	if len(r.Changes) > 0 {
		raw, err := tga.EncodeStateChanges(r.Changes)
		if err == nil {
			w.documents = append(w.documents, chain.Document{Pointer: tga.PointerStateChanges, Data: raw})
		} else if wrong == nil {
			wrong = err
		}
	}
	w.lacks(wrong)
	if refused {
		w.refused = tga.Errorf(tga.Code(w.errorCode), "the tool refused this attempt: %s", firstOf(r.ErrorMessage, r.Summary, r.Status))
		w.refused.RetryAfter = tga.BoundRetryAfter(r.RetryAfter)
	}
	return w
}

// didNotRun reports whether an answer says that its attempt did not run.
func didNotRun(r Reply) bool {
	return r.Class.Releases() || r.Class == ledger.ClassNone && r.Status == tga.StatusDenied
}

// byRules applies the tool's rules to a reply. ruled says that they gave it a class that frees the key.
func (a *answers) byRules(call Call, r Reply) (_ Reply, ruled bool, wrong error) {
	read := a.cut(r)
	wrong = a.rules(call, &read)
	if r.Status == tga.StatusSuccess && read.Status == tga.StatusFailure {
		// For the transport it was a success; the operator's rule makes it a failure.
		r.Status, r.ErrorCode, r.ErrorMessage = read.Status, read.ErrorCode, read.ErrorMessage
	}
	if read.Class == ledger.ClassNone || mayClass(read.Class, r.Status) {
		ruled = read.Class.Releases() && !r.Class.Releases()
		r.Class, r.Changes = read.Class, read.Changes
	} else if wrong == nil {
		wrong = tga.Errorf(tga.ValidationError, "class %v for an answer with status %s", read.Class, r.Status)
	}
	return r, ruled, wrong
}

// lacks notes in the effect's meta what of an answer could not be recorded, and why.
func (w *answer) lacks(why error) {
	if _, noted := w.meta[tga.MetaOutcomeError]; why != nil && !noted {
		w.meta = mergeMeta(w.meta, tga.Meta{tga.MetaOutcomeError: clip.Short(why.Error(), 200)})
	}
}

// storable returns the attachments of an answer that a store takes. The others cannot be kept, but the
// effect has happened, and is recorded without them.
func (w *answer) storable(list []chain.Attachment) (kept []chain.Attachment) {
	for _, a := range list {
		if _, err := keyspace.AppendAttachment(nil, keyspace.Kind(a.Kind), a.Key); err != nil {
			w.lacks(err)
			continue
		}
		kept = append(kept, a)
	}
	return kept
}

// askedIn writes the Retry-After of a tool server into an effect's meta.
func askedIn(meta tga.Meta, d time.Duration) {
	if ms := tga.RetryAfterMS(d); ms > 0 {
		meta[tga.MetaRetryAfter] = tga.Number(strconv.FormatInt(ms, 10))
	}
}

// retryAfterOf returns the Retry-After that an effect's meta has, 0 if there is none. A peer may
// have appended something else than a whole number there: that counts as none.
func retryAfterOf(effect *tga.Artifact) time.Duration {
	n, ok := effect.Meta[tga.MetaRetryAfter].(tga.Number)
	if !ok {
		return 0
	}
	ms, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil {
		return 0
	}
	return tga.ParseRetryAfterMS(ms)
}

// answerOf classifies a reply. If a tool fails and no rule knows the reason, it has
// failed for good: a repeat is a new call and needs a new key.
func answerOf(class string, r Reply) answer {
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
	}
	if r.Truncated {
		// Whether the call succeeded does not depend on the length of the answer.
		w.summary = firstOf(w.summary, fmt.Sprintf("the answer of %d bytes is over the limit: its length and digest are kept", r.ResultBytes))
		w.cut = tga.DocumentHash{Pointer: tga.PointerResult, Hash: r.ResultDigest, SizeBytes: r.ResultBytes}
		w.documents = []chain.Document{{Pointer: tga.PointerResult, Erased: true}}
		return w
	}
	if !r.Received.IsZero() {
		w.received = tga.DocumentHash{Pointer: tga.PointerReceived, Hash: r.Received, SizeBytes: r.ReceivedBytes}
	}
	if r.Result != nil {
		w.documents = []chain.Document{{Pointer: tga.PointerResult, Data: r.Result}}
	}
	return w
}

// mayClass reports whether an answer with a status may have a class. not_sent is no class of
// an answer: a call that was not sent has none.
func mayClass(c ledger.Class, status string) bool {
	return c.Agree(status) && c != ledger.ClassNotSent
}

// spelled puts a reply in the words of the contract. An unknown status says neither that the
// tool succeeded nor that it failed, so it becomes ERROR. An unknown code, or EFFECT_IN_DOUBT,
// which only tgad may use, becomes TOOL_ERROR. said has the tool's own words for the meta, neither
// redacted nor cut; wrong is an error if a class had to be left out.
func (a *answers) spelled(r Reply) (_ Reply, said tga.Meta, wrong error) {
	said = tga.Meta{}
	switch r.Status {
	case tga.StatusSuccess, tga.StatusFailure, tga.StatusDenied, tga.StatusError:
	default:
		said[tga.MetaToolStatus] = r.Status
		r.Status, r.Class = tga.StatusError, ledger.ClassNone
		r.ErrorMessage = firstOf(r.ErrorMessage, "the tool answered, with a status that is not known")
	}
	if r.Class != ledger.ClassNone && !mayClass(r.Class, r.Status) {
		wrong = tga.Errorf(tga.ValidationError, "class %q (%d) for an answer with status %s", r.Class, r.Class, r.Status)
		r.Class = ledger.ClassNone
	}
	_, known := tga.Code(r.ErrorCode).Info()
	if foreign := !known || r.ErrorCode == string(tga.EffectInDoubt); foreign && r.ErrorCode != "" {
		said[tga.MetaToolErrorCode] = r.ErrorCode
		r.ErrorCode = string(tga.ToolError)
	}
	if r.Status == tga.StatusSuccess {
		r.ErrorCode, r.ErrorMessage, r.RetryAfter = "", "", 0
	}
	askedIn(said, r.RetryAfter)
	r.ResultBytes = min(max(r.ResultBytes, 0), tga.MaxSafeInteger)
	r.ReceivedBytes = min(max(r.ReceivedBytes, 0), tga.MaxSafeInteger)
	return r, said, wrong
}

// cut replaces an answer over the limit by its length and digest.
func (a *answers) cut(r Reply) Reply {
	if n := int64(len(r.Result)); !r.Truncated && n > a.maxAnswer {
		r.Truncated, r.ResultBytes, r.ResultDigest, r.Result = true, n, tga.Sum(r.Result), nil
	}
	return r
}
