package measure

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestRatiosAreOfOneRound: a machine that gets slower between rounds changes the times but not the ratios.
func TestRatiosAreOfOneRound(t *testing.T) {
	at := func(ms ...int) (rounds []round) {
		for _, m := range ms {
			d := time.Duration(m) * time.Millisecond
			rounds = append(rounds, round{latencies: []time.Duration{d}, ops: 1, wall: d})
		}
		return rounds
	}
	limit := &Subject{Case: LimitCase, Writers: 1, Bytes: 1, rounds: at(1, 10, 100)}
	s := &Subject{Case: "s", Writers: 1, Bytes: 1, rounds: at(2, 20, 200)}
	if l := s.line(limit); l.P50Ratio != 2 || l.ThroughputRatio != 0.5 || l.P50 != 20000 {
		t.Errorf("%+v", l)
	}
}

func TestQuantilesAndMedian(t *testing.T) {
	var d []time.Duration
	for i := range 1000 {
		d = append(d, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 500, 0.99: 990, 0.999: 999, 1: 999} {
		if got := at(d, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	for want, of := range map[float64][]float64{0: nil, 3: {3}, 2: {9, 2, 1}, 2.5: {1, 3, 2, 100}} {
		if got := median(of); got != want {
			t.Errorf("median of %v is %v, want %v", of, got, want)
		}
	}
}

// TestLimitWritesWhatItAcknowledges appends from many goroutines and finds every record in the file exactly
// once. There are fewer syncs than appends.
func TestLimitWritesWhatItAcknowledges(t *testing.T) {
	dir := t.TempDir()
	l, err := NewLimit(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 32, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			done := make(chan error, 1)
			for i := range each {
				if err := l.Append([]byte{0xff, byte(w), byte(i), 0xff}, done); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	raw, err := os.ReadFile(filepath.Join(dir, "limit"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[[2]byte]int{}
	for rec := range slices.Chunk(raw[:4*writers*each], 4) {
		found[[2]byte(rec[1:3])]++
	}
	if len(found) != writers*each {
		t.Errorf("%d records of %d are in the file", len(found), writers*each)
	}
	if n := l.Syncs(); n == 0 || n > writers*each {
		t.Errorf("%d syncs of %d appends", n, writers*each)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestDrainedSliceEnds: a subject with nothing left ends its slice, and any other error ends the run.
func TestDrainedSliceEnds(t *testing.T) {
	for _, c := range []struct {
		err  error
		ends bool
	}{{ErrDrained, false}, {errors.New("broken"), true}} {
		n := 0
		s := &Subject{Case: "s", Writers: 1, Op: func(int) (time.Duration, error) {
			if n++; n > 3 {
				return 0, c.err
			}
			return time.Microsecond, nil
		}}
		_, err := Run([]*Subject{s}, 1, time.Hour, io.Discard)
		if (err != nil) != c.ends {
			t.Errorf("%v: run ended with %v", c.err, err)
		}
	}
}

// TestEachIsHeldAgainstItsOwnLimit: a case is compared with the limit at the same writers and size, else
// with the nearest one below, else with the first.
func TestEachIsHeldAgainstItsOwnLimit(t *testing.T) {
	limit := func(writers, size int) *Subject { return &Subject{Case: LimitCase, Writers: writers, Bytes: size} }
	a, b, c := limit(1, 1024), limit(64, 1024), limit(1, 256)
	all := []*Subject{a, b, c}
	for _, x := range []struct {
		writers, size int
		want          *Subject
	}{{1, 1024, a}, {64, 1024, b}, {1, 256, c}, {16, 1024, a}, {64, 256, c}, {1, 4096, a}, {1, 100, a}} {
		if got := LimitOf(all, &Subject{Case: "s", Writers: x.writers, Bytes: x.size}); got != x.want {
			t.Errorf("%d writers, %d bytes: held against %d writers, %d bytes", x.writers, x.size, got.Writers, got.Bytes)
		}
	}
	if LimitOf(all, &Subject{Case: "s", Against: "other"}) != nil {
		t.Error("a case without its limit is held against another's")
	}
}
