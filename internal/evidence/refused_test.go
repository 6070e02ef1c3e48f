package evidence_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// judge is a place that knows more than it can return: it refuses what it is shown.
type judge struct {
	checkpoint.Directory
	proved         bool // it was given a proof at the start
	asks           int
	atStart, later error
	shown          []byte        // at the start
	done           chan struct{} // closed when everything is appended
}

func (j *judge) Signed([]byte) bool { return false }

func (j *judge) Newest(_ context.Context, own []byte, prove checkpoint.Prove) ([]byte, error) {
	j.shown = own
	j.asks++
	_, err := prove(1, 2)
	j.proved = err == nil
	return nil, j.atStart
}

func (j *judge) Put(context.Context, []byte, checkpoint.Prove) ([]byte, error) {
	<-j.done
	return nil, j.later
}

// TestRefusedCheckpointFreezes: a place that refuses a checkpoint because of what it has seen freezes the
// store, at its start and later. It is shown a checkpoint although the store has kept none.
func TestRefusedCheckpointFreezes(t *testing.T) {
	for name, c := range map[string]struct {
		judge
		why string
	}{
		"newer at the start": {judge{atStart: &checkpoint.NewerError{Size: 9}}, "it has seen 9 appends"},
		"other at the start": {judge{atStart: &checkpoint.OtherError{Size: 2}}, "it has seen other appends among the first 2"},
		"newer later":        {judge{later: &checkpoint.NewerError{Size: 9}}, "it has seen 9 appends"},
		"other later":        {judge{later: &checkpoint.OtherError{Size: 2}}, "it has seen other appends among the first 2"},
		"out of reach":       {judge{atStart: errors.New("no route"), later: errors.New("no route")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			place := c.judge
			place.done = make(chan struct{})
			s.options.Places = []checkpoint.Target{&place}
			s.open()
			defer s.close()
			if own, err := checkpoint.Unverified(place.shown); err != nil || own.Size != 0 {
				t.Errorf("a new store shows %+v, %v", own, err)
			}
			if c.later != nil {
				s.append(1)
			}
			close(place.done)
			for end := time.Now().Add(time.Minute); c.why != "" && s.db.Stats().Frozen == ""; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("it is not frozen")
				}
			}
			if c.why == "" {
				s.covered()
			}
			if why := s.db.Stats().Frozen; (c.why == "") != (why == "") || !strings.Contains(why, c.why) {
				t.Errorf("frozen for %q, want %q", why, c.why)
			}
		})
	}
}

// TestDoubtedStoreProvesNothing: a judge remembers what it is shown. So it is asked after the places that
// return what they have. A store that one of these contradicts gives the judge no proof, and the judge signs
// nothing for it.
func TestDoubtedStoreProvesNothing(t *testing.T) {
	s := newStand(t)
	outside := s.options.Places[0]
	place := &judge{done: make(chan struct{})}
	close(place.done)
	s.options.Places = []checkpoint.Target{place, outside}
	s.open()
	s.append(1)
	s.close()
	old := filepath.Join(t.TempDir(), "old")
	copyDir(t, s.dir, old)
	s.open()
	if !place.proved {
		t.Error("a sound store proves nothing")
	}
	s.append(2)
	s.close()
	copyDir(t, old, s.dir)
	place.shown = nil
	s.open()
	if s.db.Stats().Frozen == "" || place.proved || place.shown == nil {
		t.Errorf("frozen %q, proved %v, shown %q", s.db.Stats().Frozen, place.proved, place.shown)
	}
	s.close()
	if err := os.RemoveAll(filepath.Join(s.dir, "evidence")); err != nil {
		t.Fatal(err)
	}
	asks := place.asks
	s.open()
	if s.db.Stats().Frozen == "" || place.asks != asks {
		t.Errorf("frozen %q, and the judge was asked %d times", s.db.Stats().Frozen, place.asks-asks)
	}
	s.close()
}
