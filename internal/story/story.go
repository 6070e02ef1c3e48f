// Package story describes the log of a call in words: one step for each entry and note, in the
// order in which they became durable, as far as the chain tells. The command line and the web view
// show the same steps.
//
//	same words  both show the texts of this package, and have none of their own  [Of]  TestTimeline, TestTracePage
package story

import (
	"fmt"
	"iter"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Step is an entry or a note.
type Step struct {
	Number string // of an entry its sequence number, of a note "n" and its number
	TS     tga.Millis
	State  string // of the trace from here on; "" for a note
	What   string
	Digest tga.Digest
	Lines  []Line
}

// Line is a sentence, or a document with its name. Both may hold untrusted text.
type Line struct {
	Text string
	Name string
	Data []byte
}

// Of returns the steps of a trace.
func Of(t *chain.Trace) (steps []Step) {
	for e, n := range inOrder(t) {
		if e != nil {
			steps = append(steps, entry(t, e))
			continue
		}
		steps = append(steps, Step{
			Number: fmt.Sprintf("n%d", n.Number), TS: n.TS, What: "note " + string(n.Kind), Digest: n.Digest,
			Lines: []Line{{Name: n.Who, Data: n.Body}},
		})
	}
	return steps
}

// inOrder yields the entries and notes of a trace, one of the two at a time. A note names the head at the
// time it was written, so it comes after that entry and before the next one.
func inOrder(t *chain.Trace) iter.Seq2[*tga.LogEntry, *tga.Note] {
	return func(yield func(*tga.LogEntry, *tga.Note) bool) {
		notes := t.Notes
		for i := range t.Entries {
			e := &t.Entries[i]
			if !yield(e, nil) {
				return
			}
			for len(notes) > 0 && (notes[0].HeadDigest == e.Digest || i == len(t.Entries)-1) {
				if !yield(nil, &notes[0]) {
					return
				}
				notes = notes[1:]
			}
		}
	}
}

// Standing returns the state of a trace, and whether it is in doubt, in words.
func Standing(t *chain.Trace) string {
	if InDoubt(t) {
		return t.Head.State.String() + ", in doubt unless running"
	}
	return t.Head.State.String()
}

// InDoubt reports, from the log alone, whether a call may have been sent and has no
// effect. A call that is being executed right now looks the same.
func InDoubt(t *chain.Trace) bool {
	_, ok := Doubt(t)
	return ok
}

// Doubt returns the ledger's record of a call that is [InDoubt].
func Doubt(t *chain.Trace) (rec ledger.Record, ok bool) {
	if t.Head.State != tga.Executing {
		return rec, false
	}
	var at tga.LogEntry
	for _, e := range t.Entries {
		if e.Type == tga.CallType {
			at = e
		}
	}
	rec, touches, err := ledger.FromTrace(t.Call, at.Seq, 0, at.TS, nil, 0, t.Notes)
	return rec, err == nil && touches && rec.InDoubt()
}

// Key returns the idempotency key of a trace that has a request or a call.
func Key(t *chain.Trace) string {
	if t.Call != nil {
		return t.Call.Call.IdempotencyKey
	}
	return t.Request.Request.IdempotencyKey
}

// Title names a trace by its tool, key and id.
func Title(t *chain.Trace) string {
	title := t.ID.String()
	if t.Request != nil {
		q := t.Request.Request.Proposal
		title = strings.TrimSpace(q.ToolServer+" "+q.ToolName+" "+clip.Runes(Key(t), 40)) + "  ·  " + title
	}
	return title + "  ·  " + Standing(t)
}

func entry(t *chain.Trace, e *tga.LogEntry) Step {
	s := Step{Number: fmt.Sprint(e.Seq), TS: e.TS, State: e.To.String(), What: e.Type.String(), Digest: e.Digest}
	switch e.Type {
	case tga.RequestType:
		if a := t.Request; s.present(a) {
			q := a.Request
			s.say("%s risk, agent %s: %s", strings.ToLower(q.RiskLevel), q.AgentID, q.Intent)
			s.data("args", q.Proposal.Args)
			s.meta(a, requestMeta)
			if claim := a.Meta.String(tga.MetaClientLicence); claim != "" {
				s.say("its program claims licence %s", licence(claim))
			}
		}
	case tga.DecisionType:
		if a := t.Decision; s.present(a) {
			s.say("%s: %s", a.Decision.Decision, a.Decision.Rationale)
			if who := a.Meta.String("approvers"); who != "" {
				s.say("approvers: %s", who)
			}
		}
	case tga.CallType:
		if a := t.Call; s.present(a) {
			s.say("%s call, %s", a.Call.ToolClass, attemptText[a.Meta.String(tga.MetaAttempt)])
			if under := a.Meta.String(tga.MetaLicence); under != "" {
				s.say("under licence %s", licence(under))
			}
			s.meta(a, callMeta)
		}
	case tga.EffectType:
		if a := t.Effect; s.present(a) {
			s.effect(a)
			for _, d := range t.Documents {
				if d.Erased {
					s.say("%s: erased", d.Pointer)
					continue
				}
				s.data(strings.TrimPrefix(d.Pointer, "/"), d.Data)
			}
		}
	}
	return s
}

// licence describes a licence in the form of the log, with its times in words. It returns any other
// text unchanged.
func licence(text string) string {
	l, err := ledger.ParseAttested(text)
	switch {
	case err != nil:
		return text
	case l.Window > 0:
		return fmt.Sprintf("%v, window %v, margin %v", l.Kind, l.Window, l.Margin)
	case l.MaxInFlight > 0:
		return fmt.Sprintf("%v, at most %v in flight", l.Kind, l.MaxInFlight)
	}
	return l.Kind.String()
}

var attemptText = map[string]string{
	"":                  "attempt 1 may be sent from here on",
	tga.AttemptFused:    "attempt 1 may be sent from here on",
	tga.AttemptApart:    "attempts are notes of their own",
	tga.AttemptExternal: "attempt 1 is with a remote executor",
	tga.AttemptNone:     "never sent",
}

func (s *Step) effect(a *tga.Artifact) {
	o := a.Effect.Outcome
	summary := ""
	if o.Summary != "" {
		summary = ": " + o.Summary
	}
	s.say("%s, %s%s", o.Status, ledger.ClassOf(a), summary)
	if o.Error != nil {
		s.say("%s: %s", o.Error.Code, o.Error.Message)
	}
	s.meta(a, effectMeta)
}

// said is a name in an artifact's meta, and the sentence for it.
type said struct{ name, text string }

var requestMeta = []said{
	{tga.MetaSubmitter, "handed in by %s"},
	{tga.MetaRetryOf, "a new attempt after trace %s"},
	{tga.MetaCompensates, "undoes trace %s"},
}

var callMeta = []said{
	{tga.MetaRetryOf, "the key of trace %s, of which nothing was executed"},
}

var effectMeta = []said{
	{tga.MetaReplayedFrom, "the recorded effect of trace %s; the tool was not called"},
	{tga.MetaCompensatedBy, "undone by trace %s"},
	{tga.MetaResolvedBy, "settled by %s"},
	{tga.MetaResolvedVia, "decided by a %s, by the right of that peer; no person has confirmed it"},
	{tga.MetaResolver, "who: %s"},
	{tga.MetaOutcomeError, "a rule about the answer was not applied: %s"},
}

func (s *Step) meta(a *tga.Artifact, names []said) {
	for _, m := range names {
		if v := a.Meta.String(m.name); v != "" {
			s.say(m.text, v)
		}
	}
}

func (s *Step) present(a *tga.Artifact) bool {
	if a == nil {
		s.say("the artifact is erased; its digest remains in the entry")
	}
	return a != nil
}

func (s *Step) say(format string, args ...any) {
	s.Lines = append(s.Lines, Line{Text: fmt.Sprintf(format, args...)})
}

func (s *Step) data(name string, data []byte) {
	s.Lines = append(s.Lines, Line{Name: name, Data: data})
}

// Following says what follows for a call once the licence of now decides about it, by the word of [wire.Relicensed].
var Following = map[string]string{"resend": "it is sent again", "probe": "its tool server is asked", "begin": "its executor may send it again"}

// Known is what a person can know of a call in doubt: the word for it, and what it makes of the outcome.
var Known = map[string]struct {
	Status string
	Class  ledger.Class
}{
	"ran":     {tga.StatusSuccess, ledger.ClassNone},
	"failed":  {tga.StatusFailure, ledger.ClassPermanent},
	"not-run": {tga.StatusFailure, ledger.ClassRetryable},
}
