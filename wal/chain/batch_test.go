package chain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestBatchesAtTheirLimits: what one append may commit, at each limit and one past it.
func TestBatchesAtTheirLimits(t *testing.T) {
	a := chaintest.Artifacts(chaintest.Options{})[0]
	chunk := make([]byte, chain.MaxBatch/16) // shared: 16 of them are the limit
	filled := func(over int) (list []chain.Document) {
		for range 15 {
			list = append(list, chain.Document{Pointer: "/a", Data: chunk})
		}
		return append(list, chain.Document{Pointer: "/a", Data: chunk[:len(chunk)-len(a.Canonical)+over]})
	}
	documents := func(n int) []chain.Document { return make([]chain.Document, n) }
	pointer := func(n int) []chain.Document { return []chain.Document{{Pointer: strings.Repeat("p", n)}} }
	of := func(a *tga.Artifact, d []chain.Document) chain.Batch {
		return chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a, Documents: d}}}
	}
	for name, x := range map[string]struct {
		b    chain.Batch
		want tga.Code
	}{
		"nothing":             {chain.Batch{}, tga.ValidationError},
		"a note alone":        {chain.Batch{Notes: make([]chain.NewNote, 1)}, ""},
		"an attachment alone": {chain.Batch{Attachments: make([]chain.Attachment, 1)}, ""},
		"an artifact alone":   {of(a, nil), ""},
		"no artifact":         {of(nil, nil), tga.ValidationError},
		"no type":             {of(&tga.Artifact{}, nil), tga.ValidationError},
		"a bare request":      {of(&tga.Artifact{Type: tga.RequestType}, nil), tga.ValidationError},
		"a bare decision":     {of(&tga.Artifact{Type: tga.DecisionType}, nil), tga.ValidationError},
		"a bare call":         {of(&tga.Artifact{Type: tga.CallType}, nil), tga.ValidationError},
		"a bare effect":       {of(&tga.Artifact{Type: tga.EffectType}, nil), tga.ValidationError},
		"16 documents":        {of(a, documents(16)), ""},
		"17 documents":        {of(a, documents(17)), tga.LimitExceeded},
		"a pointer of 255":    {of(a, pointer(255)), ""},
		"a pointer of 256":    {of(a, pointer(256)), tga.LimitExceeded},
		"the most bytes":      {of(a, filled(0)), ""},
		"a byte more":         {of(a, filled(1)), tga.LimitExceeded},
	} {
		if err := x.b.Check(chaintest.ID(0, 0)); tga.CodeOf(err) != x.want {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// TestReplayedIsWhatTheTraceHas tries every run of entries of a trace, and batches that differ from
// such a run in a single point.
func TestReplayedIsWhatTheTraceHas(t *testing.T) {
	made := chaintest.New(chaintest.Options{})
	trace, other := made.State, chaintest.Artifacts(chaintest.Options{Seed: 9})[0]
	batch := func(from, to int) (b chain.Batch) {
		for _, e := range made.Entries[from:to] {
			b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: e.Artifact})
		}
		return b
	}
	for from := range made.Entries {
		for to := from + 1; to <= len(made.Entries); to++ {
			b := batch(from, to)
			last := made.Entries[to-1]
			got, ok := chain.Replayed(trace, b)
			if !ok || !got.Replayed || got.Head != (chain.Head{Seq: last.Seq, Digest: last.Digest, State: last.To}) || len(got.Entries) != to-from || got.Entries[0].Seq != uint64(from)+1 {
				t.Errorf("entries %d to %d: %+v, %v", from+1, to, got, ok)
			}
			for seq := range uint64(len(made.Entries) + 1) {
				b.Expect = &chain.Head{Seq: seq}
				if _, ok := chain.Replayed(trace, b); ok != (seq == uint64(from)) {
					t.Errorf("entries %d to %d after %d: %v", from+1, to, seq, ok)
				}
			}
			b = batch(from, to)
			own := last.LogEntry
			b.Artifacts[to-from-1].Entry = &own
			if _, ok := chain.Replayed(trace, b); !ok {
				t.Errorf("entries %d to %d with the caller's own: no", from+1, to)
			}
			own.Digest[0] ^= 1
			if _, ok := chain.Replayed(trace, b); ok {
				t.Errorf("entries %d to %d with another entry: yes", from+1, to)
			}
			b = batch(from, to)
			b.Artifacts[to-from-1].Artifact = other
			if _, ok := chain.Replayed(trace, b); ok {
				t.Errorf("entries %d to %d with another artifact: yes", from+1, to)
			}
			b = batch(from, to)
			b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: other})
			if _, ok := chain.Replayed(trace, b); ok {
				t.Errorf("entries %d to %d and one more: yes", from+1, to)
			}
		}
	}
	if _, ok := chain.Replayed(trace, chain.Batch{}); ok {
		t.Error("nothing is replayed")
	}
	if _, ok := chain.Replayed(chain.NewTrace(made.ID), batch(0, 1)); ok {
		t.Error("an empty trace has an entry")
	}
}

func TestExpectedHead(t *testing.T) {
	trace := chaintest.New(chaintest.Options{}).State
	if err := errors.Join(trace.Expect(nil), trace.Expect(&chain.Head{Seq: 4, Digest: trace.Head.Digest})); err != nil {
		t.Error(err)
	}
	for seq := range uint64(6) {
		err := trace.Expect(&chain.Head{Seq: seq, Digest: tga.Digest{1}})
		var e *tga.Error
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		switch {
		case seq == 4 && (e.Code != tga.StateChecksumMismatch || e.WantDigest != trace.Head.Digest || e.GotDigest != tga.Digest{1}):
			t.Errorf("another digest: %+v", e)
		case seq != 4 && (e.Code != tga.StateSequenceGap || e.ExpectedSeq != 5 || e.ActualSeq != seq+1):
			t.Errorf("after %d: %+v", seq, e)
		}
	}
}

// TestGivenEntriesAreNotAhead: a caller's entry may be a minute ahead of the store's clock,
// and a millisecond more is refused.
func TestGivenEntriesAreNotAhead(t *testing.T) {
	made := chaintest.New(chaintest.Options{Entries: 1})
	for ahead, taken := range map[tga.Millis]bool{-1: true, 0: true, 60_000: true, 60_001: false} {
		e, trace := made.Entries[0], chain.NewTrace(made.ID)
		err := trace.ApplyGiven(&e, e.TS-ahead)
		if (err == nil) != taken || !taken && !errors.Is(err, tga.ValidationError) || (trace.Head.Seq == 1) != taken {
			t.Errorf("%d ms ahead: %v, head %d", ahead, err, trace.Head.Seq)
		}
	}
	e, trace := made.Entries[0], chain.NewTrace(made.ID)
	e.Seq = 2
	if err := trace.ApplyGiven(&e, e.TS); !errors.Is(err, tga.StateSequenceGap) {
		t.Error(err)
	}
}

// TestNotesAreReadBackBeforeTheyCount: a note that no reader would accept is an error of the
// caller, and the trace is unchanged.
func TestNotesAreReadBackBeforeTheyCount(t *testing.T) {
	trace := chaintest.New(chaintest.Options{}).State
	good := chain.NewNote{Kind: tga.NoteRetry, Who: "ann", Body: []byte(`{}`)}
	for name, bad := range map[string]chain.NewNote{
		"nobody": {Kind: good.Kind, Body: good.Body}, "no object": {Kind: good.Kind, Who: "ann", Body: []byte(`[]`)},
		"no kind": {Who: "ann", Body: good.Body},
	} {
		_, err := trace.AppendNote(bad, chaintest.Start)
		var e *tga.Error
		if !errors.As(err, &e) || e.Where == "stored" || trace.NoteHead.Number != 0 {
			t.Errorf("%s: %+v, notes %d", name, err, trace.NoteHead.Number)
		}
	}
	n, err := trace.AppendNote(good, chaintest.Start)
	if err != nil || n.Number != 1 || trace.NoteHead.Number != 1 || trace.NoteHead.Digest != n.Digest {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestDocumentsAreThoseOfTheEffect: a trace has the documents of its effect, and none before.
func TestDocumentsAreThoseOfTheEffect(t *testing.T) {
	made := chaintest.New(chaintest.Options{Documents: []chain.Document{document("/result", 5)}})
	trace := chain.NewTrace(made.ID)
	for i, e := range made.Entries {
		if err := trace.Apply(&e); err != nil {
			t.Fatal(err)
		}
		if want := i / 3; len(trace.Documents) != want {
			t.Errorf("after entry %d: %d documents, want %d", i+1, len(trace.Documents), want)
		}
	}
}

// TestReplayErrorsNameEntryOrNote: the message says whether an entry or a note is at fault.
func TestReplayErrorsNameEntryOrNote(t *testing.T) {
	made := chaintest.New(chaintest.Options{Notes: 2})
	made.Entries[1].Prev[0] ^= 1
	_, err := chain.Replay(made.ID, made.AllEntries(), made.AllNotes())
	if err == nil || !strings.Contains(err.Error(), ", entry 2: ") {
		t.Error(err)
	}
	made = chaintest.New(chaintest.Options{Notes: 2})
	made.Notes[1].Prev[0] ^= 1
	_, err = chain.Replay(made.ID, made.AllEntries(), made.AllNotes())
	if err == nil || !strings.Contains(err.Error(), ", note 2: ") {
		t.Error(err)
	}
}
