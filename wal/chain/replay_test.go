package chain_test

import (
	"errors"
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var full = chaintest.Options{Key: "order-1", Notes: 3, Documents: []chain.Document{document("/result", 4)}}

func TestReplayIsWhatWasApplied(t *testing.T) {
	tr := chaintest.New(full)
	got, err := chain.Replay(tr.ID, tr.AllEntries(), tr.AllNotes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tr.State, got, equalTraces); diff != "" {
		t.Errorf("(-applied +replayed):\n%s", diff)
	}
	empty, err := chain.Replay(tr.ID, chaintest.Seq2[chain.Entry](nil), nil)
	if err != nil || empty.Head != (chain.Head{}) {
		t.Errorf("empty trace: %+v, %v", empty, err)
	}
}

// change returns a value other than v, of its type.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Array:
		v.Index(v.Len() - 1).SetUint(v.Index(v.Len()-1).Uint() ^ 1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() ^ 1)
	case reflect.Int64:
		v.SetInt(v.Int() ^ 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		b := slices.Clone(v.Bytes())
		b[len(b)-2] ^= 1
		v.SetBytes(b)
	default:
		t.Fatalf("field of kind %s", v.Kind())
	}
}

// TestReplayNamesTheBadEntry changes every field of every entry, as stored and sealed
// anew, and takes out, doubles and swaps entries. Replay must say which place of the
// log is wrong. An entry sealed anew is good in itself unless the changed field is a
// link: then it is the next entry that finds its predecessor changed.
func TestReplayNamesTheBadEntry(t *testing.T) {
	whole := chaintest.New(full)
	replay := func(entries []chain.Entry) *tga.Error {
		t.Helper()
		_, err := chain.Replay(whole.ID, chaintest.Seq2(entries), whole.AllNotes())
		var te *tga.Error
		if !errors.As(err, &te) {
			t.Fatalf("replay: %v", err)
		}
		if te.TraceID != whole.ID || te.Where != "stored" {
			t.Errorf("error names trace %s, where %q: %v", te.TraceID, te.Where, err)
		}
		return te
	}
	for i := range whole.Entries {
		fields := reflect.TypeFor[tga.LogEntry]()
		for f := range fields.NumField() {
			entries := slices.Clone(whole.Entries)
			change(t, reflect.ValueOf(&entries[i].LogEntry).Elem().Field(f))
			name := fields.Field(f).Name
			if err := replay(entries); err.Seq != uint64(i+1) {
				t.Errorf("entry %d, %s changed: replay names %d: %v", i+1, name, err.Seq, err)
			}
			if name == "Digest" {
				continue // sealed anew it is the old one
			}
			entries[i] = resealed(entries[i], func(*chain.Entry) {})
			err := replay(entries)
			place := uint64(i + 1)
			if name == "TS" {
				place++ // no rule binds a ts
			}
			if name == "TS" && i == 3 {
				// Nothing follows the last entry but the notes, and they name it.
				if err.Note != 1 {
					t.Errorf("entry 4, TS sealed anew: %v", err)
				}
				continue
			}
			if err.Seq != place {
				t.Errorf("entry %d, %s sealed anew: replay names %d, want %d: %v", i+1, name, err.Seq, place, err)
			}
		}
		for b := range whole.Entries[i].Preimage {
			entries := slices.Clone(whole.Entries)
			entries[i].Preimage = slices.Clone(entries[i].Preimage)
			entries[i].Preimage[b] ^= 1
			if err := replay(entries); err.Seq != uint64(i+1) || err.Code != tga.StateChecksumMismatch {
				t.Fatalf("entry %d, byte %d: %v", i+1, b, err)
			}
		}
		for b := range whole.Entries[i].Artifact.Canonical {
			entries := slices.Clone(whole.Entries)
			a := *entries[i].Artifact
			a.Canonical = slices.Clone(a.Canonical)
			a.Canonical[b] ^= 1
			entries[i].Artifact = &a
			err := replay(entries)
			if err.Seq != uint64(i+1) || err.Code != tga.StateChecksumMismatch {
				t.Fatalf("entry %d, artifact byte %d: %v", i+1, b, err)
			}
		}
		gone := slices.Delete(slices.Clone(whole.Entries), i, i+1)
		if err := replay(gone); i < 3 && (err.Seq != uint64(i+1) || err.Code != tga.StateSequenceGap) {
			t.Errorf("entry %d gone: %v", i+1, err)
		} else if i == 3 && err.Note != 1 {
			t.Errorf("last entry gone: %v", err)
		}
		twice := slices.Insert(slices.Clone(whole.Entries), i, whole.Entries[i])
		if err := replay(twice); err.Seq != uint64(i+2) || err.Code != tga.StateSequenceGap || err.ActualSeq != uint64(i+1) {
			t.Errorf("entry %d twice: %v", i+1, err)
		}
	}
	other := chaintest.New(chaintest.Options{Seed: 5})
	mixed := slices.Clone(whole.Entries)
	mixed[0] = other.Entries[0]
	if err := replay(mixed); err.Seq != 1 {
		t.Errorf("genesis of another trace: %v", err)
	}
}

func TestReplayNamesTheBadNote(t *testing.T) {
	whole := chaintest.New(full)
	early := chaintest.New(chaintest.Options{Key: "order-1", Notes: 3, Entries: 3})
	replay := func(entries []chain.Entry, notes []tga.Note) *tga.Error {
		t.Helper()
		_, err := chain.Replay(whole.ID, chaintest.Seq2(entries), chaintest.Seq2(notes))
		var te *tga.Error
		if !errors.As(err, &te) {
			t.Fatalf("replay: %v", err)
		}
		return te
	}
	for i := range whole.Notes {
		fields := reflect.TypeFor[tga.Note]()
		for f := range fields.NumField() {
			notes := slices.Clone(whole.Notes)
			change(t, reflect.ValueOf(&notes[i]).Elem().Field(f))
			if err := replay(whole.Entries, notes); err.Note != uint32(i+1) || err.Seq != 0 {
				t.Errorf("note %d, %s changed: %v", i+1, fields.Field(f).Name, err)
			}
		}
		gone := slices.Delete(slices.Clone(whole.Notes), i, i+1)
		if i < 2 {
			if err := replay(whole.Entries, gone); err.Note != uint32(i+1) || err.Code != tga.StateSequenceGap {
				t.Errorf("note %d gone: %v", i+1, err)
			}
		}
		reseal := slices.Clone(whole.Notes)
		reseal[i].HeadDigest = tga.Sum([]byte("no entry"))
		reseal[i].Seal()
		if err := replay(whole.Entries, reseal); err.Note != uint32(i+1) || err.Code != tga.StateChecksumMismatch {
			t.Errorf("note %d with a head that is no entry: %v", i+1, err)
		}
		reseal[i] = whole.Notes[i]
		reseal[i].TraceID = chaintest.ID(9, 9)
		reseal[i].Seal()
		if err := replay(whole.Entries, reseal); err.Note != uint32(i+1) || err.Code != tga.SchemaViolation {
			t.Errorf("note %d of another trace: %v", i+1, err)
		}
	}
	// The second note says that it was written under an entry before the first's.
	back := slices.Clone(whole.Notes[:2])
	back[1].HeadDigest = whole.Entries[1].Digest
	back[1].Seal()
	if err := replay(whole.Entries, back); err.Note != 2 || err.Code != tga.StateSequenceGap {
		t.Errorf("a note under an earlier head: %v", err)
	}
	// Notes under an entry that the trace has not yet.
	if err := replay(whole.Entries[:3], whole.Notes); err.Note != 1 || err.Code != tga.StateChecksumMismatch {
		t.Errorf("a note under a later head: %v", err)
	}
	if _, err := chain.Replay(whole.ID, chaintest.Seq2(whole.Entries), chaintest.Seq2(early.Notes)); err != nil {
		t.Errorf("notes under an earlier entry, in order: %v", err)
	}
}

func TestNoteNeedsAnEntry(t *testing.T) {
	tr := chain.NewTrace(chaintest.ID(1, 0))
	if _, err := tr.LinkNote(chain.NewNote{Kind: tga.NoteAttempt, Who: "w", Body: []byte(`{}`)}, 0); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("note on an empty trace: %v", err)
	}
	tr = at(t, 1, chaintest.Options{})
	if _, err := tr.LinkNote(chain.NewNote{Kind: tga.NoteAttempt, Who: "w", Body: []byte(`{"a":1,"a":2}`)}, 0); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("note with a body that has no canonical form: %v", err)
	}
	n, err := tr.LinkNote(chain.NewNote{Kind: tga.NoteAttempt, Who: "w", Body: []byte(`{ "b":1.0, "a":2 }`)}, 0)
	if err != nil || string(n.Body) != `{"a":2,"b":1}` {
		t.Errorf("body %s, %v", n.Body, err)
	}
}

// TestReaderErrorIsNoVerdict: an entry that cannot be read now need not be damaged.
func TestReaderErrorIsNoVerdict(t *testing.T) {
	whole := chaintest.New(full)
	cause := errors.New("disk")
	after := func(n int) iter.Seq2[chain.Entry, error] {
		return func(yield func(chain.Entry, error) bool) {
			for _, e := range whole.Entries[:n] {
				if !yield(e, nil) {
					return
				}
			}
			yield(chain.Entry{}, cause)
		}
	}
	_, err := chain.Replay(whole.ID, after(2), nil)
	var te *tga.Error
	if !errors.As(err, &te) || te.Code != tga.StoreUnavailable || te.Seq != 3 || te.Where != "" || !errors.Is(err, cause) {
		t.Errorf("%+v", te)
	}
}
