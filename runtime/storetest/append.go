package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var appendClaims = []claim{
	{"AppendIsReadBackExactly", func(w *world) {
		b := New(w)
		var all []tga.LogEntry
		for _, batch := range []chain.Batch{Batch(b.MintRequest()), Batch(b.MintDecision(tga.Approve)), Batch(b.MintCall("")), b.End(tga.StatusSuccess)} {
			done := w.append(b, batch)
			all = append(all, done.Entries...)
			last := all[len(all)-1]
			if len(done.Entries) != 1 || done.Replayed || done.Head != (chain.Head{Seq: last.Seq, Digest: last.Digest, State: last.To}) {
				w.Errorf("append said %+v", done)
			}
		}
		entries := w.entries(b.TraceID)
		if len(entries) != 4 {
			w.Fatalf("%d entries, want 4", len(entries))
		}
		var prev tga.Digest
		for i, a := range []*tga.Artifact{b.Request, b.Decision, b.Call, b.Effect} {
			e := entries[i]
			switch {
			case e.LogEntry != all[i]:
				w.Errorf("entry %d is %+v, append said %+v", i+1, e.LogEntry, all[i])
			case e.Seq != uint64(i+1) || e.Prev != prev || e.Digest != tga.Sum(e.Preimage) || !bytes.Equal(e.Preimage, e.AppendPreimage(nil)):
				w.Errorf("entry %d does not follow: %+v", i+1, e.LogEntry)
			case e.Artifact == nil || !bytes.Equal(e.Artifact.Canonical, a.Canonical) || e.Artifact.Digest != a.Digest:
				w.Errorf("entry %d has another artifact", i+1)
			case e.Epoch != w.lease(b).Epoch || e.Committed == 0:
				w.Errorf("entry %d: epoch %x, committed %d", i+1, e.Epoch, e.Committed)
			}
			prev = e.Digest
		}
		if d := entries[3].Documents; len(d) != 1 || string(d[0].Data) != `{"ok":1}` || d[0].Pointer != tga.PointerResult {
			w.Errorf("documents %+v", d)
		}
		t, err := w.s.Load(bg, b.TraceID)
		if err != nil || t.Head.Seq != 4 || t.Head.State != tga.Completed || t.Head.Digest != prev || t.Effect == nil || len(t.Documents) != 1 {
			w.Errorf("load: %+v, %v", t, err)
		}
	}},
	{"ManyArtifactsAreOneChainedBatch", func(w *world) {
		b := New(w)
		done := w.append(b, b.Begin(""))
		if len(done.Entries) != 3 || done.Head.Seq != 3 || done.Head.State != tga.Executing {
			w.Errorf("got %+v", done)
		}
		for i, e := range w.entries(b.TraceID) {
			if e.LogEntry != done.Entries[i] {
				w.Errorf("entry %d is %+v, append said %+v", i+1, e.LogEntry, done.Entries[i])
			}
		}
		denied := New(w)
		if done := w.append(denied, Batch(denied.MintRequest(), denied.MintDecision(tga.Deny))); done.Head.State != tga.Denied {
			w.Errorf("got %+v", done)
		}
	}},
	{"LargeAnswersAreKeptByteForByte", func(w *world) {
		for _, size := range []int{0, 1, chain.MaxInline - 1, chain.MaxInline, chain.MaxInline + 1, 5<<20 + 3} {
			b := New(w)
			b.Proposal.Args = fmt.Appendf(nil, `{"text":%q}`, bytes.Repeat([]byte("a"), size))
			w.append(b, b.Begin(""))
			answer := make([]byte, size)
			for i := range answer {
				answer[i] = byte(i * 7) // no JSON, no UTF-8
			}
			w.append(b, chain.Batch{Artifacts: []chain.NewArtifact{b.MintEffect(tga.StatusSuccess, "", answer, nil)}})
			entries := w.entries(b.TraceID)
			if got := entries[3].Documents; len(got) != 1 || !bytes.Equal(got[0].Data, answer) {
				w.Errorf("answer of %d bytes is not what was appended", size)
			}
			if !bytes.Equal(entries[0].Artifact.Canonical, b.Request.Canonical) || !bytes.Equal(entries[2].Artifact.Canonical, b.Call.Canonical) {
				w.Errorf("artifact with %d bytes of arguments is not what was appended", size)
			}
			w.release(b)
		}
	}},
	{"EntriesAndNotesStartAfterANumber", func(w *world) {
		b := w.begun("")
		w.append(b, b.End(tga.StatusSuccess))
		for range 3 {
			w.append(b, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}})
		}
		for after := range uint64(6) {
			var got []uint64
			for e := range w.s.Entries(bg, b.TraceID, after) {
				got = append(got, e.Seq)
			}
			if want := slices.Clone([]uint64{1, 2, 3, 4}[min(after, 4):]); !slices.Equal(got, want) {
				w.Errorf("entries after %d: %v, want %v", after, got, want)
			}
			var notes []uint32
			for n := range w.s.Notes(bg, b.TraceID, uint32(after)) {
				notes = append(notes, n.Number)
			}
			if want := slices.Clone([]uint32{1, 2, 3}[min(after, 3):]); !slices.Equal(notes, want) {
				w.Errorf("notes after %d: %v, want %v", after, notes, want)
			}
		}
		for range w.s.Entries(bg, b.TraceID, 0) {
			break // a reader may stop
		}
	}},
	{"UnknownTraceHasNothing", func(w *world) {
		b := New(w)
		w.know(b)
		w.unchanged("load", tga.NotFound, func() error { _, err := w.s.Load(bg, b.TraceID); return err })
		w.unchanged("checkpoint", tga.NotFound, func() error { _, err := w.s.WriteCheckpoint(bg, w.lease(b)); return err })
		w.refused("note", tga.NotFound, w.lease(b), chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}})
		if s := w.dump(); s != fmt.Sprintf("trace %v\n", b.TraceID) {
			w.Errorf("the empty store has %s", s)
		}
	}},
	{"ReplayedAppendWritesNothing", func(w *world) {
		b := New(w)
		first := b.Begin("")
		done := w.append(b, first)
		ended := b.End(tga.StatusSuccess)
		w.append(b, ended)
		stale := w.lease(b)
		w.release(b)
		before := w.dump()
		own := slices.Clone(first.Artifacts)
		for i := range own {
			own[i].Entry = &done.Entries[i]
		}
		for name, batch := range map[string]chain.Batch{
			"whole":            first,
			"one":              Batch(b.Decision),
			"effect":           ended,
			"head expected":    {Expect: &chain.Head{Seq: 2, Digest: done.Entries[1].Digest, State: tga.Authorized}, Artifacts: Batch(b.Call).Artifacts},
			"caller's entries": {Artifacts: own},
			"across batches":   {Artifacts: append(slices.Clone(first.Artifacts), ended.Artifacts...)},
		} {
			// The store checks for a replay first, even under a lease that is no longer current:
			// a caller that lost the answer has often lost the lease too.
			got, err := w.s.Append(bg, stale, batch)
			if err != nil || !got.Replayed || len(got.Entries) != len(batch.Artifacts) {
				w.Errorf("%s: %+v, %v", name, got, err)
				continue
			}
			for i, a := range batch.Artifacts {
				if got.Entries[i].ArtifactDigest != a.Artifact.Digest {
					w.Errorf("%s: entry %d is another", name, i)
				}
			}
		}
		if after := w.dump(); after != before {
			w.Errorf("a replayed append changed the store:\n%s\n%s", before, after)
		}
		other := done.Entries[1]
		other.TS++
		other.Seal()
		fresh := w.lease(b)
		w.refused("other entry around the same artifact", tga.StateSequenceGap, fresh, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: b.Decision, Entry: &other}}})
		w.refused("a part that is there and a part that is not", tga.StateInvalidTransition, fresh, Batch(b.Request, b.MintDecision(tga.Deny)))
	}},
	{"BatchIsAllOrNothing", func(w *world) {
		b := New(w)
		batch := b.Begin("")
		bad := *b.Call
		bad.Digest[0] ^= 1
		batch.Artifacts[2].Artifact = &bad
		batch.Attachments = []chain.Attachment{{Kind: chain.AttachBlob, Key: bytes.Repeat([]byte{1}, 32), Value: []byte("x")}}
		w.refused("third of three", tga.StateChecksumMismatch, w.lease(b), batch)
		w.refused("note after artifacts", tga.StateInvalidTransition, w.lease(b), chain.Batch{
			Artifacts: b.Begin("").Artifacts,
			Notes:     []chain.NewNote{{Kind: tga.NoteNotSent, Who: "test", Body: []byte(`{"attempt":2,"reason":"x"}`)}},
		})
		w.append(b, b.Begin(""))
	}},
	{"AppendOutlivesItsContext", func(w *world) {
		// If the context has ended, the store may refuse the append, but must not make half of it.
		for range 20 {
			b := New(w)
			ctx, cancel := contextEnding(time.Microsecond)
			_, err := w.s.Append(ctx, w.lease(b), b.Begin(""))
			cancel()
			if n := len(w.entries(b.TraceID)); (err == nil) != (n == 3) || n != 0 && n != 3 {
				w.Errorf("%d entries, %v", n, err)
			}
		}
	}},
}
