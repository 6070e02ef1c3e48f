package crashtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
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
			} else if also := e.Batch.Also; also != nil {
				there, all := o.Traces[also.Lease.TraceID].holds(chain.Batch{Notes: also.Notes})
				if (there == all) != (have == want) {
					report("", e.Trace, "%d of the %d parts of a batch are there, and %d of the %d of its second trace %s", have, want, there, all, also.Lease.TraceID)
				}
			}
		}
	}
	queuedInOrder(h, o, refused, report)
	for id, s := range o.Traces {
		if s.Trace == nil {
			continue
		}
		if open := !s.state().Terminal(); open != o.Open[id] {
			report("", id, "the trace is %s, in the open index: %v", s.state(), o.Open[id])
		}
		if ask, asks := o.Asks[id]; asks && (s.state() == tga.Pending) != (ask == runtime.AskDecision) {
			report("", id, "the trace is %s and asks people for a %q", s.state(), ask)
		}
		for _, e := range s.Entries {
			if e.Artifact == nil {
				report(e.IdempotencyKey, id, "entry %d names an artifact that is not there", e.Seq)
			}
		}
		recordIsFold(id, s, o, report)
		undoneAgrees(id, s, o, report)
	}
}

// queuedInOrder checks that a crash keeps the order of a queue: of the batches that one
// goroutine submitted to a trace, a first part is there and nothing after it.
func queuedInOrder(h *history, o *Observed, refused map[int]bool, report func(string, tga.ID, string, ...any)) {
	missing := map[tga.ID]int{} // the first of this process that is not there
	for i, e := range h.events {
		switch {
		case e.Kind == Opened:
			clear(missing)
		case e.Kind == Submitted && e.Queued && !refused[i]:
			have, _ := o.Traces[e.Trace].holds(e.Batch)
			if at, gap := missing[e.Trace]; gap && have > 0 {
				report("", e.Trace, "the batch of event %d is there, and that of event %d, which was queued before it, is not", i, at)
			} else if have == 0 && !gap {
				missing[e.Trace] = i
			}
		}
	}
}

// undoneAgrees compares a trace that undid another one with that other trace: either both
// say so, or neither does.
func undoneAgrees(id tga.ID, s *Seen, o *Observed, report func(string, tga.ID, string, ...any)) {
	if of := s.Trace.Request.Meta.String(tga.MetaCompensates); of != "" {
		undid := s.Trace.Effect != nil && !ledger.NeverSent(s.Trace.Call) && ledger.ClassOf(s.Trace.Effect).Done()
		for other, t := range o.Traces {
			if other.String() == of && t.undoneBy(id) != undid {
				report(s.Key.Key, id, "it undid trace %s: %v; that one says so: %v", of, undid, !undid)
			}
		}
	}
	for _, n := range s.Notes {
		if n.Kind != tga.NoteCompensated {
			continue
		}
		u, err := ledger.ParseUndone(n.Body)
		if by := o.Traces[u.TraceID]; err != nil || by == nil || by.Trace == nil || by.Trace.Effect == nil || by.Trace.Effect.Digest != u.EffectDigest {
			report(s.Key.Key, id, "note %d names trace %s, which has no such effect", n.Number, u.TraceID)
		}
	}
}

func (s *Seen) undoneBy(id tga.ID) bool {
	for _, n := range s.Notes {
		if u, err := ledger.ParseUndone(n.Body); n.Kind == tga.NoteCompensated && err == nil && u.TraceID == id {
			return true
		}
	}
	return false
}

// holds counts the parts of a batch (want), and how many of them the trace has (have). Some
// notes have the same text when they are written again after a crash. So if a batch also
// has parts that are unique, such a note counts only if one of those is there.
func (s *Seen) holds(b chain.Batch) (have, want int) {
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
	single, learnt := len(b.Artifacts), 0
	for _, n := range b.Notes {
		there := 0
		if slices.ContainsFunc(s.Notes, func(m tga.Note) bool { return m.Kind == n.Kind && bytes.Equal(m.Body, n.Body) }) {
			there = 1
		}
		if n.Kind == tga.NoteAttempt || n.Kind == tga.NoteNotSent {
			single++
			have += there
		} else {
			learnt += there
		}
	}
	if single == 0 || have > 0 {
		have += learnt
	}
	return have, want
}

// recordIsFold compares the ledger record of a trace's key with the fold of its log.
// Another trace may have the key only if this one was certainly not executed.
func recordIsFold(id tga.ID, s *Seen, o *Observed, report func(string, tga.ID, string, ...any)) {
	t := s.Trace
	if t.Call == nil || ledger.NeverSent(t.Call) {
		return
	}
	var call, effect chain.Entry
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
	case s.Record.TraceID != id && !o.released(id):
		report(s.Key.Key, id, "trace %s has the key, and this one never gave it up", s.Record.TraceID)
	}
}

func chainIsValid(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for id, s := range o.Traces {
		if s.Err != nil {
			report("", id, "the trace does not replay: %v", s.Err)
		}
		if what := s.unchained(id); what != "" {
			report("", id, "%s", what)
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

// unchained checks the chain with code of its own, because the code under test is built on
// the replay of package wal. It returns what is wrong with the chain, or "".
func (s *Seen) unchained(id tga.ID) string {
	var prev tga.Digest
	for i, e := range s.Entries {
		var says struct {
			Trace string `json:"trace_id"`
			Prev  string `json:"prev_entry_digest"`
		}
		if err := json.Unmarshal(e.Preimage, &says); err != nil {
			return fmt.Sprintf("entry %d: what is hashed is no JSON: %v", i+1, err)
		}
		switch {
		case e.TraceID != id || says.Trace != id.String():
			return fmt.Sprintf("entry %d is of trace %s", i+1, says.Trace)
		case e.Prev != prev || says.Prev != prev.String():
			return fmt.Sprintf("entry %d follows %s, the one before is %s", i+1, says.Prev, prev)
		case e.Digest != sha256.Sum256(e.Preimage):
			return fmt.Sprintf("entry %d has another digest than its bytes", i+1)
		}
		prev = e.Digest
	}
	return ""
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
	newest := map[tga.ID]chain.Epoch{}
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
		case c.State == tga.Authorized && (o.othersDoubt(c) || o.Waiting[c.TraceID]):
		case c.State == tga.Authorized && o.executors(c.TraceID):
			// A remote executor began it, and continues it when it asks again.
		case c.Window == "W3" && o.external(c.TraceID):
			// The executor returned its permit: the call waits for another Begin.
		case c.Window == "W4" && o.external(c.TraceID):
			// Its permit is fresh: the executor may still be about to send.
		default:
			report(c.Key, c.TraceID, "recovery left the trace %s in %s", c.State, c.Window)
		}
	}
}

// external reports whether a remote executor sends the trace's call.
func (o *Observed) external(id tga.ID) bool {
	s := o.Traces[id]
	return s != nil && s.Trace != nil && s.Trace.Call != nil && s.Trace.Call.Meta.String(tga.MetaAttempt) == tga.AttemptExternal
}

// executors reports whether a trace was begun by a remote executor.
func (o *Observed) executors(id tga.ID) bool {
	s := o.Traces[id]
	return s != nil && s.Trace != nil && s.Trace.Request != nil && s.Trace.Request.Meta.String(tga.MetaExecutor) == tga.AttemptExternal
}

// othersDoubt reports whether another trace has the key and is still executing.
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

// licensedNow decides by the tool's name and the record whether a send is licensed now. It
// does not use the ledger's own table, which is under test.
func licensedNow(s *Seen, o *Observed) bool {
	tool := s.Trace.Call.Call.Call.ToolName
	if !licensed(tool, o.Profile) {
		return false
	}
	name, behaviour := licenceOf(tool)
	if name == probed && behaviour == Late {
		return false // its server says that it did not run, and not that it will not
	}
	if name != "dedupe_key" && name != none {
		return true
	}
	honoured := window
	if name == none {
		honoured = ledger.Spec93Window
	}
	// Only times well inside the window count, so that margins do not matter.
	return s.Record != nil && o.Now >= o.NewestTS && o.Now-s.Record.Attempts.First < tga.Millis(honoured.Milliseconds()/2)
}

// unanswered reports whether the newest process sent the trace's call, or tried to. Then
// this process caused the doubt itself, and the next recovery ends it.
func (h *history) unanswered(id tga.ID) bool {
	for _, e := range h.events[h.lastRun:] {
		if e.Trace == id && (e.Kind == Sent || e.Kind == Unanswered) {
			return true
		}
	}
	return false
}
