package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

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

// said counts the messages of a store's log, by their text.
type said map[string]int

func (s said) Enabled(context.Context, slog.Level) bool { return true }
func (s said) Handle(_ context.Context, r slog.Record) error {
	s[r.Message]++
	return nil
}
func (s said) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s said) WithGroup(string) slog.Handler      { return s }

// TestProgressIsToldNowAndThen: of a check and of an index that is made, once the last message is
// progressTime old, and not before.
func TestProgressIsToldNowAndThen(t *testing.T) {
	told := said{}
	db := &DB{log: slog.New(told)}
	c := &checker{db: db, ctx: t.Context(), work: new(work)}
	tell := map[string]func(){
		"checking the store": c.step,
		"making the index": func() {
			if err := db.progress(wal.Position{}); err != nil {
				t.Error(err)
			}
		},
	}
	for message, step := range tell {
		for i, want := range []int{1, 1, 2, 2} {
			if i == 2 { // as if nothing had been said for so long
				c.said, db.said = c.said.Add(-progressTime), db.said.Add(-progressTime)
			}
			if step(); told[message] != want {
				t.Errorf("step %d: %q was told %d times, want %d", i, message, told[message], want)
			}
		}
	}
}
