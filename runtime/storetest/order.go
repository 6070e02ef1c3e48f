package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func contextEnding(after time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(bg, after)
}

// fault is one error in an append of a tool_call to an AUTHORIZED trace. The faults are in
// the order in which a store checks for them (docs/SEMANTICS.md).
type fault struct {
	name string
	code tga.Code
	// call and entry spoil the artifact, and the caller's complete entry around it.
	call  func(b *Builder)
	entry func(e *tga.LogEntry)
	stale bool // append under a lease that was released
}

func faults(taken string) []fault {
	return []fault{
		{name: "stale lease", code: tga.StateConcurrentExecution, stale: true},
		{name: "sequence ahead", code: tga.StateSequenceGap, entry: func(e *tga.LogEntry) { e.Seq++ }},
		{name: "previous digest", code: tga.StateChecksumMismatch, entry: func(e *tga.LogEntry) { e.Prev[0] ^= 1 }},
		{name: "from_state", code: tga.StateInvalidTransition, entry: func(e *tga.LogEntry) { e.From = tga.Pending }},
		{name: "no tool_call_id", code: tga.MissingToolCallID, entry: func(e *tga.LogEntry) { e.ToolCallID = tga.ID{} }},
		{name: "link to another decision", code: tga.SchemaViolation, call: func(b *Builder) {
			other := *b.Decision
			other.ID = NewID()
			b.Decision = &other
		}},
		{name: "key of another request", code: tga.IdempotencyKeyConflict, call: func(b *Builder) { b.Key = taken }},
	}
}

// spoilt returns an append that has all the given faults.
func spoilt(b *Builder, head chain.Appended, ts tga.Millis, faults []fault) chain.Batch {
	s := *b
	for _, f := range faults {
		if f.call != nil {
			f.call(&s)
		}
	}
	call := s.MintCall("")
	if len(faults) == 0 {
		b.Call = call // it will stand
	}
	last := head.Head
	e := tga.LogEntry{
		TraceID: b.TraceID, Seq: last.Seq + 1, Prev: last.Digest, TS: ts,
		From: tga.Authorized, To: tga.Executing, Type: tga.CallType,
		ArtifactID: call.ID, ArtifactDigest: call.Digest, ToolCallID: call.ID, IdempotencyKey: s.Key,
	}
	for _, f := range faults {
		if f.entry != nil {
			f.entry(&e)
		}
	}
	e.Seal()
	return chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: call, Entry: &e}}}
}

var orderClaims = []claim{
	{"ChecksComeInOrder", func(w *world) {
		// Another request has the key. The trace's own request names no key, so that a call
		// may have any key.
		first := w.begun("")
		all := faults(first.Key)
		for i := range all {
			b := New(w)
			b.Proposal.Args = []byte(`{"amount":6}`)
			request := *b
			request.Key = ""
			b.Request = request.MintRequest()
			stale := w.lease(b)
			w.release(b)
			lease := w.lease(b)
			head := w.append(b, Batch(b.Request, b.MintDecision(tga.Approve)))
			if all[i].stale {
				lease = stale
			}
			ts := head.Entries[1].TS
			w.refused(fmt.Sprintf("%s alone", all[i].name), all[i].code, lease, spoilt(b, head, ts, all[i:i+1]))
			// Even with all later faults added, the code is that of the earliest check.
			w.refused(fmt.Sprintf("%s and all after it", all[i].name), all[i].code, lease, spoilt(b, head, ts, all[i:]))
			w.append(b, spoilt(b, head, ts, nil))
		}
	}},
	{"CallersEntryIsStoredAsGiven", func(w *world) {
		b := New(w)
		head := w.append(b, b.Approved())
		batch := spoilt(b, head, head.Entries[1].TS+1, nil)
		done := w.append(b, batch)
		want := *batch.Artifacts[0].Entry
		if got := w.entries(b.TraceID)[2].LogEntry; got != want || done.Entries[0] != want {
			w.Errorf("stored %+v, given %+v", got, want)
		}
	}},
	{"ExpectedHeadIsChecked", func(w *world) {
		b := New(w)
		head := w.append(b, b.Approved()).Head
		call := Batch(b.MintCall(""))
		for _, c := range []struct {
			name   string
			expect chain.Head
			code   tga.Code
		}{
			{"behind", chain.Head{Seq: 1, Digest: head.Digest}, tga.StateSequenceGap},
			{"ahead", chain.Head{Seq: 3, Digest: head.Digest}, tga.StateSequenceGap},
			{"other digest", chain.Head{Seq: 2, Digest: tga.Sum(nil)}, tga.StateChecksumMismatch},
		} {
			call.Expect = &c.expect
			w.refused(c.name, c.code, w.lease(b), call)
		}
		call.Expect = &head
		w.append(b, call)
	}},
	{"OnlyTheMachinesEdgesAreTaken", func(w *world) {
		// Append each artifact in each state; the store must refuse what is no transition.
		steps := map[tga.State]func(b *Builder){
			tga.None:       func(*Builder) {},
			tga.Pending:    func(b *Builder) { w.append(b, Batch(b.MintRequest())) },
			tga.Authorized: func(b *Builder) { w.append(b, b.Approved()) },
			tga.Executing:  func(b *Builder) { w.append(b, b.Begin("")) },
			tga.Completed:  func(b *Builder) { w.append(b, b.Begin("")); w.append(b, b.End(tga.StatusSuccess)) },
			tga.Failed:     func(b *Builder) { w.append(b, b.Begin("")); w.append(b, b.End(tga.StatusFailure)) },
			tga.Denied:     func(b *Builder) { w.append(b, Batch(b.MintRequest(), b.MintDecision(tga.Deny))) },
		}
		offers := []func(b *Builder) chain.Batch{
			func(b *Builder) chain.Batch { return Batch(b.MintRequest()) },
			func(b *Builder) chain.Batch { return Batch(b.MintDecision(tga.Approve)) },
			func(b *Builder) chain.Batch { return Batch(b.MintDecision(tga.Deny)) },
			func(b *Builder) chain.Batch { return Batch(b.MintDecision(tga.NeedsApproval)) },
			func(b *Builder) chain.Batch { return Batch(b.MintCall("")) },
			func(b *Builder) chain.Batch { return b.End(tga.StatusSuccess) },
			func(b *Builder) chain.Batch { return b.End(tga.StatusDenied) },
		}
		for state, step := range steps {
			for i, offer := range offers {
				b := New(w)
				step(b)
				at := *b // the artifact links to those of the trace, or to artifacts of its own
				if at.Request == nil {
					at.MintRequest()
				}
				if at.Decision == nil {
					at.MintDecision(tga.Approve)
				}
				if at.Call == nil {
					at.MintCall("")
				}
				batch := offer(&at)
				a := batch.Artifacts[0].Artifact
				if _, legal := tga.Next(state, a.Type, a.Verdict()); legal {
					w.append(b, batch)
				} else {
					w.refused(fmt.Sprintf("offer %d in %v", i, state), tga.StateInvalidTransition, w.lease(b), batch)
				}
				w.release(b)
			}
		}
	}},
	{"LinksAreChecked", func(w *world) {
		b := New(w)
		w.append(b, Batch(b.MintRequest()))
		lease := w.lease(b)
		offer := func(what string, code tga.Code, mint func(b *Builder) chain.Batch) {
			at := *b
			w.refused(what, code, lease, mint(&at))
		}
		change := func(a *tga.Artifact) *tga.Artifact { c := *a; return &c }
		offer("decision of another request", tga.SchemaViolation, func(b *Builder) chain.Batch {
			b.Request = change(b.Request)
			b.Request.ID = NewID()
			return Batch(b.MintDecision(tga.Approve))
		})
		offer("decision of a request with another digest", tga.StateChecksumMismatch, func(b *Builder) chain.Batch {
			b.Request = change(b.Request)
			b.Request.Digest[3] ^= 1
			return Batch(b.MintDecision(tga.Approve))
		})
		offer("artifact of another plan", tga.SchemaViolation, func(b *Builder) chain.Batch {
			b.PlanID = NewID()
			return Batch(b.MintDecision(tga.Approve))
		})
		offer("artifact of another trace", tga.SchemaViolation, func(b *Builder) chain.Batch {
			b.TraceID = NewID()
			return Batch(b.MintDecision(tga.Approve))
		})
		w.append(b, Batch(b.MintDecision(tga.Approve)))
		offer("call with other arguments", tga.SchemaViolation, func(b *Builder) chain.Batch {
			b.Proposal.Args = []byte(`{"amount":6}`)
			return Batch(b.MintCall(""))
		})
		offer("call with another key", tga.SchemaViolation, func(b *Builder) chain.Batch {
			b.Key = "another"
			return Batch(b.MintCall(""))
		})
		w.append(b, Batch(b.MintCall("")))
		offer("effect of another call", tga.SchemaViolation, func(b *Builder) chain.Batch {
			b.Call = change(b.Call)
			b.Call.ID = NewID()
			return b.End(tga.StatusSuccess)
		})
		offer("effect of a call with another digest", tga.StateChecksumMismatch, func(b *Builder) chain.Batch {
			b.Call = change(b.Call)
			b.Call.Digest[0] ^= 1
			return b.End(tga.StatusSuccess)
		})
		for name, docs := range map[string][]chain.Document{
			"no document":   nil,
			"other bytes":   {{Pointer: tga.PointerResult, Data: []byte(`{"ok":2}`)}},
			"one too many":  {{Pointer: tga.PointerResult, Data: []byte(`{"ok":1}`)}, {Pointer: tga.PointerEvidence, Data: []byte("x")}},
			"other pointer": {{Pointer: tga.PointerEvidence, Data: []byte(`{"ok":1}`)}},
		} {
			offer("effect with "+name, tga.StateChecksumMismatch, func(b *Builder) chain.Batch {
				batch := b.End(tga.StatusSuccess)
				batch.Artifacts[0].Documents = docs
				return batch
			})
		}
		tampered := *b
		batch := tampered.End(tga.StatusSuccess)
		a := change(batch.Artifacts[0].Artifact)
		a.Canonical = slices.Clone(a.Canonical)
		a.Canonical[len(a.Canonical)-3] ^= 1
		batch.Artifacts[0].Artifact = a
		w.refused("artifact whose bytes were changed", tga.StateChecksumMismatch, lease, batch)
		w.append(b, b.End(tga.StatusSuccess))
	}},
}
