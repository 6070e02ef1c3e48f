package bundle

import (
	"bufio"
	"bytes"
	"math"
	"testing"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// fixedKey belongs to no store. Each process of a fuzzing run makes the seeds anew, and must make the same
// ones.
const fixedKey = "PRIVATE+KEY+tgad/test+b3ce5031+AVJxvmyQLUXK+g0f7p8kcdmU9o75Vv4XxVtC8lNp+sws"

// FuzzVerify: a bundle that is believed with the store's key has a checkpoint that the key signed, and
// contains only what that signature covers.
func FuzzVerify(f *testing.F) {
	t := new(testing.T)
	s := newStand(t, 2)
	var err error
	if s.key, err = checkpoint.ParseSigner(fixedKey); err != nil {
		f.Fatal(err)
	}
	whole := s.bundle(s.content(s.tree.Size()))
	f.Add(whole)
	f.Add(s.bundle(s.content(3)))
	f.Add(whole[:len(whole)/2])
	trust := Trust{Key: s.key.Public}
	heads := map[int64]bool{s.tree.Size(): true, 3: true}
	if _, err := Verify(bytes.NewReader(whole), trust); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Verify(bytes.NewReader(b), trust)
		if err != nil {
			return
		}
		if !heads[r.Checkpoint.Size] || !r.KeyGiven {
			t.Errorf("believed: %+v", r)
		}
		for i := range r.Traces {
			if x := &r.Traces[i]; x.CoveredEntries > x.Entries || x.CoveredEntries == 0 {
				t.Errorf("trace %s has %d entries, and %d are covered", x.ID, x.Entries, x.CoveredEntries)
			}
		}
	})
}

// FuzzProofLine: a line with a proof that is believed has the leaf, or the older head, of the tree, and is
// written in its only form.
func FuzzProofLine(f *testing.F) {
	t := new(testing.T)
	s := newStand(t, 2)
	var err error
	if s.key, err = checkpoint.ParseSigner(fixedKey); err != nil {
		f.Fatal(err)
	}
	size := s.tree.Size()
	c := s.content(size)
	head, err := s.tree.Head(size)
	if err != nil {
		f.Fatal(err)
	}
	old, err := s.tree.Head(5)
	if err != nil {
		f.Fatal(err)
	}
	c.Against = &checkpoint.Checkpoint{Origin: origin, Size: 5, Head: old}
	for line := range bytes.Lines(s.bundle(c)) {
		if kind := kindOf(line); kind == "leaf" || kind == "prefix" {
			f.Add(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		v := verifier{in: bufio.NewReader(bytes.NewReader(nil)), traces: nil}
		v.head.Leaves = math.MaxInt
		v.report.Checkpoint = checkpoint.Checkpoint{Origin: origin, Size: size, Head: head}
		var again []byte
		switch kindOf(line) {
		case "leaf":
			if v.leaf(line) != nil {
				return
			}
			l := v.leaves[0]
			if l != s.leaves[l.Index-1] {
				t.Errorf("%s is believed to be leaf %d", line, l.Index)
			}
			var e leafLine
			if err := decode(line, &e); err != nil {
				t.Fatal(err)
			}
			again, err = encode(e)
		case "prefix":
			if v.prefix(line) != nil {
				return
			}
			var p prefixLine
			if err := decode(line, &p); err != nil {
				t.Fatal(err)
			}
			if want, err := s.tree.Head(p.Size); err != nil || p.Head != want {
				t.Errorf("%s is believed, and the head is %v, %v", line, want, err)
			}
			again, err = encode(p)
		default:
			return
		}
		if err != nil || !bytes.Equal(again, append(bytes.Clone(line), '\n')) {
			t.Errorf("%s is written %s, %v", line, again, err)
		}
	})
}
