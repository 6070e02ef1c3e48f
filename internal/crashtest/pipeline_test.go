package crashtest

import (
	"slices"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestCrashUnderAPipeline crashes before each operation of a goroutine that has appends to several traces
// under way, and lets its operations fail.
func TestCrashUnderAPipeline(t *testing.T) {
	slice(t, func(r *Run, s Scenario) {
		s.Steps = Pipelined
		r.Explore(s, 1, []int{0, 30, 100}, 2, Thoroughness{Depth: 2, Nested: 211, Again: 8, Retry: 4})
		r.Faults(s, 1, whileRun, 11, Thoroughness{Depth: 1, Retry: 8})
	})
}

// TestPipelineMakesGroups: a pipeline has several appends under way at a time; otherwise it would test no
// more than a caller who waits.
func TestPipelineMakesGroups(t *testing.T) {
	w := NewWorld(1)
	p, err := w.Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	before := p.DB.Stats()
	p.pipeline("park", "k", true)
	after := p.DB.Stats()
	submitted, acknowledged, refused := 0, 0, 0
	for _, e := range w.Journal() {
		switch {
		case e.Kind == Submitted && e.Queued:
			submitted++
		case e.Kind == Acknowledged:
			acknowledged++
		case e.Kind == Refused:
			refused++
		}
	}
	if submitted < 15 || acknowledged < submitted-refused || refused != 1 {
		t.Errorf("%d batches submitted, %d acknowledged, %d refused; want at least 15, all but one, one", submitted, acknowledged, refused)
	}
	if commits, syncs := after.Commits-before.Commits, after.LogSyncs-before.LogSyncs; syncs*2 > commits {
		t.Errorf("%d commits took %d syncs: want groups of two and more", commits, syncs)
	}
	if bad := p.judge(false); len(bad) > 0 {
		t.Error(bad)
	}
	if err := p.DB.Close(); err != nil {
		t.Error(err)
	}
}

// TestQueueIsAPrefix: S7 finds a lost batch in the middle of the queue, and finds nothing if only the newest
// ones are lost.
func TestQueueIsAPrefix(t *testing.T) {
	w := NewWorld(1)
	p, err := w.Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	p.pipeline("park", "k", true)
	events := slices.DeleteFunc(slices.Clone(w.Journal()), func(e Event) bool { return e.Kind == Acknowledged })
	lanes, err := lanesOf("park", "k")
	if err != nil {
		t.Fatal(err)
	}
	noted := lanes[2].trace // r n d n c
	for _, c := range []struct {
		name  string
		lost  func(s *Seen)
		finds bool
	}{
		{"nothing", func(*Seen) {}, false},
		{"the first note", func(s *Seen) { s.Notes = s.Notes[1:] }, true},
		{"the last entry", func(s *Seen) { s.Entries = s.Entries[:2] }, false},
		{"both notes", func(s *Seen) { s.Notes = nil }, true},
		{"all behind the request", func(s *Seen) { s.Notes, s.Entries = nil, s.Entries[:1] }, false},
	} {
		o := p.Observe()
		c.lost(o.Traces[noted])
		var found bool
		queuedInOrder(historyOf(events), o, nil, func(string, tga.ID, string, ...any) { found = true })
		if found != c.finds {
			t.Errorf("%s lost: found %v, want %v", c.name, found, c.finds)
		}
	}
	if err := p.DB.Close(); err != nil {
		t.Error(err)
	}
}
