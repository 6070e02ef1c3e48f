package bundle

import (
	"bytes"
	"testing"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// fixedKey is of no store. Each process of a fuzzing run makes the seeds anew, and must make the same.
const fixedKey = "PRIVATE+KEY+tgad/test+b3ce5031+AVJxvmyQLUXK+g0f7p8kcdmU9o75Vv4XxVtC8lNp+sws"

// FuzzVerify: what is believed with the store's key has a checkpoint that the key signed, and nothing
// else than what was signed under it.
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
