package engine

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/wal"
)

// TestPacerRestsAsLongAsItWorked: at the slice, one short of it, and after a long part.
func TestPacerRestsAsLongAsItWorked(t *testing.T) {
	now := time.Unix(1, 0)
	var slept []time.Duration
	p := &pacer{rest: 1, now: func() time.Time { return now }, sleep: func(_ context.Context, d time.Duration) { slept = append(slept, d); now = now.Add(d) }}
	for _, work := range []time.Duration{0, paceSlice - 1, 1, paceSlice, 3 * paceSlice, paceSlice - 1} {
		now = now.Add(work)
		p.step(t.Context())
	}
	want := []time.Duration{paceSlice, paceSlice, 3 * paceSlice}
	if len(slept) != len(want) {
		t.Fatalf("slept %v, want %v", slept, want)
	}
	for i := range want {
		if slept[i] != want[i] {
			t.Errorf("slept %v, want %v", slept, want)
		}
	}
	var none *pacer
	none.step(t.Context())
}

// told counts the messages of a store's log, by their text.
type told struct {
	mu    sync.Mutex
	count map[string]int
}

func (o *told) of(message string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count[message]
}

func (o *told) Enabled(context.Context, slog.Level) bool { return true }
func (o *told) Handle(_ context.Context, r slog.Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count == nil {
		o.count = map[string]int{}
	}
	o.count[r.Message]++
	return nil
}
func (o *told) WithAttrs([]slog.Attr) slog.Handler { return o }
func (o *told) WithGroup(string) slog.Handler      { return o }

// TestProgressIsToldNowAndThen: of a check and of an index that is made, once the last message is
// progressTime old, and not before.
func TestProgressIsToldNowAndThen(t *testing.T) {
	log := &told{}
	o := &opening{standing: newStanding(Options{Logger: slog.New(log)}.withDefaults())}
	c := &checker{logger: o.log, ctx: t.Context(), work: new(work)}
	tell := map[string]func(){
		"checking the store": c.step,
		"making the index": func() {
			if err := o.progress(wal.Position{}); err != nil {
				t.Error(err)
			}
		},
	}
	for message, step := range tell {
		for i, want := range []int{1, 1, 2, 2} {
			if i == 2 { // as if nothing had been said for so long
				c.said, o.said = c.said.Add(-progressTime), o.said.Add(-progressTime)
			}
			if step(); log.of(message) != want {
				t.Errorf("step %d: %q was told %d times, want %d", i, message, log.of(message), want)
			}
		}
	}
}

// TestWorkThatWasNoneIsNotTold: neither of files that were not removed, nor of records that the index had.
func TestWorkThatWasNoneIsNotTold(t *testing.T) {
	const taken, removed = "the index took over records of the log", "removed files of bodies that nothing names"
	fs := vfs.NewMem()
	// A new store has a record; the second open leaves a file, which is for a later one to remove; the third
	// one makes the index anew.
	for i, want := range []struct{ taken, removed int }{{1, 0}, {0, 0}, {1, 1}, {0, 0}} {
		log := &told{}
		db, err := Open("store", Options{FS: fs, Logger: slog.New(log), RewriteShare: -1})
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if _, err := db.wal.WriteFile([]byte("mx"), []byte("nobody's")); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := db.rewriting.sweep(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := log.of(removed); got != want.removed {
			t.Errorf("open %d: removed files were told of %d times, want %d", i, got, want.removed)
		}
		if got := log.of(taken); got != want.taken {
			t.Errorf("open %d: records were told of %d times, want %d", i, got, want.taken)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := fs.RemoveAll("store/index"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
