package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Event is something that an operator wants to see, other than the answer of a tool.
type Event struct {
	Kind    EventKind
	TraceID tga.ID
	Server  string
	Tool    string
	Code    tga.Code // why
	Cause   string   // for people
	Attempt uint32   // of a doubt
	// After is how long the call was in doubt; set with EventSettled.
	After time.Duration
	// Traceparent is that of the span in which it happened, if there is an [Options].Tracer.
	Traceparent string
}

// EventKind says what an Event is about.
type EventKind string

// Kinds of events.
const (
	EventRefused EventKind = "refused"  // a call was refused without an attempt
	EventNotSent EventKind = "not_sent" // a call ended without a byte having been sent
	EventDoubt   EventKind = "doubt"    // a send ended without a certain answer
	EventSettled EventKind = "settled"  // a call that was in doubt has its effect
)

// observer is [Options.Observe]; nil is told nothing.
type observer func(Event)

func (o observer) tell(l *loop, kind EventKind, code tga.Code, attempt uint32, cause string) {
	o.say(l, Event{Kind: kind, Code: code, Attempt: attempt, Cause: clip.Short(cause, maxCause)})
}

// say fills in the call's part of e and passes e on.
func (o observer) say(l *loop, e Event) {
	if o == nil {
		return
	}
	p := l.request.Request.Proposal
	e.TraceID, e.Server, e.Tool, e.Traceparent = l.lease.TraceID, p.ToolServer, p.ToolName, l.span
	o(e)
}

// maxCause is how many characters of a cause are kept.
const maxCause = 500

// doubtCause is the body of a doubt note.
type doubtCause struct {
	Attempt uint32   `json:"attempt"`
	Cause   string   `json:"cause"`
	Code    tga.Code `json:"code"`
	// RetryAfter is how many milliseconds the tool server asked not to be asked again.
	RetryAfter int64 `json:"retry_after_ms"`
}

// doubts records why sends have no certain answer, and reports it.
type doubts struct {
	clock   times
	mint    *minter
	observe observer
	counts  *counts
}

// add stages the reason why attempt has no certain answer. The note commits with the next
// append of the loop (the mark of a re-send, or a question to the tool), or alone when the call
// is left in doubt. A call that is answered pays nothing for it. wait is the Retry-After of the
// tool server.
func (d *doubts) add(l *loop, attempt uint32, cause error, wait time.Duration) {
	l.doubt = cause
	l.inDoubtSince(d.clock.now())
	d.counts.doubts.Add(1)
	code := codeOr(cause, tga.ToolError)
	d.observe.tell(l, EventDoubt, code, attempt, cause.Error())
	body := map[string]any{"attempt": attempt, "cause": clip.Short(cause.Error(), maxCause), "code": string(code)}
	l.rests, l.restsSince = wait, d.clock.now()
	if ms := tga.RetryAfterMS(l.rests); ms > 0 {
		body["retry_after_ms"] = ms
	}
	var caught *PanicError
	if errors.As(cause, &caught) {
		body["stack"] = clip.Short(string(caught.Stack), maxStack)
	}
	note, err := d.mint.note(tga.NoteDoubt, whoRuntime, body)
	if err != nil {
		l.doubt = errors.Join(cause, err) // there will be no note, but the caller sees the cause
		return
	}
	l.notes = append(l.notes, note)
}

// inDoubtSince sets when the call came into doubt, unless that is known: the first doubt counts.
func (l *loop) inDoubtSince(at tga.Millis) {
	if l.doubtSince == 0 {
		l.doubtSince = at
	}
}

// firstDoubt returns when a trace without an effect came into doubt, by its notes; 0 if they do
// not say it.
func firstDoubt(t *chain.Trace) tga.Millis {
	if t.Effect == nil {
		for i := range t.Notes {
			if t.Notes[i].Kind == tga.NoteDoubt {
				return t.Notes[i].TS
			}
		}
	}
	return 0
}

// leave ends a run without an answer, after the cause is durable.
func (d *doubts) leave(ctx context.Context, l *loop) error {
	if err := l.commit(context.WithoutCancel(ctx)); err != nil {
		l.doubt = errors.Join(l.doubt, err)
	}
	return d.of(l)
}

// rest waits before a licensed re-send. attempt is the newest one, which has no answer. A run does
// not wait for a Retry-After that is longer than a send may take. It leaves the call in doubt,
// and a run after that time sends it again. If the tool server says that no attempt ran, there is no
// other pause, and the question has counted as a re-send.
func (d *doubts) rest(ctx context.Context, l *loop, attempt uint32) error {
	left, counts := d.clock.restsFor(l.rests, l.restsSince), l.doubt != nil && l.cleared != attempt
	if left > l.policy.SendTimeout || counts && l.resends >= l.policy.Resends {
		return d.leave(ctx, l)
	}
	if counts {
		left = max(left, 100*time.Millisecond<<min(l.resends, 6)) // doubling
		l.resends++
	}
	if err := pause(ctx, left); err != nil {
		return d.leave(ctx, l)
	}
	l.rested = attempt
	return nil
}

// of returns the error EFFECT_IN_DOUBT for a call that may or may not have run.
func (d *doubts) of(l *loop) error {
	cause := l.doubt
	switch {
	case cause != nil:
	case l.doubtBefore != "":
		cause = errors.New(l.doubtBefore)
	default:
		cause = errNoAnswer
	}
	e := tga.Errorf(tga.EffectInDoubt, "the call may have run: %w", cause).In(l.lease.TraceID)
	if tga.RetryAfterOf(cause) == 0 {
		e.RetryAfter = d.clock.restsFor(l.rests, l.restsSince)
	}
	return e
}

var errNoAnswer = errors.New("an earlier process may have sent the call and recorded no answer")

// DoubtCause returns why the newest attempt of a trace has no certain answer, by its notes;
// "" if nobody recorded a cause, as after a crash.
func DoubtCause(t *chain.Trace) string { return doubtOf(t).Cause }

// doubtOf returns the doubt note about the newest attempt of a trace; zero if there is
// none.
func doubtOf(t *chain.Trace) (b doubtCause) {
	if t.Call == nil || t.Effect != nil {
		return b
	}
	marked, _ := attemptsOf(t)
	for i := len(t.Notes) - 1; i >= 0; i-- {
		if t.Notes[i].Kind != tga.NoteDoubt {
			continue
		}
		if json.Unmarshal(t.Notes[i].Body, &b) != nil || b.Attempt != marked {
			return doubtCause{} // it is about an earlier attempt: the newest attempt has no note
		}
		return b
	}
	return b
}

// askedBefore returns the Retry-After of the tool server of a trace without an effect, and since
// when it counts. It comes from the newest doubt note, or from a later not_sent note that has a
// Retry-After. A not_sent note without one leaves the earlier value in force, as a run does.
func askedBefore(t *chain.Trace) (asked time.Duration, since tga.Millis) {
	if t.Call == nil || t.Effect != nil {
		return 0, 0
	}
	for i := len(t.Notes) - 1; i >= 0; i-- {
		switch n := &t.Notes[i]; n.Kind {
		case tga.NoteNotSent:
			if s, err := ledger.ParseNotSent(n.Body); err == nil && s.RetryAfterMS > 0 {
				return tga.ParseRetryAfterMS(s.RetryAfterMS), n.TS
			}
		case tga.NoteDoubt:
			var b doubtCause
			if json.Unmarshal(n.Body, &b) != nil {
				return 0, 0
			}
			return tga.ParseRetryAfterMS(b.RetryAfter), n.TS
		}
	}
	return 0, 0
}

// attempts returns how many attempts of a resumed trace were marked.
func (l *loop) attempts() uint32 {
	marked, _ := attemptsOf(l.trace)
	return marked
}

// attemptsOf counts the attempts of a trace that were marked, and those of them that may have
// been sent. While the trace holds its key, the ledger record has the same numbers.
func attemptsOf(t *chain.Trace) (marked, sent uint32) {
	if t.Call == nil {
		return 0, 0
	}
	switch t.Call.Meta.String(tga.MetaAttempt) {
	case tga.AttemptApart, tga.AttemptNone:
	default:
		marked = 1
	}
	var unsent uint32
	for i := range t.Notes {
		switch t.Notes[i].Kind {
		case tga.NoteAttempt:
			marked++
		case tga.NoteNotSent:
			unsent++
		}
	}
	if t.Effect != nil && ledger.ClassOf(t.Effect) == ledger.ClassNotSent && t.Effect.Meta[tga.MetaAttempt] != nil {
		unsent++
	}
	return marked, marked - min(unsent, marked)
}
