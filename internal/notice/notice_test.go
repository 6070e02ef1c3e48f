package notice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/schemas/tga"
)

// world is a receiver and its world. The test sets what waits in that world, and the clock.
type world struct {
	t *testing.T
	r *receiver

	all    []Matter
	err    error // of the list of what waits
	fates  map[tga.ID]Fate
	fateOf error

	wall time.Time
	mono time.Duration

	mu      sync.Mutex // of the looks and sinks of a service
	notices []*Notice
	refuse  error // of the sink
}

func (w *world) Waiting(context.Context) ([]Matter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all), w.err
}

func (w *world) Complete(_ context.Context, m *Matter) error {
	m.Commands = []string{"tgad show " + m.TraceID.String()}
	return nil
}

func (w *world) Fate(_ context.Context, m *Matter) (Fate, error) {
	m.State = "COMPLETED"
	return w.fates[m.TraceID], w.fateOf
}

func (w *world) Lists() []string { return []string{"tgad in-doubt"} }

func (w *world) Put(_ context.Context, n *Notice) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse == nil {
		w.notices = append(w.notices, n)
	}
	return w.refuse
}

func (w *world) Close() error { return nil }

// newWorld returns a receiver of doubts that are at least a minute old, with no pause between notices.
func newWorld(t *testing.T) *world {
	w := &world{t: t, wall: time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC), mono: time.Hour, fates: map[tga.ID]Fate{}}
	w.begin(config.Notify{
		ID: "r", On: []string{config.OnDoubt, config.OnApproval, config.OnFrozen}, After: config.Duration{D: time.Minute}, Pause: config.Duration{D: time.Nanosecond},
		Named: 3, Timeout: config.Duration{D: time.Minute},
	}, duty.File(filepath.Join(t.TempDir(), "r")))
	return w
}

// begin makes the receiver anew, as a new process does.
func (w *world) begin(conf config.Notify, in duty.File) {
	w.r = &receiver{
		conf: conf, sink: w, duty: in, world: w, host: "h", say: slog.New(slog.DiscardHandler),
		clock: clock.New(func() time.Time { return w.wall }, func() time.Duration { return w.mono }),
	}
	w.r.take(w.t.Context())
}

func (w *world) restart() { w.begin(w.r.conf, w.r.duty.(duty.File)) }

func (w *world) pass(d time.Duration) { w.wall, w.mono = w.wall.Add(d), w.mono+d }

// step moves the clock, lets the receiver look once, and returns the notices that resulted.
func (w *world) step(after time.Duration) []*Notice {
	w.t.Helper()
	w.pass(after)
	w.r.retry = time.Time{} // its pauses after errors use the real clock
	before := len(w.notices)
	w.r.turn(w.t.Context(), w.all)
	return w.notices[before:]
}

// wants checks that each notice tells of so many.
func (w *world) wants(what string, got []*Notice, news, again, resolved int) {
	w.t.Helper()
	sum := func(of map[string]int) (n int) {
		for _, v := range of {
			n += v
		}
		return n
	}
	notices := 0
	if news+again+resolved > 0 {
		notices = 1
	}
	if len(got) != notices {
		w.t.Fatalf("%s: %d notices, want %d", what, len(got), notices)
	}
	if notices == 1 && (sum(got[0].New) != news || sum(got[0].Again) != again || sum(got[0].Resolved) != resolved) {
		w.t.Errorf("%s: told of new %v, again %v, resolved %v, want %d, %d, %d", what, got[0].New, got[0].Again, got[0].Resolved, news, again, resolved)
	}
}

func doubt(n byte) Matter {
	id := tga.ID{1, n, 6: 0x70, 8: 0x80}
	return Matter{Kind: config.OnDoubt, TraceID: id, Namespace: "ns", Server: "pay", Tool: "charge", Key: fmt.Sprintf("k-%d", n), Since: tga.Millis(n)}
}

// TestOnlyWhatWaitsLongEnoughIsTold: a doubt that is settled earlier is not reported. The time counts from
// when the receiver saw the doubt, not from when the call was made.
func TestOnlyWhatWaitsLongEnoughIsTold(t *testing.T) {
	w := newWorld(t)
	w.all = []Matter{doubt(1), doubt(2)}
	w.wants("at once", w.step(0), 0, 0, 0)
	w.all = w.all[:1]
	w.wants("almost a minute", w.step(time.Minute-1), 0, 0, 0)
	w.wants("a minute", w.step(1), 1, 0, 0)
	if len(w.r.book.Matters) != 1 {
		t.Errorf("%d are remembered", len(w.r.book.Matters))
	}
	w.all = append(w.all, doubt(2))
	w.wants("the other one came back", w.step(time.Second), 0, 0, 0)
	w.wants("and stays", w.step(time.Minute), 1, 0, 0)
	w.wants("nothing new", w.step(24*time.Hour), 0, 0, 0)
}

// TestWhatCameTogetherIsToldTogether: looking at many doubts takes longer than they have to wait. Still all
// of them are in one notice.
func TestWhatCameTogetherIsToldTogether(t *testing.T) {
	w := newWorld(t)
	looks := time.Duration(0)
	w.r.clock = clock.New(func() time.Time { return w.wall.Add(looks) }, func() time.Duration { looks += 10 * time.Second; return w.mono + looks })
	for n := range byte(40) {
		w.all = append(w.all, doubt(n))
	}
	w.wants("at once", w.step(0), 0, 0, 0)
	w.wants("all waited", w.step(0), 40, 0, 0)
}

// TestRestartRepeatsNothing: a restart repeats nothing and forgets nothing: neither what was reported nor
// since when something waits.
func TestRestartRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	w.all = []Matter{doubt(1)}
	w.step(0)
	w.wants("first", w.step(time.Minute), 1, 0, 0)
	w.all = append(w.all, doubt(2))
	w.r.saved = time.Time{}
	w.step(0)
	w.pass(10 * time.Second)
	w.restart()
	w.wants("restarted", w.step(0), 0, 0, 0)
	w.wants("it waits since before the restart", w.step(50*time.Second), 1, 0, 0)
	if got := w.notices[1].Matters; len(got) != 1 || got[0].Key != "k-2" {
		t.Errorf("told of %+v", got)
	}
	w.r.conf.Every.D = time.Hour
	w.restart()
	w.wants("not again yet", w.step(time.Hour-2*time.Minute), 0, 0, 0)
	w.wants("the first again", w.step(time.Minute), 0, 1, 0)
	w.wants("the second again", w.step(time.Minute), 0, 1, 0)
	w.wants("neither", w.step(58*time.Minute), 0, 0, 0)
	w.wants("the first once more", w.step(time.Minute), 0, 1, 0)
	ids := map[string]bool{}
	for _, n := range w.notices {
		ids[n.ID] = true
	}
	if len(ids) != len(w.notices) {
		t.Errorf("%d notices have %d ids: a receiver drops what it has", len(w.notices), len(ids))
	}
}

// TestRefusedNoticeIsTriedAgain: the notice is tried again with the same id. If more came meanwhile, it is
// another notice. The failures and their duration are counted.
func TestRefusedNoticeIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	var tried []string
	w.all = []Matter{doubt(1)}
	w.step(0)
	w.refuse = errors.New("not now")
	sink := w.r.sink
	w.r.sink = sinkFunc(func(ctx context.Context, n *Notice) error {
		tried = append(tried, n.ID)
		return sink.Put(ctx, n)
	})
	w.step(time.Minute)
	w.step(time.Second)
	s := w.r.now()
	if s.Failures != 2 || s.Taken != 0 || s.Late <= 0 || s.Trouble != "not now" || len(w.notices) != 0 {
		t.Errorf("%+v", s)
	}
	w.refuse = nil
	w.wants("taken", w.step(time.Second), 1, 0, 0)
	if s = w.r.now(); s.Failures != 2 || s.Taken != 1 || s.Late != 0 || s.Trouble != "" || s.Last == 0 {
		t.Errorf("%+v", s)
	}
	if len(tried) != 3 || tried[0] != tried[1] || tried[0] != tried[2] {
		t.Errorf("ids %v", tried)
	}
	w.all = []Matter{doubt(1), doubt(2)}
	w.step(0)
	w.wants("another", w.step(time.Minute), 1, 0, 0)
	if tried[3] == tried[0] {
		t.Error("another notice has the id of the first: its receiver would drop it")
	}
	w.all = append(w.all, doubt(3))
	w.step(0)
	w.refuse = errors.New("not now")
	w.step(time.Minute)
	w.all = w.all[:2]
	w.step(time.Second)
	if s = w.r.now(); s.Late != 0 {
		t.Errorf("it is late with what no longer waits: %+v", s)
	}
}

type sinkFunc func(context.Context, *Notice) error

func (f sinkFunc) Put(ctx context.Context, n *Notice) error { return f(ctx, n) }
func (f sinkFunc) Close() error                             { return nil }

// TestWhatComesBackHasAnotherID: a receiver that drops ids which it already has must not drop a new doubt of
// the same trace.
func TestWhatComesBackHasAnotherID(t *testing.T) {
	w := newWorld(t)
	ids := map[string]bool{}
	for range 3 {
		w.all = []Matter{doubt(1)}
		w.step(0)
		w.wants("it waits", w.step(time.Minute), 1, 0, 0)
		w.all, w.fates[doubt(1).TraceID] = nil, Settled
		w.step(time.Second)
	}
	for _, n := range w.notices {
		ids[n.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d ids", len(ids))
	}
}

// TestNoticesComeNotBeforeThePauseIsOver: doubts that come during the pause are in the next notice.
func TestNoticesComeNotBeforeThePauseIsOver(t *testing.T) {
	w := newWorld(t)
	w.r.conf.Pause.D, w.r.conf.After.D = 10*time.Minute, time.Nanosecond
	w.all = []Matter{doubt(1)}
	w.step(0)
	w.wants("first", w.step(time.Second), 1, 0, 0)
	for i := range 8 {
		w.all = append(w.all, doubt(byte(2+i)))
		w.r.saved = time.Time{}
		w.wants("in the pause", w.step(time.Minute), 0, 0, 0)
	}
	w.restart()
	w.wants("in the pause, restarted", w.step(time.Minute), 0, 0, 0)
	w.wants("after it", w.step(time.Minute), 8, 0, 0)
}

// TestTenThousandDoubtsAreOneNotice: the notice has their counts, and names the first few of them, the
// oldest.
func TestTenThousandDoubtsAreOneNotice(t *testing.T) {
	w := newWorld(t)
	for i := range 10000 {
		m := doubt(1)
		m.TraceID, m.Since = tga.ID{2, byte(i >> 8), byte(i)}, tga.Millis(20000-i)
		w.all = append(w.all, m)
	}
	w.step(0)
	w.wants("all of them", w.step(time.Minute), 10000, 0, 0)
	n := w.notices[0]
	if len(n.Matters) != 3 || n.More != 9997 || n.Matters[0].Since != 10001 || n.Subject != "tgad on h: 10000 calls are in doubt" {
		t.Errorf("%q, %d named, %d more, the first of %d", n.Subject, len(n.Matters), n.More, n.Matters[0].Since)
	}
	if !strings.Contains(n.Text, "And 9997 more. To list what waits:\n  tgad in-doubt\n") || len(n.Text) > 2000 {
		t.Errorf("%d bytes: %s", len(n.Text), n.Text)
	}
	w.restart()
	w.wants("none again", w.step(time.Hour), 0, 0, 0)
	w.r.conf.Resolved = true
	for _, m := range w.all {
		w.fates[m.TraceID] = Settled
	}
	w.all = nil
	got := 0
	for range 30 {
		for _, n := range w.step(time.Second) {
			got += n.Resolved[config.OnDoubt]
		}
	}
	if got != 10000 || len(w.r.book.Matters) != 0 {
		t.Errorf("%d are said to be settled, %d are remembered", got, len(w.r.book.Matters))
	}
}

// TestSettledIsToldToWhomWantsToKnow: a receiver is told the end only of what it was told of. A doubt that
// goes on is neither settled nor reported again. A question that another one replaced does not count as
// settled.
func TestSettledIsToldToWhomWantsToKnow(t *testing.T) {
	w := newWorld(t)
	w.r.conf.Resolved = true
	w.all = []Matter{doubt(1), doubt(2), doubt(3)}
	w.step(0)
	w.all = append(w.all, doubt(4))
	w.wants("three", w.step(time.Minute), 3, 0, 0)
	w.all = nil
	w.fates[doubt(1).TraceID], w.fates[doubt(3).TraceID], w.fates[doubt(4).TraceID] = Settled, Replaced, Settled
	w.refuse = errors.New("not now")
	w.step(time.Second)
	w.refuse = nil
	w.wants("the first", w.step(time.Second), 0, 0, 1)
	n := w.notices[1]
	if m := n.Matters[0]; m.TraceID != doubt(1).TraceID || m.Event != "resolved" || m.State != "COMPLETED" || len(m.Commands) != 0 || n.Subject != "tgad on h: no longer: 1 call is in doubt" {
		t.Errorf("%q: %+v", n.Subject, m)
	}
	w.wants("no more", w.step(time.Hour), 0, 0, 0)
	w.all = []Matter{doubt(2)}
	w.wants("the second waits again, and was told", w.step(time.Hour), 0, 0, 0)
	w.all, w.fateOf = nil, errors.New("unreadable")
	w.wants("nobody can tell", w.step(time.Hour), 0, 0, 0)
	if len(w.r.book.Matters) != 1 || w.r.now().Trouble != "unreadable" {
		t.Errorf("%d remembered, %+v", len(w.r.book.Matters), w.r.now())
	}
}

// TestEndIsToldToWhomMayHaveHeard: a notice whose answer was lost may have been received. So its end is
// reported, also after a restart. If a notice was never sent, its end is not reported.
func TestEndIsToldToWhomMayHaveHeard(t *testing.T) {
	w := newWorld(t)
	w.r.conf.Resolved = true
	w.all = []Matter{doubt(1)}
	w.step(0)
	w.r.sink = sinkFunc(func(context.Context, *Notice) error { return errors.New("the answer was lost") })
	w.step(time.Minute)
	w.all = append(w.all, doubt(2))
	w.r.saved = time.Time{}
	w.step(time.Second)
	w.all, w.fates[doubt(1).TraceID], w.fates[doubt(2).TraceID] = nil, Settled, Settled
	w.restart()
	got := w.step(time.Second)
	w.wants("the first, restarted", got, 0, 0, 1)
	if m := got[0].Matters[0]; m.TraceID != doubt(1).TraceID {
		t.Errorf("%+v", m)
	}
	if len(w.r.book.Matters) != 0 {
		t.Errorf("%d are remembered", len(w.r.book.Matters))
	}
}

// TestFiltersChooseWhoIsTold: filters select by kind, namespace, server and tool. A matter that belongs to
// no call goes to every receiver. A matter that a new filter excludes is forgotten, not settled.
func TestFiltersChooseWhoIsTold(t *testing.T) {
	other := doubt(2)
	other.Namespace, other.Server, other.Tool = "other", "mail", "send"
	approval := doubt(3)
	approval.Kind = config.OnApproval
	frozen := Matter{Kind: config.OnFrozen, Cause: "a restored backup"}
	for what, c := range map[string]struct {
		change func(*config.Notify)
		want   int
	}{
		"everything":      {func(*config.Notify) {}, 4},
		"doubts":          {func(c *config.Notify) { c.On = []string{config.OnDoubt} }, 2},
		"decisions":       {func(c *config.Notify) { c.On = []string{config.OnApproval} }, 1},
		"the namespace":   {func(c *config.Notify) { c.Namespace = "other" }, 2},
		"the server":      {func(c *config.Notify) { c.Server = "mail" }, 2},
		"the tool":        {func(c *config.Notify) { c.Tool = "charge" }, 3},
		"another's tool":  {func(c *config.Notify) { c.Server, c.Tool = "mail", "charge" }, 1},
		"nobody's traces": {func(c *config.Notify) { c.Namespace, c.On = "none", []string{config.OnDoubt} }, 0},
	} {
		w := newWorld(t)
		c.change(&w.r.conf)
		w.all = []Matter{doubt(1), other, approval, frozen}
		w.step(0)
		w.wants(what, w.step(time.Minute), c.want, 0, 0)
		w.r.conf.Namespace, w.r.conf.Resolved = "no such", true
		w.r.conf.On = []string{config.OnDoubt}
		w.wants(what+", and another filter", w.step(time.Hour), 0, 0, 0)
		if len(w.r.book.Matters) != 0 {
			t.Errorf("%s: %d are remembered", what, len(w.r.book.Matters))
		}
	}
}

// TestClockStepsDelayNothing: a wall clock that is set back or forward, while the receiver runs or between
// two processes, delays no first notice and does not silence the receiver.
func TestClockStepsDelayNothing(t *testing.T) {
	for _, step := range []time.Duration{-30 * 24 * time.Hour, -time.Hour, time.Hour, 30 * 24 * time.Hour} {
		for _, restarts := range []bool{false, true} {
			w := newWorld(t)
			w.r.conf.Every.D, w.r.conf.Pause.D = 2*time.Hour, time.Minute
			w.all = []Matter{doubt(1)}
			w.r.saved = time.Time{}
			w.step(0)
			set := func() {
				w.wall = w.wall.Add(step)
				if restarts {
					w.restart()
				}
			}
			set()
			what := fmt.Sprintf("set by %s, restarted %t", step, restarts)
			first := w.step(time.Second)
			if early := restarts && step > 0; early != (len(first) == 1) {
				t.Fatalf("%s: %d notices after a second", what, len(first))
			}
			if len(first) == 0 {
				w.wants(what, w.step(time.Minute), 1, 0, 0)
			}
			set()
			if again := w.step(time.Minute); len(again) > 0 != (restarts && step > 2*time.Hour) {
				t.Errorf("%s: %d notices too soon", what, len(again))
			}
			// If the wall clock shows a time twice, the second one counts: a repeat is late by at most this
			// step.
			again := w.step(2 * time.Hour)
			if len(again) == 0 && step == -time.Hour {
				again = w.step(time.Hour)
			}
			w.wants(what+", again", again, 0, 1, 0)
		}
	}
}

// TestBookThatCannotBeReadTellsEverythingAgain: it is better to tell a receiver twice than not at all.
func TestBookThatCannotBeReadTellsEverythingAgain(t *testing.T) {
	for _, text := range []string{"", "{", `{"matters":{"x":{}}}`, `{"matters":{"doubt 00000000000000000000000000000000 ":null}}`, `{"matters":null}`, `[]`} {
		w := newWorld(t)
		if err := w.r.duty.Keep(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.all = []Matter{doubt(1)}
		w.step(0)
		w.wants(text, w.step(time.Minute), 1, 0, 0)
		w.restart()
		w.wants(text+", written anew", w.step(time.Hour), 0, 0, 0)
	}
}

// TestFullDiskRepeatsNothing: what cannot be written is remembered while the process lives, and is written
// once that is possible. It delays no notice.
func TestFullDiskRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	kept := w.r.duty.(duty.File)
	w.r.duty = duty.File(filepath.Join(string(kept), "nowhere", "r"))
	w.all = []Matter{doubt(1)}
	w.step(0)
	w.wants("told all the same", w.step(time.Minute), 1, 0, 0)
	if !strings.Contains(w.r.now().Trouble, "not kept") || w.r.now().Failures != 0 {
		t.Errorf("%+v", w.r.now())
	}
	for range 3 {
		w.r.saved = time.Time{}
		w.wants("once", w.step(time.Minute), 0, 0, 0)
	}
	w.r.duty, w.r.saved = kept, time.Time{}
	w.wants("written", w.step(time.Minute), 0, 0, 0)
	if w.r.now().Trouble != "" {
		t.Errorf("%+v", w.r.now())
	}
	w.restart()
	w.step(0)
	w.wants("and known", w.step(time.Hour), 0, 0, 0)
}

// TestUnreadableStoreSettlesNothing: if the store cannot be listed, nothing is reported, and what was
// reported stays so.
func TestUnreadableStoreSettlesNothing(t *testing.T) {
	w := newWorld(t)
	s := &Service{world: w, all: []*receiver{w.r}, say: slog.New(slog.DiscardHandler)}
	w.all = []Matter{doubt(1)}
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.all, w.err = nil, tga.Errorf(tga.StoreUnavailable, "the disk fails")
	if err := s.look(t.Context()); !errors.Is(err, tga.StoreUnavailable) {
		t.Fatal(err)
	}
	if seen := *s.seen.Load(); len(seen) != 1 {
		t.Errorf("%d wait", len(seen))
	}
}
