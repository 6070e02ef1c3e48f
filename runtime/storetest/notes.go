package storetest

import (
	"bytes"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func note(kind tga.NoteKind, body []byte) chain.NewNote {
	return chain.NewNote{Kind: kind, Who: "test", Body: body}
}

// mark returns a batch with the note of attempt n under the lease. If permit is not zero,
// the attempt is a remote executor's.
func mark(lease chain.Lease, n uint32, permit tga.Digest) chain.Batch {
	return chain.Batch{Notes: []chain.NewNote{note(tga.NoteAttempt, ledger.Mark{Attempt: n, Epoch: uint64(lease.Epoch), Permit: permit}.Body())}}
}

func notSent(n uint32) chain.Batch {
	return chain.Batch{Notes: []chain.NewNote{note(tga.NoteNotSent, ledger.NotSent{Attempt: n, Reason: "dial refused"}.Body())}}
}

var noteClaims = []claim{
	{"NotesAreChained", func(w *world) {
		b := w.begun("")
		var prev tga.Digest
		for i := range uint32(3) {
			done := w.append(b, chain.Batch{Notes: []chain.NewNote{note(tga.NoteLateReply, []byte(`{"b":1, "a":2}`))}})
			if len(done.Notes) != 1 || len(done.Entries) != 0 {
				w.Fatalf("got %+v", done)
			}
			n := done.Notes[0]
			if n.Number != i+1 || n.Prev != prev || n.HeadDigest != done.Head.Digest || n.TraceID != b.TraceID || n.Who != "test" ||
				string(n.Body) != `{"a":2,"b":1}` || n.Digest != tga.Sum(n.AppendPreimage(nil)) {
				w.Errorf("note %d: %+v", i+1, n)
			}
			prev = n.Digest
			if got := w.notes(b.TraceID); len(got) != int(i+1) || !bytes.Equal(got[i].AppendCanonical(nil), n.AppendCanonical(nil)) {
				w.Errorf("read back %+v", got)
			}
		}
		t, err := w.s.Load(bg, b.TraceID)
		if err != nil || len(t.Notes) != 3 || t.NoteHead.Digest != prev {
			w.Errorf("load: %+v, %v", t, err)
		}
	}},
	{"NoteThatCannotBeReadBackIsRefused", func(w *world) {
		b := w.begun("")
		for _, c := range []struct {
			name string
			note chain.NewNote
			code tga.Code
		}{
			{"body that is no object", note(tga.NoteLateReply, []byte(`[]`)), tga.SchemaViolation},
			{"body with a repeated member", note(tga.NoteLateReply, []byte(`{"a":1,"a":2}`)), tga.ValidationError},
			{"no body", note(tga.NoteLateReply, nil), tga.ValidationError},
			{"no kind", note("", []byte(`{}`)), tga.SchemaViolation},
			{"kind in capitals", note("Vote", []byte(`{}`)), tga.SchemaViolation},
			{"nobody", chain.NewNote{Kind: tga.NoteLateReply, Body: []byte(`{}`)}, tga.SchemaViolation},
			{"a name of 256 characters", chain.NewNote{Kind: tga.NoteLateReply, Who: strings.Repeat("é", 256), Body: []byte(`{}`)}, tga.SchemaViolation},
		} {
			w.refused(c.name, c.code, w.lease(b), chain.Batch{Notes: []chain.NewNote{c.note}})
		}
		w.append(b, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: strings.Repeat("é", 255), Body: []byte(`{}`)}}})
	}},
	{"NotesFollowTheArtifactsOfTheirBatch", func(w *world) {
		b := New(w)
		batch := b.Begin(tga.AttemptApart)
		batch.Notes = mark(w.lease(b), 1, tga.Digest{}).Notes
		done := w.append(b, batch)
		if done.Notes[0].HeadDigest != done.Head.Digest || done.Head.Seq != 3 {
			w.Errorf("got %+v", done)
		}
		if r := w.record(w.know(b)); r.Attempts.Count != 1 || !r.InDoubt() {
			w.Errorf("record %+v", r)
		}
	}},
	{"AttemptsAreNumberedInTheRecord", func(w *world) {
		b := w.begun(tga.AttemptApart)
		key, lease := w.know(b), w.lease(b)
		count := func(attempts, unsent uint32, doubt bool) {
			w.Helper()
			if r := w.record(key); r.Attempts.Count != attempts || r.Attempts.Unsent != unsent || r.InDoubt() != doubt {
				w.Errorf("record %+v, want %d attempts, %d unsent, in doubt %v", r, attempts, unsent, doubt)
			}
		}
		count(0, 0, false)
		w.refused("attempt 2 of none", tga.StateSequenceGap, lease, mark(lease, 2, tga.Digest{}))
		w.refused("attempt 1 was not made", tga.StateInvalidTransition, lease, notSent(1))
		w.append(b, mark(lease, 1, tga.Digest{}))
		count(1, 0, true)
		w.refused("attempt 1 again", tga.StateSequenceGap, lease, mark(lease, 1, tga.Digest{}))
		w.append(b, notSent(1))
		count(1, 1, false)
		w.refused("not sent twice", tga.StateInvalidTransition, lease, notSent(1))
		w.append(b, mark(lease, 2, tga.Digest{}))
		count(2, 1, true)
		permit := tga.Sum([]byte("permit"))
		w.append(b, mark(lease, 3, permit))
		if r := w.record(key); !r.Attempts.External || r.Attempts.Permit != permit {
			w.Errorf("record %+v", r)
		}
		w.refused("local attempt after a remote executor's", tga.StateInvalidTransition, lease, mark(lease, 4, tga.Digest{}))
		w.append(b, b.End(tga.StatusSuccess))
		w.refused("attempt after the effect", tga.StateInvalidTransition, lease, mark(lease, 4, permit))
		w.append(b, chain.Batch{Notes: []chain.NewNote{note(tga.NoteLateReply, []byte(`{}`))}})
		count(3, 1, false)
	}},
	{"AttemptIsOfTheCurrentEpoch", func(w *world) {
		b := w.begun("")
		lease := w.lease(b)
		old := lease
		old.Epoch--
		w.refused("an earlier epoch", tga.StateConcurrentExecution, lease, mark(old, 2, tga.Digest{}))
		w.append(b, mark(lease, 2, tga.Digest{}))
		if r := w.record(w.know(b)); r.Attempts.Epoch != uint64(lease.Epoch) || r.Attempts.Count != 2 {
			w.Errorf("record %+v", r)
		}
	}},
	{"AttemptNeedsACall", func(w *world) {
		b := New(w)
		w.append(b, b.Approved())
		w.refused("attempt", tga.StateInvalidTransition, w.lease(b), mark(w.lease(b), 1, tga.Digest{}))
		w.refused("not sent", tga.StateInvalidTransition, w.lease(b), notSent(1))
	}},
}
