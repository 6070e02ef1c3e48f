package bundle

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	fnote "github.com/transparency-dev/formats/note"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
)

const origin = "tgad/test"

// stand is a store of a few traces: each append has one entry, or one note.
type stand struct {
	t      *testing.T
	key    checkpoint.Signer
	traces []*chaintest.Trace
	leaves []tree.Leaf
	tree   *tree.Tree
}

func newStand(t *testing.T, traces int) *stand {
	t.Helper()
	s := &stand{t: t}
	var err error
	if s.key, err = checkpoint.NewSigner(origin); err != nil {
		t.Fatal(err)
	}
	if s.tree, err = tree.Open(vfs.NewMem(), "/s", tga.ID{1}, nil); err != nil {
		t.Fatal(err)
	}
	for n := range traces {
		s.traces = append(s.traces, chaintest.New(chaintest.Options{Seed: uint64(n) + 1, Notes: 2}))
	}
	for round := 0; ; round++ { // the appends of the traces alternate
		any := false
		for _, tr := range s.traces {
			if l, ok := nth(tr, round); ok {
				any = true
				l.Index = uint64(len(s.leaves)) + 1
				s.leaves = append(s.leaves, l)
				if err := s.tree.Append(&l); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !any {
			return s
		}
	}
}

// nth returns the leaf of a trace's n-th append.
func nth(tr *chaintest.Trace, n int) (tree.Leaf, bool) {
	entries, notes := tr.Entries, tr.Notes
	id := entries[0].TraceID
	switch {
	case n < len(entries):
		return tree.Leaf{TraceID: id, FirstSeq: uint64(n) + 1, Entries: 1, HeadDigest: entries[n].Digest}, true
	case n < len(entries)+len(notes):
		k := n - len(entries)
		return tree.Leaf{TraceID: id, FirstNote: uint32(k) + 1, Notes: 1, HeadDigest: entries[len(entries)-1].Digest, NoteDigest: notes[k].Digest}, true
	}
	return tree.Leaf{}, false
}

func (s *stand) checkpoint(size int64, by ...note.Signer) []byte {
	s.t.Helper()
	head, err := s.tree.Head(size)
	if err != nil {
		s.t.Fatal(err)
	}
	raw, err := checkpoint.Checkpoint{Origin: origin, Size: size, Head: head}.Sign(append([]note.Signer{s.key}, by...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}

func (s *stand) export(w io.Writer, ids []tga.ID) error {
	for _, id := range ids {
		for _, tr := range s.traces {
			if tr.Entries[0].TraceID == id {
				if err := ndjson.Write(w, id, chaintest.Seq2(tr.Entries), chaintest.Seq2(tr.Notes)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// content is the bundle of everything up to a checkpoint over n leaves.
func (s *stand) content(size int64) Content {
	return Content{Key: s.key.Public, Checkpoint: s.checkpoint(size), From: 1, To: uint64(size), Leaves: s.leaves[:size], Traces: s.export}
}

func (s *stand) bundle(c Content) []byte {
	s.t.Helper()
	var b bytes.Buffer
	if err := Write(&b, c, s.tree); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

func (s *stand) verify(b []byte) (*Report, error) {
	return Verify(bytes.NewReader(b), Trust{Key: s.key.Public})
}

func TestBundleIsProved(t *testing.T) {
	s := newStand(t, 3)
	size := s.tree.Size()
	rep, err := s.verify(s.bundle(s.content(size)))
	if err != nil {
		t.Fatal(err)
	}
	if rep.Leaves != len(s.leaves) || len(rep.Traces) != 3 || rep.Checkpoint.Size != size || !rep.KeyGiven {
		t.Fatalf("%+v", rep)
	}
	for _, tr := range rep.Traces {
		if !tr.Covered() || tr.Entries == 0 || tr.Notes != 2 {
			t.Errorf("%+v", tr)
		}
	}
	// Selected traces: the leaves of one trace.
	c := s.content(size)
	c.From, c.To = 0, 0
	c.Leaves = slices.DeleteFunc(slices.Clone(s.leaves), func(l tree.Leaf) bool { return l.TraceID != s.leaves[0].TraceID })
	if rep, err = s.verify(s.bundle(c)); err != nil || len(rep.Traces) != 1 {
		t.Fatalf("one trace: %+v, %v", rep, err)
	}
}

// TestEveryFlipIsFound changes each byte of a bundle. A change that gives no error means nothing to a
// program: it is in the words for people, or in one of two members that no digest covers.
func TestEveryFlipIsFound(t *testing.T) {
	s := newStand(t, 1)
	whole := s.bundle(s.content(s.tree.Size()))
	first := bytes.IndexByte(whole, '\n')
	free := map[int]bool{}
	for i := bytes.Index(whole, []byte(`"about":`)) + 8; i < bytes.Index(whole, []byte(`,"origin"`)); i++ {
		free[i] = true
	}
	// If the reader has the key, the bundle's own statement about its key is not used.
	for i := bytes.Index(whole, []byte(`"key":"`)) + 7; whole[i] != '"'; i++ {
		free[i] = true
	}
	for _, member := range []string{`"committed":"`, `"epoch":"`} {
		for at := first; ; {
			i := bytes.Index(whole[at:], []byte(member))
			if i < 0 {
				break
			}
			for at += i + len(member); whole[at] != '"'; at++ {
				free[at] = true
			}
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x01 << (i % 2 * 5)
		if _, err := s.verify(b); err == nil && !free[i] {
			t.Errorf("byte %d, in %q, changed: verifies", i, whole[max(0, i-30):min(len(whole), i+30)])
		}
	}
	for n := range whole {
		if n == len(whole)-1 {
			continue // the last line may lack its line break
		}
		if _, err := s.verify(whole[:n]); err == nil {
			t.Errorf("cut to %d bytes: verifies", n)
		}
	}
	for _, more := range []string{"x", "\n", `{"kind":"end","traces":0}` + "\n" + `{"kind":"leaf"}`} {
		if _, err := s.verify(append(bytes.Clone(whole), more...)); err == nil {
			t.Errorf("with %q behind: verifies", more)
		}
	}
}

func TestWhatIsLeftOutIsMissed(t *testing.T) {
	s := newStand(t, 3)
	size := s.tree.Size()
	// A line that is missing or repeated, with the counts corrected, so that no count shows it.
	lines := strings.SplitAfter(string(s.bundle(s.content(size))), "\n")
	lines = lines[:len(lines)-1]
	for i, l := range lines[1:] {
		without := slices.Delete(slices.Clone(lines), i+1, i+2)
		if strings.HasPrefix(l, `{"kind":"leaf"`) {
			without[0] = strings.Replace(without[0], fmt.Sprintf(`"leaves":%d`, len(s.leaves)), fmt.Sprintf(`"leaves":%d`, len(s.leaves)-1), 1)
			without[0] = strings.Replace(without[0], fmt.Sprintf(`"from":1,"to":%d`, size), `"from":0,"to":0`, 1)
			if i+1 >= len(lines)-3 {
				continue
			}
		}
		_, err := s.verify([]byte(strings.Join(without, "")))
		if strings.HasPrefix(l, `{"kind":"leaf"`) && err != nil && tga.CodeOf(err) != tga.StateSequenceGap {
			t.Errorf("without line %d, %.60s: %v, want a gap", i+2, l, err)
		}
		if last := strings.HasPrefix(l, `{"kind":"leaf"`) && lastOfTrace(s, i); err == nil && !last {
			t.Errorf("without line %d, %.60s: verifies", i+2, l)
		}
		if _, err := s.verify([]byte(strings.Join(slices.Insert(slices.Clone(lines), i+1, l), ""))); err == nil {
			t.Errorf("line %d twice, %.60s: verifies", i+2, l)
		}
	}
	// In a range, a trace that is left out with all of its leaves: the gap shows it.
	c := s.content(size)
	gone := s.leaves[1].TraceID
	c.Leaves = slices.DeleteFunc(slices.Clone(c.Leaves), func(l tree.Leaf) bool { return l.TraceID == gone })
	if _, err := s.verify(s.bundle(c)); err == nil {
		t.Error("a range without one of its traces verifies")
	}
	// A leaf of the range is left out, and one outside of it keeps the count right.
	of := []int{0, 3, 4, 6, 7}
	c = s.content(size)
	c.From, c.To, c.Leaves = 4, 7, nil
	for _, i := range of {
		c.Leaves = append(c.Leaves, s.leaves[i])
	}
	v := verifier{head: header{From: 4, To: 7}, leaves: c.Leaves}
	if err := v.whole(); tga.CodeOf(err) != tga.StateSequenceGap {
		t.Errorf("leaves %v+1 as the range from 4 to 7: %v", of, err)
	}
	if v.leaves = s.leaves[2:8]; v.whole() != nil {
		t.Error("leaves 3 to 8 are no range from 4 to 7")
	}
	// The end of a trace is cut off: the leaf shows it.
	c = s.content(size)
	c.Traces = func(w io.Writer, ids []tga.ID) error {
		for i, id := range ids {
			tr := s.traces[i]
			notes := tr.Notes
			if i == 0 {
				notes = notes[:1]
			}
			if err := ndjson.Write(w, id, chaintest.Seq2(tr.Entries), chaintest.Seq2(notes)); err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := s.verify(s.bundle(c)); tga.CodeOf(err) != tga.StateSequenceGap {
		t.Errorf("a trace whose end was cut off: %v", err)
	}
	// Another trace under the same id, complete and with a valid chain: its digests are not those of the
	// leaves.
	c.Traces = func(w io.Writer, ids []tga.ID) error {
		for i, id := range ids {
			tr := s.traces[i]
			if i == 0 {
				tr = chaintest.New(chaintest.Options{Seed: 1, Notes: 2, Args: `{"amount":99}`})
			}
			if err := ndjson.Write(w, id, chaintest.Seq2(tr.Entries), chaintest.Seq2(tr.Notes)); err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := s.verify(s.bundle(c)); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a trace that was made anew: %v", err)
	}
}

// lastOfTrace reports whether the line of a leaf, counted from the checkpoint's, is that of the newest
// append of its trace. Without this leaf the end of the trace is not covered, and that is not a fault.
func lastOfTrace(s *stand, line int) bool {
	i := line - 1
	if i < 0 || i >= len(s.leaves) {
		return false
	}
	for _, l := range s.leaves[i+1:] {
		if l.TraceID == s.leaves[i].TraceID {
			return false
		}
	}
	return true
}

func TestReportSaysWhatWasNotChecked(t *testing.T) {
	s := newStand(t, 2)
	size := s.tree.Size()
	said := func(c Content, trust Trust) string {
		rep, err := Verify(bytes.NewReader(s.bundle(c)), trust)
		if err != nil {
			t.Fatal(err)
		}
		proved, open := rep.Words()
		return strings.Join(proved, "\n") + "\n--\n" + strings.Join(open, "\n")
	}
	for _, c := range []struct {
		name  string
		c     Content
		trust Trust
		want  string
	}{
		{"no key given", s.content(size), Trust{}, "Whose key that is"},
		{"no witness", s.content(size), Trust{Key: s.key.Public}, "no witness that you trust"},
		{"no old checkpoint", s.content(size), Trust{Key: s.key.Public}, "you gave no older checkpoint"},
		{"range to the end", s.content(size), Trust{Key: s.key.Public}, "none is missing"},
		{"not to the end", s.content(3), Trust{Key: s.key.Public}, "entries and 2 of 2 notes are not covered"},
	} {
		if got := said(c.c, c.trust); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q is not said:\n%s", c.name, c.want, got)
		}
	}
}

func TestOldCheckpoint(t *testing.T) {
	s := newStand(t, 2)
	size := s.tree.Size()
	verify := func(c Content, old []byte) error {
		_, err := Verify(bytes.NewReader(s.bundle(c)), Trust{Key: s.key.Public, Old: old})
		return err
	}
	for old := int64(1); old <= size; old++ {
		raw := s.checkpoint(old)
		c := s.content(size)
		at, err := checkpoint.Unverified(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(c, raw); err == nil && old != size {
			t.Errorf("grew from %d without a proof", old)
		}
		c.Against = &at
		if err := verify(c, raw); err != nil {
			t.Errorf("grew from %d: %v", old, err)
		}
	}
	forged, err := checkpoint.Checkpoint{Origin: origin, Size: 2, Head: tlog.Hash{1}}.Sign(s.key)
	if err != nil {
		t.Fatal(err)
	}
	c := s.content(size)
	at, err := checkpoint.Unverified(s.checkpoint(2))
	if err != nil {
		t.Fatal(err)
	}
	c.Against = &at
	if err := verify(c, forged); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("another history of two leaves: %v", err)
	}
	whole := string(s.bundle(c))
	prefix := whole[strings.Index(whole, `{"kind":"prefix"`):strings.Index(whole, `{"kind":"leaf"`)]
	if _, err := s.verify([]byte(strings.Replace(whole, prefix, prefix+prefix, 1))); tga.CodeOf(err) != tga.SchemaViolation {
		t.Errorf("two proofs that it grew: %v", err)
	}
	// Another history, signed with the same key: the store was rewritten.
	rewritten := newStand(t, 3)
	rewritten.key = s.key
	c = rewritten.content(rewritten.tree.Size())
	if at, err = checkpoint.Unverified(s.checkpoint(4)); err != nil {
		t.Fatal(err)
	}
	c.Against = &at
	_, err = Verify(bytes.NewReader(rewritten.bundle(c)), Trust{Key: s.key.Public, Old: s.checkpoint(4)})
	if tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a rewritten history: %v", err)
	}
	if err := verify(s.content(3), s.checkpoint(4)); tga.CodeOf(err) != tga.StateSequenceGap {
		t.Errorf("a bundle that is older than the old checkpoint: %v", err)
	}
	if err := verify(s.content(size), []byte("x")); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("an old checkpoint that nobody signed: %v", err)
	}
}

func TestKeysOfABundle(t *testing.T) {
	s := newStand(t, 1)
	other := newStand(t, 1)
	b := s.bundle(s.content(2))
	if _, err := Verify(bytes.NewReader(b), Trust{Key: other.key.Public}); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("another key: %v", err)
	}
	// The key was handed over before the checkpoint.
	at, err := checkpoint.Unverified(s.checkpoint(1))
	if err != nil {
		t.Fatal(err)
	}
	over, err := checkpoint.HandOver(at, s.key, other.key)
	if err != nil {
		t.Fatal(err)
	}
	head, err := s.tree.Head(2)
	if err != nil {
		t.Fatal(err)
	}
	c := s.content(2)
	if c.Checkpoint, err = (checkpoint.Checkpoint{Origin: origin, Size: 2, Head: head}).Sign(other.key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.verify(s.bundle(c)); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("signed by the next key, without a hand-over: %v", err)
	}
	c.HandOvers = [][]byte{over}
	if rep, err := s.verify(s.bundle(c)); err != nil || rep.HandOvers != 1 {
		t.Errorf("with the hand-over: %+v, %v", rep, err)
	}
	if rep, err := Verify(bytes.NewReader(s.bundle(c)), Trust{Key: other.key.Public}); err != nil || rep.HandOvers != 0 {
		t.Errorf("who has the next key already: %+v, %v", rep, err)
	}
	// Cosignatures of witnesses that the reader trusts are reported.
	secret, _, err := checkpoint.NewKey("witness.test")
	if err != nil {
		t.Fatal(err)
	}
	w, err := fnote.NewSignerForCosignatureV1(secret)
	if err != nil {
		t.Fatal(err)
	}
	c = s.content(2)
	c.Checkpoint = s.checkpoint(2, w)
	rep, err := Verify(bytes.NewReader(s.bundle(c)), Trust{Key: s.key.Public, Witnesses: []note.Verifier{w.Verifier()}})
	if err != nil || len(rep.Cosigned) != 1 || rep.Cosigned[0].Name != "witness.test" {
		t.Errorf("cosigned: %+v, %v", rep, err)
	}
	if rep, err = s.verify(s.bundle(c)); err != nil || len(rep.Cosigned) != 0 {
		t.Errorf("a witness that the reader does not know: %+v, %v", rep, err)
	}
}

func TestBytesAreTheSame(t *testing.T) {
	s := newStand(t, 3)
	c := s.content(s.tree.Size())
	if !bytes.Equal(s.bundle(c), s.bundle(c)) {
		t.Error("two bundles of the same differ")
	}
	if err := Write(io.Discard, c, damagedTree{s.tree}); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a proof that does not hold: %v", err)
	}
	c.Leaves = s.leaves
	c.Checkpoint = s.checkpoint(2)
	if err := Write(io.Discard, c, s.tree); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("leaves that the checkpoint does not cover: %v", err)
	}
}

// damagedTree has one node with another value.
type damagedTree struct{ *tree.Tree }

func (d damagedTree) Prove(index uint64, size int64) (tlog.RecordProof, error) {
	p, err := d.Tree.Prove(index, size)
	if err == nil {
		p[0][3] ^= 1
	}
	return p, err
}
