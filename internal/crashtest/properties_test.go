package crashtest

import (
	"slices"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// lived is the journal and the store of a small life cycle.
func lived(t *testing.T, licence string) ([]Event, *Observed) {
	t.Helper()
	w := NewWorld(3)
	p, err := w.Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.DB.Close(); err != nil {
			t.Error(err)
		}
	}()
	Scenario{Licences: []string{licence}, Steps: Steps}.play(p)
	o := p.Observe()
	if bad := Judge(w.Journal(), o); len(bad) > 0 {
		t.Fatal(bad)
	}
	return w.Journal(), o
}

// TestPropertiesFindWhatTheyName makes a sound journal or store wrong in one way each. At least the property
// of that name must report it.
func TestPropertiesFindWhatTheyName(t *testing.T) {
	last := func(events []Event, kind EventKind) int {
		for i := len(events) - 1; i >= 0; i-- {
			if events[i].Kind == kind {
				return i
			}
		}
		return -1
	}
	some := func(o *Observed, is func(*Seen) bool) *Seen {
		for _, s := range o.Traces {
			if is(s) {
				return s
			}
		}
		return nil
	}
	ended := func(s *Seen) bool { return s.Record != nil && s.Trace.Effect != nil && s.Record.TraceID == s.Trace.ID }
	for _, c := range []struct {
		property string
		licence  string
		lie      func(events []Event, o *Observed) []Event
	}{
		{"S1", "park", func(e []Event, _ *Observed) []Event { return append(e, e[last(e, Sent)]) }},
		{"S2", "park", func(e []Event, _ *Observed) []Event { return append(e, e[last(e, Acted)]) }},
		{"S3", "dedupe_key", func(e []Event, _ *Observed) []Event {
			i := slices.IndexFunc(e, func(x Event) bool { return x.Kind == Sent })
			again := e[i]
			again.Call.Attempt++
			return append(e, again)
		}},
		{"S4", "dedupe_key", func(e []Event, _ *Observed) []Event {
			again := e[last(e, Sent)]
			again.Call.Attempt = 9
			return append(e, again)
		}},
		{"S5", "dedupe_key", func(e []Event, _ *Observed) []Event {
			again := e[last(e, Sent)]
			again.Call.Attempt, again.Call.Args = 2, []byte(`{}`)
			return append(e, again)
		}},
		{"S6", "park", func(e []Event, o *Observed) []Event { delete(o.Traces, e[last(e, Acknowledged)].Trace); return e }},
		{"S7", "park", func(e []Event, o *Observed) []Event {
			s := some(o, ended)
			r := *s.Record
			r.Status = ledger.Reserved
			s.Record = &r
			return e
		}},
		{"S8", "park", func(e []Event, o *Observed) []Event {
			i := last(e, Sealed)
			e = slices.Clone(e)
			e[i].Seal.State.LastDigest[0] ^= 1
			return e
		}},
		{"S10", "park", func(e []Event, o *Observed) []Event {
			s := some(o, ended)
			s.Entries = slices.Clone(s.Entries)
			s.Entries[2].To = tga.Completed
			return e
		}},
		{"S11", "dedupe_args", func(e []Event, o *Observed) []Event { // a second attempt of a tool whose owner attests nothing
			s := some(o, func(s *Seen) bool { // after an attempt that reached nobody, another one needs no licence
				return s.Record != nil && s.Record.TraceID == s.Trace.ID && s.Record.Attempts.Count-s.Record.Attempts.Unsent > 1
			})
			s.Trace = s.Trace.Clone()
			call := *s.Trace.Call
			inner := *call.Call
			inner.Call.ToolName = "park.answers"
			call.Call = &inner
			s.Trace.Call = &call
			return e
		}},
		{"L1", "park", func(e []Event, o *Observed) []Event {
			o.Recovered = true
			o.Doubts = append(o.Doubts, runtime.Classified{Window: runtime.W2})
			return e
		}},
		{"L2", "read_only", func(e []Event, o *Observed) []Event {
			o.Recovered = true
			s := some(o, func(s *Seen) bool {
				return s.Record != nil && s.Record.TraceID == s.Trace.ID && !o.external(s.Trace.ID)
			})
			c := runtime.Classified{InDoubt: true}
			c.TraceID = s.Trace.ID
			o.Doubts = append(o.Doubts, c)
			return append(e, Event{Kind: Opened})
		}},
	} {
		t.Run(c.property, func(t *testing.T) {
			events, o := lived(t, c.licence)
			events = c.lie(slices.Clone(events), o)
			if !slices.ContainsFunc(Judge(events, o), func(v Violation) bool { return v.Property == c.property }) {
				t.Errorf("%s does not find it: %v", c.property, Judge(events, o))
			}
		})
	}
}

// TestLinearizable checks a register that is written once, with right and wrong histories (S9).
func TestLinearizable(t *testing.T) {
	call := func(caller int, args string) Event { return Event{Kind: Invoked, Key: "k", Caller: caller, Args: args} }
	answer := func(caller int, args, value string, code tga.Code) Event {
		return Event{Kind: Returned, Key: "k", Caller: caller, Args: args, Value: []byte(value), Code: code}
	}
	conflict := tga.IdempotencyKeyConflict
	for _, c := range []struct {
		name   string
		events []Event
		right  bool
	}{
		{"one", []Event{call(1, "a"), answer(1, "a", "x", "")}, true},
		{"two values", []Event{call(1, "a"), call(2, "a"), answer(1, "a", "x", ""), answer(2, "a", "y", "")}, false},
		{"two winners", []Event{call(1, "a"), call(2, "b"), answer(1, "a", "x", ""), answer(2, "b", "x", "")}, false},
		{"conflict", []Event{call(1, "a"), call(2, "b"), answer(2, "b", "", conflict), answer(1, "a", "x", "")}, true},
		{"conflict with the future", []Event{call(2, "b"), answer(2, "b", "", conflict), call(1, "a"), answer(1, "a", "x", "")}, false},
		{"conflict with the unknown", []Event{call(1, "a"), call(2, "b"), answer(2, "b", "", conflict), answer(1, "a", "", tga.StoreUnavailable)}, true},
		{"winner conflicts", []Event{call(1, "a"), call(2, "a"), answer(1, "a", "x", ""), answer(2, "a", "", conflict)}, false},
	} {
		if got := len(Linearizable(c.events)) == 0; got != c.right {
			t.Errorf("%s: %v, want %v", c.name, got, c.right)
		}
	}
}

// TestImageIsOfOneMoment: no image has a send whose attempt is missing in its file system. If disk and
// journal were cloned one after the other, they would sometimes differ.
func TestImageIsOfOneMoment(t *testing.T) {
	w := NewWorld(9)
	var images []Image
	w.OnPoint(func(p Point) {
		if p.Op == "act" || p.Op == "answer" {
			images = append(images, w.Snapshot(p, 100, nil))
		}
	})
	p, err := w.Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	Scenario{Licences: []string{"park", "park", "park", "park"}, Steps: Core, Parallel: true}.play(p)
	w.OnPoint(nil)
	if err := p.DB.Close(); err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		q, err := img.World().Start(Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range Judge(img.Events, q.Observe()) {
			t.Error(v)
		}
		if err := q.DB.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(images) == 0 {
		t.Error("nothing was sent")
	}
}
