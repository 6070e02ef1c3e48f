package serving_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestTwoDaemonsSendOnce: the same keys arrive at two daemons at once, each from four callers. Each
// key is sent once, everybody gets the one answer, and both daemons see every trace.
func TestTwoDaemonsSendOnce(t *testing.T) {
	f := newFleet(t, "", "")
	daemons := []*daemon{f.start("a"), f.start("b")}
	keys := 25
	if !testing.Short() {
		keys = 200
	}
	work := make(chan string)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for key := range work {
				res, err := daemons[i%2].Call(t.Context(), call("opaque", key))
				if want := fmt.Sprintf(`{"paid":%q}`, key); err != nil || res.State != tga.Completed || string(res.Value) != want {
					t.Errorf("%s: %v %q, %v", key, res.State, res.Value, err)
				}
			}
		})
	}
	for i := range keys {
		for range 4 {
			work <- fmt.Sprint("key ", i)
		}
	}
	close(work)
	wg.Wait()
	for i := range keys {
		if n := f.tool.sends(fmt.Sprint("key ", i)); n != 1 {
			t.Errorf("key %d was sent %d times", i, n)
		}
	}
	lists := [2][]tga.ID{}
	for i, d := range daemons {
		for o, err := range d.Traces(t.Context(), wire.TracesQuery{All: true}) {
			if err != nil {
				t.Fatal(err)
			}
			lists[i] = append(lists[i], o.TraceID)
		}
		sound(t, d)
	}
	if len(lists[0]) != 4*keys || !slices.Equal(lists[0], lists[1]) {
		t.Errorf("one daemon lists %d traces, the other %d, of %d", len(lists[0]), len(lists[1]), 4*keys)
	}
}

// sound checks the whole store.
func sound(t *testing.T, d *daemon) {
	t.Helper()
	v, err := d.Verify(t.Context(), tga.ID{})
	if err != nil || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

// held makes the tool hold its answers until release is called, and tells of each key that came.
func (w *tool) held(t *testing.T) (came <-chan string, release func()) {
	keys, free := make(chan string, 64), make(chan struct{})
	w.holding(func(key string) {
		keys <- key
		<-free
	})
	release = sync.OnceFunc(func() {
		w.holding(nil)
		close(free)
	})
	t.Cleanup(release)
	return keys, release
}

// TestKilledDaemonIsTakenUp: a daemon is killed while its calls are with the tool. The other one
// sends again what its licence lets it, and shows the rest in doubt, also while another process has the trace
// and only looks at it. It does so once, and leaves the calls of a living daemon alone.
func TestKilledDaemonIsTakenUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", "")
	a, b, c := f.start("a"), f.start("b"), f.start("c")
	came, release := f.tool.held(t)
	for _, x := range []struct {
		d         *daemon
		tool, key string
	}{{a, "opaque", "doubtful"}, {a, "charge", "repeatable"}, {c, "charge", "alive"}} {
		go func() { _, _ = x.d.Call(context.WithoutCancel(t.Context()), call(x.tool, x.key)) }()
	}
	for range 3 {
		<-came
	}
	a.end(syscall.SIGKILL)
	if key := <-came; key != "repeatable" {
		t.Errorf("%q was sent again", key)
	}
	until(t, "the call of the killed daemon is in doubt", func() bool {
		list, err := b.InDoubt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == 1 && list[0].IdempotencyKey == "doubtful"
	})
	f.looksAtDoubt(b)
	time.Sleep(lease + 3*time.Second) // for who would take up what is not left
	release()
	for key, want := range map[string]int{"doubtful": 1, "repeatable": 2, "alive": 1} {
		if key != "doubtful" {
			res, err := b.Call(t.Context(), call("charge", key))
			if err != nil || res.State != tga.Completed {
				t.Errorf("%s: %v, %v", key, res.State, err)
			}
		}
		if n := f.tool.sends(key); n != want {
			t.Errorf("%s was sent %d times, want %d", key, n, want)
		}
	}
	_, err := c.Call(t.Context(), call("opaque", "doubtful"))
	wantCode(t, err, tga.EffectInDoubt)
	sound(t, b)
}

// looksAtDoubt has the trace of the one call in doubt, as a process has it that looks at it, and checks that a
// daemon lists it still.
func (f *fleet) looksAtDoubt(d *daemon) {
	t := f.t
	s, err := postgres.Open(t.Context(), f.url, postgres.Options{Shard: f.shard})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before, err := d.InDoubt(t.Context())
	if err != nil || len(before) != 1 {
		t.Fatalf("in doubt: %+v, %v", before, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held, err := s.Acquire(ctx, before[0].TraceID)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release(held)
	began := time.Now()
	list, err := d.InDoubt(t.Context())
	if took := time.Since(began); err != nil || len(list) != 1 || list[0].TraceID != held.TraceID || took > lease {
		t.Errorf("in doubt while another has the trace: %+v, %v, after %s", list, err, took)
	}
}

// TestCallerWaitsForAnotherDaemon: who asks one daemon for a call that another works on gets its
// answer.
func TestCallerWaitsForAnotherDaemon(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", "")
	a, b := f.start("a"), f.start("b")
	came, release := f.tool.held(t)
	type answer struct {
		res runtime.Result
		err error
	}
	answers := make(chan answer, 2)
	ask := func(d *daemon) {
		res, err := d.Call(t.Context(), call("opaque", "k"))
		answers <- answer{res, err}
	}
	go ask(a)
	<-came
	go ask(b)
	time.Sleep(lease)
	release()
	for range 2 {
		if x := <-answers; x.err != nil || string(x.res.Value) != `{"paid":"k"}` {
			t.Errorf("%v %q, %v", x.res.State, x.res.Value, x.err)
		}
	}
	if n := f.tool.sends("k"); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// TestDrainedDaemonLeavesNothing: SIGTERM lets the call under way come to its end, which another
// daemon serves at once.
func TestDrainedDaemonLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", "")
	a, b := f.start("a"), f.start("b")
	came, release := f.tool.held(t)
	go func() { _, _ = a.Call(context.WithoutCancel(t.Context()), call("opaque", "k")) }()
	<-came
	a.signal(syscall.SIGTERM)
	until(t, "it takes no more calls", func() bool { return a.Ready(t.Context()) != nil })
	release()
	if code := a.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	res, err := b.Call(t.Context(), call("opaque", "k"))
	if err != nil || !res.Replayed || string(res.Value) != `{"paid":"k"}` {
		t.Errorf("%v %q, %v", res.State, res.Value, err)
	}
	if n := f.tool.sends("k"); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// TestStoppedDaemonSendsNothing: a daemon stands still for longer than its lease while callers are
// at it. Another one takes its calls up. When it goes on, it sends none of them.
func TestStoppedDaemonSendsNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", "")
	a, b := f.start("a"), f.start("b")
	var came atomic.Int64
	f.tool.holding(func(string) {
		came.Add(1)
		time.Sleep(200 * time.Millisecond)
	})
	rounds := 1
	if !testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, _ = a.Call(ctx, call("opaque", fmt.Sprint(round, " ", i, " ", n)))
				}
			})
		}
		seen := came.Load()
		until(t, "calls are at work", func() bool { return came.Load() > seen+24 })
		time.Sleep(time.Duration(round) * 37 * time.Millisecond) // at another point of each call
		a.signal(syscall.SIGSTOP)
		stop()
		wg.Wait()
		var before map[string]int
		until(t, "the calls of the stopped daemon are taken up", func() bool {
			before = map[string]int{}
			for o, err := range b.Traces(t.Context(), wire.TracesQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				if o.Held || o.State != tga.Executing.String() {
					return false
				}
				before[o.IdempotencyKey] = f.tool.sends(o.IdempotencyKey)
			}
			return len(before) > 0
		})
		a.signal(syscall.SIGCONT)
		until(t, "the daemon that stood still is ready", func() bool { return a.Ready(t.Context()) == nil })
		time.Sleep(200 * time.Millisecond)
		for key, n := range before {
			if now := f.tool.sends(key); now != n || now > 1 {
				t.Errorf("%q was sent %d times before, %d now", key, n, now)
			}
		}
		list, err := b.InDoubt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			if _, err := a.Abandon(t.Context(), o.TraceID, "it is a test of it"); err != nil {
				t.Error(err)
			}
		}
	}
	f.tool.mu.Lock()
	for key, n := range f.tool.byKey {
		if n > 1 {
			t.Errorf("%q was sent %d times", key, n)
		}
	}
	f.tool.mu.Unlock()
	sound(t, b)
}
