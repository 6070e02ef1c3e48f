package crashtest

import (
	"bytes"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

func acknowledgedSurvives(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for _, e := range h.events {
		if e.Kind == Returned && e.Code == "" {
			if s := o.Traces[e.Trace]; s == nil || !s.state().Terminal() {
				report(e.Key, e.Trace, "its caller was answered, and it is not terminal")
			}
		}
		if e.Kind != Acknowledged {
			continue
		}
		s := o.Traces[e.Trace]
		if s == nil {
			report("", e.Trace, "the trace was acknowledged and is gone")
			continue
		}
		for _, want := range e.Entries {
			if i := int(want.Seq) - 1; i >= len(s.Entries) || s.Entries[i].Digest != want.Digest {
				report(want.IdempotencyKey, e.Trace, "entry %d (%s) was acknowledged and is gone or another", want.Seq, want.To)
			}
		}
		for _, want := range e.Notes {
			if i := int(want.Number) - 1; i >= len(s.Notes) || s.Notes[i].Digest != want.Digest {
				report("", e.Trace, "note %d (%s) was acknowledged and is gone or another", want.Number, want.Kind)
			}
		}
	}
}

func batchesAreWhole(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for _, p := range o.Problems {
		report("", p.TraceID, "the store's own check: %s", p)
	}
	refused := map[int]bool{} // parts of such a batch may have come in another
	for _, e := range h.events {
		if e.Kind == Refused {
			refused[e.Batched] = true
		}
	}
	for i, e := range h.events {
		if e.Kind == Submitted && !refused[i] {
			if have, want := o.Traces[e.Trace].holds(e.Batch); have != 0 && have != want {
				report("", e.Trace, "%d of the %d parts of a batch are there", have, want)
			}
		}
	}
	for id, s := range o.Traces {
		if s.Trace == nil {
			continue
		}
		if open := !s.state().Terminal(); open != o.Open[id] {
			report("", id, "the trace is %s, in the open index: %v", s.state(), o.Open[id])
		}
		if o.Waiting[id] && s.state() != tga.Pending {
			report("", id, "the trace is %s and has a pending approval", s.state())
		}
		for _, e := range s.Entries {
			if e.Artifact == nil {
				report(e.IdempotencyKey, id, "entry %d names an artifact that is not there", e.Seq)
			}
		}
		recordIsFold(id, s, o, report)
	}
}

// holds counts the parts of a batch and those that the trace has.
func (s *Seen) holds(b wal.Batch) (have, want int) {
	want = len(b.Artifacts) + len(b.Notes)
	if s == nil {
		return 0, want
	}
	for _, a := range b.Artifacts {
		for _, e := range s.Entries {
			if e.ArtifactDigest == a.Artifact.Digest {
				have++
			}
		}
	}
	for _, n := range b.Notes {
		for _, m := range s.Notes {
			if m.Kind == n.Kind && bytes.Equal(m.Body, n.Body) {
				have++
				break
			}
		}
	}
	return have, want
}

// recordIsFold compares the ledger record of a trace's key with the fold of its log.
// Another trace has the key only where this one ended as a definite non-execution.
func recordIsFold(id tga.ID, s *Seen, o *Observed, report func(string, tga.ID, string, ...any)) {
	t := s.Trace
	if t.Call == nil || ledger.NeverSent(t.Call) {
		return
	}
	var call, effect wal.Entry
	for _, e := range s.Entries {
		switch e.Type {
		case tga.CallType:
			call = e
		case tga.EffectType:
			effect = e
		}
	}
	want, _, err := ledger.FromTrace(t.Call, call.Seq, uint64(call.Epoch), min(call.TS, call.Committed), t.Effect, effect.Seq, s.Notes)
	switch {
	case err != nil:
		report(s.Key.Key, id, "the log gives no record: %v", err)
	case s.Record == nil:
		report(s.Key.Key, id, "the trace reserved its key and there is no record")
	case s.Record.TraceID == id && *s.Record != want:
		report(s.Key.Key, id, "the record is %+v, the log says %+v", *s.Record, want)
	case s.Record.TraceID != id && !o.retryable(id):
		report(s.Key.Key, id, "trace %s has the key, and this one never gave it up", s.Record.TraceID)
	}
}

func chainIsValid(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for id, s := range o.Traces {
		if s.Err != nil {
			report("", id, "the trace does not replay: %v", s.Err)
		}
	}
	for _, e := range h.events {
		if e.Kind != Sealed {
			continue
		}
		s, seq := o.Traces[e.Trace], int(e.Seal.State.LastSeq)
		if s == nil || seq < 1 || seq > len(s.Entries) || s.Entries[seq-1].Digest != e.Seal.State.LastDigest {
			report("", e.Trace, "a checkpoint of entry %d was handed out, and the log does not have that entry", seq)
		}
	}
}

func legalTransitions(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for id, s := range o.Traces {
		state := tga.None
		for i, e := range s.Entries {
			verdict := ""
			if e.Artifact != nil {
				verdict = e.Artifact.Verdict()
			}
			to, ok := tga.Next(state, e.Type, verdict)
			from := state
			if i == 0 {
				from = tga.Pending // genesis is written PENDING to PENDING
			}
			if !ok || to != e.To || e.From != from || e.Seq != uint64(i+1) {
				report(e.IdempotencyKey, id, "entry %d: %s to %s by %s after %s", e.Seq, e.From, e.To, e.Type, state)
			}
			state = e.To
		}
	}
	newest := map[tga.ID]wal.Epoch{}
	for _, e := range h.events {
		switch {
		case e.Kind == Granted:
			newest[e.Trace] = e.Epoch
		case e.Kind == Acknowledged && e.Epoch < newest[e.Trace]:
			report("", e.Trace, "an append under epoch %#x was taken after epoch %#x was granted", e.Epoch, newest[e.Trace])
		}
		if n := len(e.Entries); e.Kind == Acknowledged && n > 0 && e.Entries[n-1].To.Terminal() {
			if s := o.Traces[e.Trace]; s != nil && len(s.Entries) > int(e.Entries[n-1].Seq) {
				report("", e.Trace, "entry %d follows the terminal one", e.Entries[n-1].Seq+1)
			}
		}
	}
}

func nothingIsLeft(_ *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	if !o.Recovered {
		return
	}
	for _, c := range o.Doubts {
		switch {
		case c.Err != nil:
			report(c.Key, c.TraceID, "quarantined: %v", c.Err)
		case c.Held:
			report(c.Key, c.TraceID, "nobody runs and the lease is held")
		case c.InDoubt, c.State == tga.Pending && o.Waiting[c.TraceID]:
		case c.State == tga.Authorized && o.othersDoubt(c):
		case c.Window == "W3" && o.external(c.TraceID):
			// The executor took its permit back: the call waits for another Begin.
		default:
			report(c.Key, c.TraceID, "recovery left the trace %s in %s", c.State, c.Window)
		}
	}
}

// external reports whether a trace's call is a remote executor's to send.
func (o *Observed) external(id tga.ID) bool {
	s := o.Traces[id]
	return s != nil && s.Trace != nil && s.Trace.Call != nil && s.Trace.Call.Meta.String(tga.MetaAttempt) == tga.AttemptExternal
}

// othersDoubt reports whether another trace has the key and is not at its end.
func (o *Observed) othersDoubt(c runtime.Classified) bool {
	for _, d := range o.Doubts {
		if d.Key == c.Key && d.TraceID != c.TraceID && d.State == tga.Executing {
			return true
		}
	}
	return false
}

func noOverParking(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for _, c := range o.Doubts {
		s := o.Traces[c.TraceID]
		if !c.InDoubt || s == nil || s.Trace == nil || s.Trace.Call == nil {
			continue
		}
		count := uint32(0)
		if marked(s, 1) {
			count = 1
		}
		for _, n := range s.Notes {
			if n.Kind == tga.NoteAttempt {
				count++
			}
		}
		if count == 0 || s.Trace.Effect != nil {
			report(c.Key, c.TraceID, "in doubt with %d attempts and effect %v", count, s.Trace.Effect != nil)
		}
		if o.Recovered && !o.external(c.TraceID) && licensedNow(s, o) && !h.unanswered(c.TraceID) {
			report(c.Key, c.TraceID, "left in doubt although the licence of %s permits a send", c.Tool)
		}
	}
}

// licensedNow reads the licence off the tool's name and the record, beside the
// ledger's own table.
func licensedNow(s *Seen, o *Observed) bool {
	tool := s.Trace.Call.Call.Call.ToolName
	if !licensed(tool, o.Profile) {
		return false
	}
	name, _ := licenceOf(tool)
	if name != "dedupe_key" && name != none {
		return true
	}
	honoured := window
	if name == none {
		honoured = ledger.Spec93Window
	}
	// Well inside the window, so that margins are not argued about.
	return s.Record != nil && o.Now >= o.NewestTS && o.Now-s.Record.Attempts.First < tga.Millis(honoured.Milliseconds()/2)
}

// unanswered reports whether the newest process sent the trace's call, or tried to, and
// got no answer: then the doubt is of its own making, and the next recovery's to end.
func (h *history) unanswered(id tga.ID) bool {
	for _, e := range h.events[h.lastRun:] {
		if e.Trace == id && (e.Kind == Sent || e.Kind == Unanswered) {
			return true
		}
	}
	return false
}
