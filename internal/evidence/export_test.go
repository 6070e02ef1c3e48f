package evidence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func TestReceipts(t *testing.T) {
	s := newStand(t)
	s.open()
	defer s.close()
	var ids []tga.ID
	for seed := range uint64(30) {
		ids = append(ids, s.append(seed+1))
	}
	c, _ := s.covered()
	s.options.Every = time.Hour
	for n, id := range ids {
		r, err := s.k.Receipt(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var entries, notes int
		for i := range r.Leaves {
			l := &r.Leaves[i]
			if l.TraceID != id || tlog.CheckRecord(l.Proof, c.Size, c.Head, int64(l.Index)-1, l.Hash()) != nil {
				t.Fatalf("trace %d: leaf %d is not proved", n, l.Index)
			}
			entries, notes = entries+int(l.Entries), notes+int(l.Notes)
		}
		if entries != 4 || notes != 2 || len(r.Leaves) != 3 || r.Pending() != 0 || r.Checkpoint == nil {
			t.Fatalf("trace %d: %+v", n, r)
		}
	}
	if _, err := s.k.Receipt(t.Context(), chaintest.ID(1000, 0)); tga.CodeOf(err) != tga.NotFound {
		t.Fatalf("a trace that is not there: %v", err)
	}
}

// growing is a store in which a trace grows while its receipt is made.
type growing struct {
	*engine.DB
	grow func()
}

func (g *growing) Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[chain.Entry, error] {
	if grow := g.grow; grow != nil {
		g.grow = nil
		grow()
	}
	return g.DB.Entries(ctx, id, after)
}

// TestReceiptOfATraceThatGrows: a receipt has the appends that the trace had when the receipt was requested,
// also if an entry and a note are appended meanwhile.
func TestReceiptOfATraceThatGrows(t *testing.T) {
	s := newStand(t)
	s.options.Every = time.Hour
	dir := filepath.Join(t.TempDir(), "store")
	db, err := engine.Open(dir, engine.Options{FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	g := &growing{DB: db}
	k, err := evidence.Open(t.Context(), g, dir, s.options)
	if err != nil {
		t.Fatal(err)
	}
	made := chaintest.Options{Seed: 1, Key: "k"}
	id, artifacts := chaintest.ID(1, 0), chaintest.Artifacts(made)
	lease, err := db.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	note := chain.NewNote{Kind: tga.NoteLateReply, Who: "tgad", Body: []byte(`{"attempt":1}`)}
	grow := func(notes []chain.NewNote, artifacts ...*tga.Artifact) {
		b := chain.Batch{Notes: notes}
		for _, a := range artifacts {
			b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a})
		}
		if _, err := db.Append(t.Context(), lease, b); err != nil {
			t.Fatal(err)
		}
	}
	grow(nil, artifacts[:3]...)
	g.grow = func() {
		grow([]chain.NewNote{note})
		grow(nil, artifacts[3])
	}
	for _, leaves := range []int{1, 3} {
		if r, err := k.Receipt(t.Context(), id); err != nil || len(r.Leaves) != leaves {
			t.Errorf("%+v, %v, want %d leaves", r, err, leaves)
		}
	}
	db.Release(lease)
	if err := errors.Join(k.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}

// TestReceiptsAreVerified: the key alone proves a receipt. A receipt with one changed byte is refused or
// says the same. The tests of package verifiers have receipts in which something else is changed.
func TestReceiptsAreVerified(t *testing.T) {
	s := newStand(t)
	s.open()
	defer s.close()
	one := s.append(1)
	s.append(2)
	s.covered()
	s.options.Every = time.Hour
	given, err := s.k.Receipt(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(given.Plain())
	if err != nil {
		t.Fatal(err)
	}
	key := bundle.Trust{Key: given.Key}
	good, err := bundle.VerifyReceipt(raw, key)
	if err != nil || good.Verdict() != bundle.Proved || good.TraceID != one || good.Appends != 3 || good.Entries != 4 || good.Notes != 2 || !bundle.IsReceipt(raw) {
		t.Fatalf("%+v %v", good, err)
	}
	if r, err := bundle.VerifyReceipt(raw, bundle.Trust{}); err != nil || r.Verdict() != bundle.OwnKey {
		t.Errorf("without a key: %+v %v", r, err)
	}
	foreign := newKey(t)
	if _, err := bundle.VerifyReceipt(raw, bundle.Trust{Key: foreign.Public}); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("another key of the same name: %v", err)
	}
	for i := range raw {
		changed := slices.Clone(raw)
		changed[i] ^= 1 << (i % 8)
		r, err := bundle.VerifyReceipt(changed, key)
		if err == nil && (r.TraceID != good.TraceID || r.Head != good.Head || r.Appends != good.Appends || r.Entries != good.Entries || r.Notes != good.Notes || r.Pending != 0 || r.Checkpoint != good.Checkpoint) {
			t.Fatalf("byte %d: %+v", i, r)
		}
	}
}

func TestExports(t *testing.T) {
	s := newStand(t)
	s.open()
	defer s.close()
	ids := []tga.ID{s.append(1)}
	_, old := s.covered()
	for seed := range uint64(8) {
		ids = append(ids, s.append(seed+2))
	}
	state := chaintest.ID(500, 0) // belongs to no trace
	lease, err := s.db.Acquire(t.Context(), state)
	if err == nil {
		_, err = s.db.Append(t.Context(), lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: append(state[:], make([]byte, 8)...), Value: []byte("x")}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.db.Release(lease)
	c, _ := s.covered()
	write := func(w io.Writer, ids []tga.ID) error {
		for _, id := range ids {
			if err := ndjson.Write(w, id, s.db.Entries(t.Context(), id, 0), s.db.Notes(t.Context(), id, 0)); err != nil {
				return err
			}
		}
		return nil
	}
	for name, want := range map[string]evidence.Wanted{
		"one":        {Traces: ids[3:4]},
		"some twice": {Traces: []tga.ID{ids[5], ids[0], ids[5]}},
		"everything": {},
		"grown":      {Traces: ids[1:2], Old: old},
	} {
		var file bytes.Buffer
		if err := s.k.Export(t.Context(), &file, want, write); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		trust := bundle.Trust{Key: s.options.Signer.Public, Old: want.Old}
		r, err := bundle.Verify(&file, trust)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		traces := len(want.Traces)
		switch name {
		case "some twice":
			traces = 2
		case "everything":
			if traces = len(ids); r.From != 1 || r.To != uint64(c.Size) || r.Others != 1 {
				t.Errorf("%s: %+v", name, r)
			}
		case "grown":
			if r.GrewFrom != 4 {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if len(r.Traces) != traces || r.Checkpoint != c {
			t.Errorf("%s: %+v", name, r)
		}
	}
	since := time.Now().Add(time.Hour).UnixMilli()
	if err := s.k.Export(t.Context(), io.Discard, evidence.Wanted{Since: tga.Millis(since)}, write); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("what has not happened: %v", err)
	}
}

// TestRangeHasTracesWhole: the file has a trace that began before the range from its beginning.
func TestRangeHasTracesWhole(t *testing.T) {
	s := newStand(t)
	s.open()
	defer s.close()
	first := s.append(1)
	s.append(2)
	time.Sleep(5 * time.Millisecond)
	since := tga.MillisOf(time.Now())
	lease, err := s.db.Acquire(t.Context(), first)
	if err == nil {
		_, err = s.db.Append(t.Context(), lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "me", Body: []byte(`{"attempt":2}`)}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.db.Release(lease)
	s.append(3)
	s.covered()
	var file bytes.Buffer
	err = s.k.Export(t.Context(), &file, evidence.Wanted{Since: since}, func(w io.Writer, ids []tga.ID) error {
		for _, id := range ids {
			if err := ndjson.Write(w, id, s.db.Entries(t.Context(), id, 0), s.db.Notes(t.Context(), id, 0)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := bundle.Verify(&file, bundle.Trust{Key: s.options.Signer.Public})
	if err != nil || r.Verdict() != bundle.Proved {
		t.Fatalf("%+v, %v", r, err)
	}
	if r.From != 9 || r.To != 13 || r.Leaves != 5+3 || len(r.Traces) != 2 || r.Traces[0].ID != first || r.Traces[0].CoveredNotes != 3 {
		t.Errorf("%+v", r)
	}
}
