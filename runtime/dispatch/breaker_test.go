package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch"
	"github.com/tgad/tgad/schemas/tga"
)

func TestBreakerCountsTheServerAndNotTheTool(t *testing.T) {
	for _, c := range []struct {
		name   string
		script any
		opens  bool
	}{
		{"answers", done, false},
		{"tool failures", failed, false},
		{"doubts", errDoubt, true},
		{"dials that fail", errDial, true},
	} {
		f := &tool{script: []any{c.script}}
		d := dispatch.Breaker(f, dispatch.BreakerOptions{Failures: 3, Open: time.Hour})
		var err error
		for range 4 {
			_, err = d.Dispatch(context.Background(), call)
		}
		if opened := errors.Is(err, tga.CircuitOpen); opened != c.opens || (f.sends.Load() == 3) != c.opens {
			t.Errorf("%s: %v after %d sends", c.name, err, f.sends.Load())
		}
	}
	// One answer between failures starts the count again.
	f := &tool{script: []any{errDoubt, errDoubt, failed, errDoubt, errDoubt, done}}
	d := dispatch.Breaker(f, dispatch.BreakerOptions{Failures: 3, Open: time.Hour})
	for range 6 {
		if _, err := d.Dispatch(context.Background(), call); errors.Is(err, tga.CircuitOpen) {
			t.Error("two failures in a row opened a breaker of three")
		}
	}
	// A caller that goes away says nothing about the server.
	f = &tool{script: []any{context.Canceled}}
	d = dispatch.Breaker(f, dispatch.BreakerOptions{Failures: 1, Open: time.Hour})
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		f.before = func(context.Context) { cancel() }
		if _, err := d.Dispatch(ctx, call); errors.Is(err, tga.CircuitOpen) {
			t.Error("callers that went away opened the breaker")
		}
	}
}

func TestBreakerTriesAgainAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		f := &tool{script: []any{errDoubt, errDoubt, done, errDoubt, done}}
		d := dispatch.Breaker(f, dispatch.BreakerOptions{Failures: 1, Open: time.Hour, Trials: 2, OnChange: func(_, s string) { changes = append(changes, s) }})
		send := func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = fmt.Errorf("%v", v)
				}
			}()
			_, err = d.Dispatch(t.Context(), call)
			return err
		}
		for _, step := range []struct {
			after time.Duration
			sent  bool
			state string // the newest change
			panic bool
		}{
			{0, true, "open", false}, // doubt
			{time.Hour - 1, false, "open", false},
			{1, true, "open", true}, // half-open, and the trial panics: it gives its permit back
			{time.Hour, true, "half-open", false},
			{0, true, "open", false}, // one success of two, then doubt
			{time.Hour, true, "half-open", false},
			{0, true, "closed", false},
			{0, true, "closed", false},
		} {
			time.Sleep(step.after)
			f.before = func(context.Context) {
				if step.panic {
					panic("a broken client")
				}
			}
			before := f.sends.Load()
			err := send()
			if sent := f.sends.Load() > before; sent != step.sent || errors.Is(err, tga.CircuitOpen) == sent || changes[len(changes)-1] != step.state {
				t.Fatalf("%+v: sent %v, %v, changes %v", step, sent, err, changes)
			}
		}
	})
}

// TestCallersFaultsDoNotCount makes each mistake that a caller can make, more often than the
// breaker allows failures. A closed or half-open breaker stays in its state, and the next
// good call is sent.
func TestCallersFaultsDoNotCount(t *testing.T) {
	const failures = 3
	late := func(kind tga.Code) error { return errors.Join(runtime.ErrNotSent, tga.Errorf(kind, "found late")) }
	canceled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Nanosecond)
	}
	slow := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(ctx, time.Nanosecond, runtime.ErrSendTimeout)
	}
	for _, c := range []struct {
		name   string
		key    string
		script any
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		counts bool
	}{
		{"a key that cannot be carried", "bad", done, nil, false},
		{"a tool that is not there", "none", done, nil, false},
		{"arguments found bad late", "", late(tga.ValidationError), nil, false},
		{"a tool found missing late", "", late(tga.NotFound), nil, false},
		{"a caller that goes away", "", errDoubt, canceled, false},
		{"a caller with little time", "", errDoubt, short, false},
		{"a tool that takes too long", "", errDoubt, slow, true},
		{"a server that resets", "", errDoubt, nil, true},
		{"a server that is down", "", errDial, nil, true},
		{"a validation error in doubt", "", tga.Errorf(tga.ValidationError, "after the write"), nil, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &checked{}
			d := dispatch.Breaker(f, dispatch.BreakerOptions{Failures: failures, Open: time.Hour, Trials: 1})
			send := func(key string, script any, in func(context.Context) (context.Context, context.CancelFunc)) error {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if in != nil {
					ctx, cancel = in(ctx)
					f.before = func(ctx context.Context) { <-ctx.Done() }
				}
				defer func() { f.before = nil; cancel() }()
				f.script = []any{script}
				call := call
				call.Key = key
				_, err := d.Dispatch(ctx, call)
				return err
			}
			for range failures {
				send(c.key, c.script, c.ctx)
			}
			if open := errors.Is(send("", done, nil), tga.CircuitOpen); open != c.counts {
				t.Errorf("%s: open is %v", c.name, open)
			}
			// Half-open, no caller's fault takes the trial.
			for range failures {
				send("", errDoubt, nil)
			}
			time.Sleep(time.Hour)
			send(c.key, c.script, c.ctx)
			if open := errors.Is(send("", done, nil), tga.CircuitOpen); open != c.counts {
				t.Errorf("%s, half-open: open is %v", c.name, open)
			}
		})
	}
}

// TestATenantStopsItselfAlone: failures or slow calls of one namespace refuse calls of that
// namespace only. A namespace without failures and calls is forgotten.
func TestATenantStopsItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as := func(namespace string) runtime.Call {
			c := call
			c.Namespace = namespace
			return c
		}
		f := &tool{script: []any{errDoubt}}
		broken := dispatch.Breaker(f, dispatch.BreakerOptions{Failures: 2, Open: time.Hour})
		for range 2 {
			broken.Dispatch(t.Context(), as("noisy"))
		}
		f.script = []any{done}
		if _, err := broken.Dispatch(t.Context(), as("noisy")); !errors.Is(err, tga.CircuitOpen) {
			t.Errorf("the tenant that failed: %v", err)
		}
		if _, err := broken.Dispatch(t.Context(), as("quiet")); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		for i := range 1000 {
			broken.Dispatch(t.Context(), as(fmt.Sprint(i)))
		}
		if n := dispatch.Remembered(broken); n != 1 {
			t.Errorf("the breaker remembers %d namespaces, 1 failed", n)
		}

		f.before = func(context.Context) { time.Sleep(time.Minute) }
		full := dispatch.Limit(f, 1)
		var wg sync.WaitGroup
		wg.Go(func() { full.Dispatch(t.Context(), as("noisy")) })
		dispatch.WaitUntilFull(full, "noisy")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := full.Dispatch(ctx, as("noisy")); !errors.Is(err, tga.RateLimited) {
			t.Errorf("the tenant that holds the place: %v", err)
		}
		if _, err := full.Dispatch(t.Context(), as("quiet")); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		wg.Wait()
		if n := dispatch.Remembered(full); n != 0 {
			t.Errorf("the limit remembers %d namespaces, none is in it", n)
		}
	})
}

// TestBreakerForgets: callers choose the names of their namespaces, so a breaker remembers a
// bounded number of those that failed, and an open one longer than others.
func TestBreakerForgets(t *testing.T) {
	var states []string
	f := &tool{script: []any{errDoubt}}
	broken := dispatch.Breaker(f, dispatch.BreakerOptions{Failures: 2, Open: time.Hour, OnChange: func(_, state string) { states = append(states, state) }})
	send := func(namespace string, times int) (err error) {
		c := call
		for c.Namespace = namespace; times > 0; times-- {
			_, err = broken.Dispatch(t.Context(), c)
		}
		return err
	}
	send("open", 2)
	for i := range 3000 {
		send(fmt.Sprint(i), 1)
	}
	if n := dispatch.Remembered(broken); n != 1024 {
		t.Errorf("the breaker remembers %d namespaces", n)
	}
	if err := send("open", 1); !errors.Is(err, tga.CircuitOpen) {
		t.Errorf("the namespace that is refused: %v", err)
	}
	for i := range 3000 {
		send(fmt.Sprint(i), 2)
	}
	opened, closed := 0, 0
	for _, s := range states {
		switch s {
		case "open":
			opened++
		case "closed":
			closed++
		}
	}
	if n := dispatch.Remembered(broken); n != 1024 || opened-closed > 1024 || opened < 3000 {
		t.Errorf("the breaker remembers %d namespaces; %d times one opened, and %d times one closed", n, opened, closed)
	}
}

// TestOnChangeThatPanicsChangesNoAnswer: every call gets the answer of its tool, while the breaker opens and closes.
func TestOnChangeThatPanicsChangesNoAnswer(t *testing.T) {
	was := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(was)
	failed := errors.New("reset")
	answer, told := error(failed), ""
	b := dispatch.Breaker(runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess}, answer
	}), dispatch.BreakerOptions{Failures: 2, Open: time.Nanosecond, Trials: 1, OnChange: func(_, state string) {
		told += state + " "
		panic("no board for " + state)
	}})
	call := runtime.Call{Namespace: "n", Server: "s", Tool: "t", Attempt: 1}
	for _, want := range []error{failed, failed, nil, nil} {
		if answer = want; want == nil {
			time.Sleep(time.Millisecond)
		}
		if _, err := b.Dispatch(t.Context(), call); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if told != "open half-open closed " {
		t.Errorf("told of %q", told)
	}
}
