package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// busy is a place that does not accept what it is given: it refuses the given number of times, or hangs
// until the hand-out ends.
type busy struct {
	checkpoint.Directory
	refuses atomic.Int64
	hangs   atomic.Bool
	begun   chan struct{} // on which it sends when it hangs
	puts    atomic.Int64
}

func (b *busy) Put(ctx context.Context, raw []byte, prove checkpoint.Prove) ([]byte, error) {
	b.puts.Add(1)
	if b.hangs.Load() {
		b.begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if b.refuses.Add(-1) >= 0 {
		return nil, errors.New("not now")
	}
	return b.Directory.Put(ctx, raw, prove)
}

// newBusyStand is a stand whose only place is busy.
func newBusyStand(t *testing.T) (*stand, *busy) {
	s := newStand(t)
	b := &busy{Directory: checkpoint.Directory{Path: s.outside()}, begun: make(chan struct{}, 1)}
	s.options.Places = []checkpoint.Target{b}
	return s, b
}

// gets waits until the place has a checkpoint over everything.
func (s *stand) gets(b *busy) {
	s.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		raw, err := os.ReadFile(b.Path)
		if c, cerr := checkpoint.Unverified(raw); err == nil && cerr == nil && uint64(c.Size) == s.db.Cursor() {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("the place has %q of %d appends: %v", raw, s.db.Cursor(), err)
		}
	}
}

// TestQuietStoreReachesItsPlaces: a place that could not accept the last checkpoint gets it later, although
// nothing more is appended. After that it is given the checkpoint at most once more.
func TestQuietStoreReachesItsPlaces(t *testing.T) {
	s, place := newBusyStand(t)
	s.open()
	s.append(1)
	s.covered()
	s.gets(place)
	place.refuses.Store(3)
	s.append(2)
	s.gets(place)
	puts := place.puts.Load()
	time.Sleep(10 * s.options.Every)
	s.close()
	s.open() // another process asks the place what it has
	time.Sleep(10 * s.options.Every)
	s.close()
	if more := place.puts.Load() - puts; more != 0 {
		t.Errorf("a place that has all was given it %d times", more)
	}
}

// TestForeignPlaceIsAskedAgain: a place that has what the store's key did not sign, such as the page of a proxy, gets the
// newest checkpoint once that is taken away, without a restart.
func TestForeignPlaceIsAskedAgain(t *testing.T) {
	s := newStand(t)
	foreign := []byte("<html>be patient</html>\n")
	if err := os.WriteFile(s.outside(), foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	defer s.close()
	s.append(1)
	s.covered()
	time.Sleep(10 * s.options.Every)
	if raw, err := os.ReadFile(s.outside()); err != nil || !bytes.Equal(raw, foreign) {
		t.Fatalf("it is not left alone: %q, %v", raw, err)
	}
	if err := os.Remove(s.outside()); err != nil {
		t.Fatal(err)
	}
	s.gets(&busy{Directory: checkpoint.Directory{Path: s.outside()}})
}

// TestStoppedHandOutIsFinished: a checkpoint that a keeper was handing out when it was stopped is handed out
// before the keeper ends. If the keeper was killed, the next one hands it out, although nothing is appended.
func TestStoppedHandOutIsFinished(t *testing.T) {
	for name, killed := range map[string]bool{"stopped": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			s, place := newBusyStand(t)
			s.open()
			place.hangs.Store(true)
			s.append(1)
			<-place.begun
			s.end()
			<-s.ended
			place.hangs.Store(killed)
			if killed {
				go func() { <-place.begun }()
			}
			raw, _ := s.k.Newest()
			signed, err := checkpoint.Unverified(raw)
			if err != nil {
				t.Fatal(err)
			}
			s.close() // if the keeper is killed, this is the last time that the place is out of reach
			if killed {
				place.hangs.Store(false)
				s.open()
				s.gets(place)
				s.close()
			}
			outside, err := os.ReadFile(place.Path)
			if err != nil {
				t.Fatal(err)
			}
			if c, err := checkpoint.Unverified(outside); err != nil || c.Size < signed.Size {
				t.Errorf("the place has %q, %v; the store has signed %q", outside, err, raw)
			}
		})
	}
}

// TestGivenUpCheckpointIsHandedToNobody: a checkpoint that a person gave up is still in the store, but a
// place that comes back does not get it.
func TestGivenUpCheckpointIsHandedToNobody(t *testing.T) {
	for name, other := range map[string]bool{"fewer appends": false, "as many others": true} {
		t.Run(name, func(t *testing.T) { wantGivenUp(t, other) })
	}
}

func wantGivenUp(t *testing.T, other bool) {
	s, place := newBusyStand(t)
	s.open()
	s.append(1)
	s.close()
	old := filepath.Join(t.TempDir(), "old")
	copyDir(t, s.dir, old)
	s.open()
	s.append(2)
	s.close()
	// The log is put back, and the signed checkpoint is not.
	checkpoints := filepath.Join(s.dir, "evidence", "checkpoints")
	kept, err := os.ReadFile(checkpoints)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(place.Path); err != nil {
		t.Fatal(err)
	}
	copyDir(t, old, s.dir)
	if other {
		s.options.Places = nil
		s.open()
		s.append(7)
		s.close()
		s.options.Places = []checkpoint.Target{place}
	}
	if err := os.WriteFile(checkpoints, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	defer s.close()
	if s.db.Stats().Frozen == "" {
		t.Fatal("it is not frozen")
	}
	if err := errors.Join(s.k.Accept("me"), s.db.Unfreeze(t.Context(), true, "me")); err != nil {
		t.Fatal(err)
	}
	given, _ := s.k.Newest()
	time.Sleep(10 * s.options.Every)
	if outside, err := os.ReadFile(place.Path); err == nil && bytes.Equal(outside, given) {
		t.Errorf("the place was given %q", outside)
	}
	s.append(3)
	s.gets(place)
}

// signing is a judge that signs everything that it is given.
type signing struct {
	checkpoint.Directory
	line []byte
	puts atomic.Int64
}

func (j *signing) Signed(raw []byte) bool { return bytes.Contains(raw, j.line) }

func (j *signing) Newest(context.Context, []byte, checkpoint.Prove) ([]byte, error) { return nil, nil }

func (j *signing) Put(context.Context, []byte, checkpoint.Prove) ([]byte, error) {
	j.puts.Add(1)
	return j.line, nil
}

// TestSignedCheckpointIsNotSignedAgain: if the newest checkpoint has a judge's signature, a process that
// opens the store does not ask the judge again. If the signature was lost with the process that asked for
// it, it does.
func TestSignedCheckpointIsNotSignedAgain(t *testing.T) {
	s := newStand(t)
	place := &signing{line: []byte("\u2014 witness.example AAAAAAAA\n")}
	s.options.Places = []checkpoint.Target{place}
	s.open()
	s.append(1)
	s.close()
	puts := place.puts.Load()
	s.open()
	time.Sleep(10 * s.options.Every)
	s.close()
	if raw, _ := s.k.Newest(); place.puts.Load() != puts || bytes.Count(raw, place.line) != 1 {
		t.Errorf("it was asked %d times, and then %d times: %q", puts, place.puts.Load(), raw)
	}
	place.line = []byte("\u2014 witness.example AAAAAAAB\n") // it no longer knows the other one
	s.open()
	s.close()
	if raw, _ := s.k.Newest(); place.puts.Load() != puts+1 || !place.Signed(raw) {
		t.Errorf("it was asked %d times, and then %d times: %q", puts, place.puts.Load(), raw)
	}
}
