package story

import (
	"encoding/json"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Course is a trace over time, for drawing. Its moments are the steps of [Of], in the same order.
type Course struct {
	Moments  []Moment
	Attempts []Attempt
	Served   bool // the effect is that of another trace: the tool was not called
	Doubt    bool // the call may have been sent and has no effect yet: it is running, or in doubt
	Open     bool // the trace is not terminal, so more will follow
}

// Moment is when an entry or a note was written.
type Moment struct {
	TS    tga.Millis
	State string // of an entry: the state of the trace from here on
	Note  string // of a note: its kind
}

// Attempt is a send that was about to be made, and how it is known to have ended.
type Attempt struct {
	Number   uint32
	From, To int // moments: when it was marked, and when the log first tells how it ended; To is -1 if it does not
	End      End
}

// End is how an attempt ended as far as the log tells.
type End uint8

// Ends of an attempt.
const (
	Unknown  End = iota // the log does not tell: it is being made, or its sender is gone
	Answered            // the effect of the trace is its answer
	NotSent             // no byte left
	NoAnswer            // its sender noted why there is no certain answer
	Gone                // its sender ended and another process went on: it may have run
	Settled             // it had no answer, and a person or a probe of the tool settled what it did
)

// CourseOf returns the course of a trace.
func CourseOf(t *chain.Trace) *Course {
	c := &course{t: t, Course: Course{Doubt: InDoubt(t), Open: !t.Head.State.Terminal()}}
	for e, n := range inOrder(t) {
		if e != nil {
			c.entry(e)
		} else {
			c.note(n)
		}
	}
	return &c.Course
}

type course struct {
	Course
	t *chain.Trace
}

func (c *course) entry(e *tga.LogEntry) {
	at := len(c.Moments)
	c.Moments = append(c.Moments, Moment{TS: e.TS, State: e.To.String()})
	switch {
	case e.Type == tga.CallType && c.t.Call != nil:
		switch c.t.Call.Meta.String(tga.MetaAttempt) {
		case "", tga.AttemptFused, tga.AttemptExternal:
			c.begin(1, at)
		}
	case e.Type == tga.EffectType && c.t.Effect != nil:
		meta := c.t.Effect.Meta
		c.Served = meta.String(tga.MetaReplayedFrom) != ""
		a := c.open()
		switch {
		case a == nil:
		case c.Served, abandoned(c.t.Effect):
			c.end(a, at, Gone)
		case meta.String(tga.MetaResolvedBy) != "":
			c.end(a, at, Settled)
		default: // if another process had gone on, it would have written a note first
			c.end(a, at, Answered)
		}
	}
}

func (c *course) note(n *tga.Note) {
	at := len(c.Moments)
	c.Moments = append(c.Moments, Moment{TS: n.TS, Note: string(n.Kind)})
	switch n.Kind {
	case tga.NoteAttempt:
		m, err := ledger.ParseMark(n.Body)
		if err != nil {
			return // written by another program: the chain is valid, and the picture has one bar less
		}
		if m.Attempt == 1 && len(c.Attempts) == 1 {
			return // the call's entry has begun attempt 1 already
		}
		c.begin(m.Attempt, at)
	case tga.NoteNotSent, tga.NoteDoubt:
		var of struct {
			Attempt uint32 `json:"attempt"`
		}
		if json.Unmarshal(n.Body, &of) != nil {
			return
		}
		for i := range c.Attempts {
			if a := &c.Attempts[i]; a.Number == of.Attempt && a.To < 0 {
				c.end(a, at, map[tga.NoteKind]End{tga.NoteNotSent: NotSent, tga.NoteDoubt: NoAnswer}[n.Kind])
			}
		}
	case tga.NoteProbe:
		// A sender that still waits for its answer does not probe, so the sender is gone.
		if a := c.open(); a != nil {
			c.end(a, at, Gone)
		}
	}
}

// begin adds an attempt. If the attempt before it is still open, its sender is gone.
func (c *course) begin(number uint32, at int) {
	if a := c.open(); a != nil {
		c.end(a, at, Gone)
	}
	c.Attempts = append(c.Attempts, Attempt{Number: number, From: at, To: -1})
}

func (c *course) open() *Attempt {
	if n := len(c.Attempts); n > 0 && c.Attempts[n-1].To < 0 {
		return &c.Attempts[n-1]
	}
	return nil
}

func (c *course) end(a *Attempt, at int, how End) { a.To, a.End = at, how }

// abandoned reports whether an effect is no answer: the call was abandoned, and may have run.
func abandoned(effect *tga.Artifact) bool {
	e := effect.Effect.Outcome.Error
	return e != nil && e.Code == string(tga.EffectInDoubt)
}
