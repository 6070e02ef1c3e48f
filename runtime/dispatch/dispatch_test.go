package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var call = runtime.Call{Server: "payments", Tool: "charge", Attempt: 1}

var (
	errDial  = fmt.Errorf("%w: dial refused", runtime.ErrNotSent)
	errDoubt = errors.New("connection reset")
	done     = runtime.Reply{Status: tga.StatusSuccess, Result: []byte("done")}
	failed   = runtime.Reply{Status: tga.StatusFailure, ErrorCode: "TOOL_ERROR"}
)

// tool answers each dispatch with the next item of its script, and repeats the last item. It
// counts the dispatches.
type tool struct {
	script []any // runtime.Reply or error
	sends  atomic.Int32
	before func(ctx context.Context)
}

func (f *tool) Dispatch(ctx context.Context, _ runtime.Call) (runtime.Reply, error) {
	n := int(f.sends.Add(1))
	if f.before != nil {
		f.before(ctx)
	}
	switch v := f.script[min(n, len(f.script))-1].(type) {
	case error:
		return runtime.Reply{}, v
	default:
		return v.(runtime.Reply), nil
	}
}

func (f *tool) Prepare(context.Context, runtime.Call) ([]chain.Attachment, error) {
	return []chain.Attachment{{Kind: chain.AttachBlob, Key: []byte("k")}}, nil
}

func noLimit(string) time.Duration { return 0 }

// stacks are all the decorators, each alone and all together.
func stacks(next runtime.Dispatcher) map[string]runtime.Dispatcher {
	whole := dispatch.Timeout(dispatch.Retry(dispatch.Limit(dispatch.Breaker(next, dispatch.BreakerOptions{}), 2), dispatch.RetryOptions{}), noLimit)
	return map[string]runtime.Dispatcher{
		"router":  dispatch.Router{"payments": next},
		"timeout": dispatch.Timeout(next, noLimit),
		"retry":   dispatch.Retry(next, dispatch.RetryOptions{}),
		"limit":   dispatch.Limit(next, 2),
		"breaker": dispatch.Breaker(next, dispatch.BreakerOptions{}),
		"whole":   dispatch.Router{"payments": whole},
	}
}

// TestOnlyNotSentIsRetried: a call that may have reached the tool is not sent again.
func TestOnlyNotSentIsRetried(t *testing.T) {
	for _, c := range []struct {
		name   string
		script []any
		sends  int32
		err    error
	}{
		{"answer", []any{done}, 1, nil},
		{"tool failure", []any{failed}, 1, nil},
		{"doubt", []any{errDoubt}, 1, errDoubt},
		{"time-out that may have been sent", []any{context.DeadlineExceeded}, 1, context.DeadlineExceeded},
		{"not sent, then answer", []any{errDial, done}, 2, nil},
		{"not sent, then doubt", []any{errDial, errDoubt, done}, 2, errDoubt},
		{"never sent", []any{errDial}, 3, runtime.ErrNotSent},
		{"open breaker below", []any{errors.Join(errDial, tga.Errorf(tga.CircuitOpen, "x"))}, 1, runtime.ErrNotSent},
		{"unknown below", []any{errors.Join(errDial, tga.Errorf(tga.NotFound, "x"))}, 1, runtime.ErrNotSent},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &tool{script: c.script}
			_, err := dispatch.Retry(f, dispatch.RetryOptions{}).Dispatch(t.Context(), call)
			if !errors.Is(err, c.err) || f.sends.Load() != c.sends {
				t.Errorf("%s: %d sends, %v; want %d, %v", c.name, f.sends.Load(), err, c.sends, c.err)
			}
			if (err != nil) && errors.Is(err, runtime.ErrNotSent) != errors.Is(c.err, runtime.ErrNotSent) {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
}

// TestAnswerSurvivesCancellation cancels the caller while the tool answers. The answer
// is evidence of what happened: it must arrive whole, through every decorator.
func TestAnswerSurvivesCancellation(t *testing.T) {
	for _, script := range []any{done, failed, errDoubt, errDial} {
		f := &tool{script: []any{script}}
		for name, d := range stacks(f) {
			ctx, cancel := context.WithCancel(context.Background())
			f.sends.Store(0)
			f.before = func(context.Context) { cancel() }
			reply, err := d.Dispatch(ctx, call)
			want, _ := script.(runtime.Reply)
			wantErr, _ := script.(error)
			if reply.Status != want.Status || string(reply.Result) != string(want.Result) || !errors.Is(err, wantErr) || f.sends.Load() != 1 {
				t.Errorf("%s: got %+v, %v after %d sends, want %+v, %v", name, reply, err, f.sends.Load(), want, wantErr)
			}
			if errors.Is(err, runtime.ErrNotSent) != errors.Is(wantErr, runtime.ErrNotSent) {
				t.Errorf("%s: %v made of %v", name, err, wantErr)
			}
		}
	}
}

// TestRefusalsAreNotSent: what a decorator refuses by itself did not reach the tool.
func TestRefusalsAreNotSent(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	f := &tool{script: []any{errDoubt}}
	open := dispatch.Breaker(f, dispatch.BreakerOptions{Failures: 1, Open: time.Hour})
	open.Dispatch(context.Background(), call)
	full := dispatch.Limit(dispatch.DispatcherThatBlocks(), 1)
	hold, release := context.WithCancel(context.Background())
	var held sync.WaitGroup
	held.Go(func() { full.Dispatch(hold, call) })
	dispatch.WaitUntilFull(full, "")
	f.sends.Store(0)
	waiting, giveUp := context.WithTimeout(context.Background(), time.Millisecond)
	defer giveUp()
	for _, c := range []struct {
		name string
		d    runtime.Dispatcher
		ctx  context.Context
		code tga.Code
	}{
		{"unknown server", dispatch.Router{}, context.Background(), tga.NotFound},
		{"server in another case", dispatch.Router{"Payments": f}, context.Background(), tga.NotFound},
		{"open breaker", open, context.Background(), tga.CircuitOpen},
		{"no place until the end", full, waiting, tga.RateLimited},
		{"limit, no time left", dispatch.Limit(f, 1), ended, tga.RateLimited},
		{"retry, no time left", dispatch.Retry(f, dispatch.RetryOptions{}), ended, tga.ToolTimeout},
		{"timeout, no time left", dispatch.Timeout(f, noLimit), ended, tga.ToolTimeout},
	} {
		for range 32 { // the refusal must not depend on chance
			_, err := c.d.Dispatch(c.ctx, call)
			if !errors.Is(err, runtime.ErrNotSent) || tga.CodeOf(err) != c.code {
				t.Fatalf("%s: %v, want %s, not sent", c.name, err, c.code)
			}
		}
	}
	release()
	held.Wait()
	if n := f.sends.Load(); n != 0 {
		t.Errorf("%d calls reached the tool", n)
	}
	if _, err := (dispatch.Router{}).Prepare(context.Background(), call); !errors.Is(err, tga.NotFound) {
		t.Errorf("prepare for an unknown server: %v", err)
	}
}

func TestRetryBacksOffWithinItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tool{script: []any{errDial}}
		var at []time.Duration
		start := time.Now()
		f.before = func(context.Context) { at = append(at, time.Since(start)) }
		o := dispatch.RetryOptions{Tries: 5, Delay: time.Second, MaxDelay: 2 * time.Second}
		dispatch.Retry(f, o).Dispatch(t.Context(), call)
		if len(at) != 5 {
			t.Fatalf("tries at %v", at)
		}
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second} {
			if got := at[i+1] - at[i]; got < want*3/4 || got > want*5/4 {
				t.Errorf("pause %d was %v, want %v within a quarter", i+1, got, want)
			}
		}
		// A context that ends in a pause ends the tries, and the call was not sent.
		f.sends.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err := dispatch.Retry(f, o).Dispatch(ctx, call)
		if !errors.Is(err, runtime.ErrNotSent) || f.sends.Load() != 1 || time.Since(start) != 500*time.Millisecond {
			t.Errorf("after %v and %d sends: %v", time.Since(start), f.sends.Load(), err)
		}
	})
}

func TestTimeoutIsPerTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tool{script: []any{errDoubt}, before: func(ctx context.Context) { <-ctx.Done() }}
		d := dispatch.Timeout(f, func(tool string) time.Duration {
			return map[string]time.Duration{"charge": time.Second, "refund": time.Minute}[tool]
		})
		for tool, want := range map[string]time.Duration{"charge": time.Second, "refund": time.Minute} {
			c := call
			c.Tool = tool
			start := time.Now()
			_, err := d.Dispatch(t.Context(), c)
			if time.Since(start) != want || !errors.Is(err, tga.ToolTimeout) || !errors.Is(err, errDoubt) || errors.Is(err, runtime.ErrNotSent) {
				t.Errorf("%s: after %v: %v", tool, time.Since(start), err)
			}
		}
		// An answer counts even if it comes after the time is over.
		f.script = []any{done}
		if reply, err := d.Dispatch(t.Context(), call); err != nil || reply.Status != tga.StatusSuccess {
			t.Errorf("%+v, %v", reply, err)
		}
		// What was not sent stays so.
		f.script = []any{errDial}
		if _, err := d.Dispatch(t.Context(), call); !errors.Is(err, runtime.ErrNotSent) || errors.Is(err, tga.ToolTimeout) {
			t.Error(err)
		}
		// The caller's own bound holds where it is the shorter one.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		f.script = []any{errDoubt}
		start := time.Now()
		if _, err := d.Dispatch(ctx, call); time.Since(start) != time.Millisecond || !errors.Is(err, tga.ToolTimeout) {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestLimitHoldsForCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, callers = 3, 10
		var now, most atomic.Int32
		f := &tool{script: []any{done}, before: func(context.Context) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
		}}
		d := dispatch.Limit(f, places)
		var wg sync.WaitGroup
		start := time.Now()
		for range callers {
			wg.Go(func() {
				if _, err := d.Dispatch(t.Context(), call); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != places || time.Since(start) != 4*time.Second {
			t.Errorf("%d at once, %v in all", most.Load(), time.Since(start))
		}
	})
}

func TestDecoratorsHandPrepareOn(t *testing.T) {
	for name, d := range stacks(&tool{}) {
		p, ok := d.(runtime.Preparer)
		if !ok {
			t.Errorf("%s hides Prepare", name)
			continue
		}
		if a, err := p.Prepare(context.Background(), call); err != nil || len(a) != 1 {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	for name, d := range stacks(runtime.DispatcherFunc(nil)) {
		if a, err := d.(runtime.Preparer).Prepare(context.Background(), call); err != nil || a != nil {
			t.Errorf("%s of a dispatcher without Prepare: %v, %v", name, a, err)
		}
	}
}

// checked is a tool that refuses what it is told to, by its key.
type checked struct{ tool }

func (c *checked) Check(_ context.Context, call runtime.Call) error {
	switch call.Key {
	case "bad":
		return tga.Errorf(tga.ValidationError, "it cannot be carried")
	case "none":
		return tga.Errorf(tga.NotFound, "no such tool")
	}
	return nil
}

func TestDecoratorsHandCheckOn(t *testing.T) {
	for name, d := range stacks(&checked{}) {
		for key, want := range map[string]tga.Code{"bad": tga.ValidationError, "none": tga.NotFound, "good": ""} {
			c := call
			c.Key = key
			if err := runtime.Check(context.Background(), d, c); tga.CodeOf(err) != want {
				t.Errorf("%s, %s: %v", name, key, err)
			}
		}
	}
	unknown := runtime.Call{Server: "elsewhere"}
	if err := (dispatch.Router{}).Check(context.Background(), unknown); !errors.Is(err, tga.NotFound) {
		t.Errorf("a server that is not there: %v", err)
	}
	unknown.Remote = true
	if err := (dispatch.Router{}).Check(context.Background(), unknown); err != nil {
		t.Errorf("a server of a remote executor: %v", err)
	}
}
