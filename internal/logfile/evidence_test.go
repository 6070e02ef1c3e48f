package logfile_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/logfile"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// evidence is a file that proves traces, each with one append.
func evidence(t *testing.T, all []*chaintest.Trace) []byte {
	t.Helper()
	key, err := checkpoint.NewSigner("tgad/test")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := tree.Open(vfs.NewMem(), "/s", tga.ID{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var leaves []tree.Leaf
	for i, x := range all {
		l := tree.Leaf{Index: uint64(i) + 1, TraceID: x.ID, FirstSeq: 1, Entries: uint16(len(x.Entries)), HeadDigest: x.Entries[len(x.Entries)-1].Digest}
		if n := len(x.Notes); n > 0 {
			l.FirstNote, l.Notes, l.NoteDigest = 1, uint16(n), x.Notes[n-1].Digest
		}
		if err := tr.Append(&l); err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, l)
	}
	size := int64(len(leaves))
	head, err := tr.Head(size)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := checkpoint.Checkpoint{Origin: "tgad/test", Size: size, Head: head}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := bundle.Write(&b, bundle.Content{Key: key.Public, Checkpoint: signed, From: 1, To: uint64(size), Leaves: leaves, Traces: func(w io.Writer, ids []tga.ID) error {
		for _, x := range all {
			if err := ndjson.Write(w, x.ID, x.AllEntries(), x.AllNotes()); err != nil {
				return err
			}
		}
		return nil
	}}, tr); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestEvidenceIsShownWithWhatItProves: its traces are shown, and sentences say what is proved and what is
// not. A proof that does not hold is shown as a fault.
func TestEvidenceIsShownWithWhatItProves(t *testing.T) {
	all := made(2)
	data := evidence(t, all)
	f := open(t, write(t, data))
	if f.Kind != logfile.Evidence || f.Fault != nil {
		t.Fatal(f.Kind, f.Fault)
	}
	if got := strings.Join(f.Proved, " "); !strings.Contains(got, "3 appends of 3 traces are in the checkpoint") {
		t.Errorf("proved: %s", got)
	}
	if got := strings.Join(f.NotProved, " "); !strings.Contains(got, "Whose key that is") {
		t.Errorf("not proved: %s", got)
	}
	for _, tr := range all {
		whole(t, f, tr)
	}
	proof := bytes.Index(data, []byte(`"proof":["`)) + 12
	f = open(t, write(t, flip(data, proof)))
	if tga.CodeOf(f.Fault) != tga.StateChecksumMismatch || len(f.Proved) != 0 {
		t.Errorf("a wrong proof: %v, proved %v", f.Fault, f.Proved)
	}
	end := bytes.LastIndex(data, []byte(`{"kind":"end"`))
	f = open(t, write(t, data[:end]))
	if list := ids(t, f, wire.TracesQuery{All: true}); f.Fault == nil || len(list) != 3 {
		t.Errorf("without its end: %d traces, %v", len(list), f.Fault)
	}
	for _, tr := range all {
		whole(t, f, tr)
	}
}
