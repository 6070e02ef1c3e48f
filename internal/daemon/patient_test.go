package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestExecutorsWordWaitsForTheLease: an executor that reports the end of its attempt need not repeat the
// request because somebody else holds the lease for a moment. Here the holder is the sender of the
// call, so in the end the executor's permit is not valid.
func TestExecutorsWordWaitsForTheLease(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	for key, say := range map[string]func(runtime.Begun) error{
		"finish": func(g runtime.Begun) error {
			_, err := b.client.Finish(ctx, g.Result.TraceID, g.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"ok":1}`)}})
			return err
		},
		"not sent": func(g runtime.Begun) error {
			_, err := b.client.NotSent(ctx, g.Result.TraceID, g.Permit, "no route", 0)
			return err
		},
	} {
		c := mintChain(t, key, nil)
		held, err := b.client.Lease(ctx, c.trace, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.client.Append(ctx, c.trace, c.begin(held.Lease)); err != nil {
			t.Fatal(err)
		}
		begun := runtime.Begun{Result: runtime.Result{TraceID: c.trace}}
		said := make(chan error, 1)
		go func() { said <- say(begun) }()
		// In the daemon, and not answered: each look is a round trip of its own.
		for seen := 0; seen < 10; {
			select {
			case err := <-said:
				t.Fatalf("%s: answered while the lease is held: %v", key, err)
			default:
			}
			if b.scrape("tgad_calls_in_flight") >= 1 {
				seen++
			}
		}
		if r, err := b.client.Release(ctx, held); err != nil || !r.Released {
			t.Fatal(r, err)
		}
		if err := <-said; tga.CodeOf(err) != tga.PermissionDenied {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestPatienceEnds: patient stops when its time is over, and when its caller stops waiting. It does not
// repeat after another error.
func TestPatienceEnds(t *testing.T) {
	held := tga.Errorf(tga.StateLockAcquireFailed, "held")
	tries := 0
	failing := func(err error) func(context.Context) (int, error) {
		return func(context.Context) (int, error) { tries++; return tries, err }
	}
	if _, err := patient(time.Millisecond, failing(held))(t.Context()); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := patient(time.Hour, failing(held))(ended); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Error(err)
	}
	tries = 0
	if _, err := patient(time.Hour, failing(tga.Errorf(tga.PermissionDenied, "no")))(t.Context()); tga.CodeOf(err) != tga.PermissionDenied || tries != 1 {
		t.Error(tries, err)
	}
	tries = 0
	n, err := patient(time.Hour, func(ctx context.Context) (int, error) {
		if tries++; tries < 3 {
			return 0, held
		}
		return tries, nil
	})(t.Context())
	if err != nil || n != 3 {
		t.Error(n, err)
	}
}

// TestCallsDoNotWaitForReceivers: while the service of notices ends, which may wait for receivers, a doubt of a call is
// heard at once.
func TestCallsDoNotWaitForReceivers(t *testing.T) {
	b := setup(t, "")
	d, err := open(t.Context(), withClock(b.options()))
	if err != nil {
		t.Fatal(err)
	}
	ending, release := make(chan struct{}), make(chan struct{})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	d.people.ctx, d.people.stop = over, func() {
		close(ending)
		<-release
	}
	replaced := make(chan struct{})
	go func() {
		defer close(replaced)
		d.replaceTellers(d.people.service.Load())
	}()
	<-ending
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		d.observe(runtime.Event{Kind: runtime.EventDoubt})
	}()
	select {
	case <-heard:
	case <-time.After(5 * time.Second):
		t.Error("the doubt waits for the service to end")
	}
	close(release)
	<-replaced
	<-heard
	d.people.stop()
	if err := d.close(); err != nil {
		t.Error(err)
	}
}
