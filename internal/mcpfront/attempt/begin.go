package attempt

import (
	"context"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/runtime"
)

// pause waits for d. It returns false as soon as no call waits for the outcome any more.
func (a *Attempt) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a.lonely.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// Begin asks the log what to do with the call. While the log is away Begin asks again, for at
// most LogTimeout. That is safe: nothing was sent, and the same begin id gets the same attempt.
func (a *Attempt) Begin(ctx context.Context, beginID string) (runtime.Begun, error) {
	o := &a.s.o
	req := runtime.BeginRequest{BeginID: beginID, Request: runtime.Request{
		TraceID: a.Trace(), Server: o.Server, Tool: a.q.Params.Tool, Args: a.q.Args, Namespace: o.Namespace, Meta: a.meta,
	}}
	req.Connection, req.Hint = a.conn, a.q.Hint
	switch {
	case a.Keyless:
		// The log decides which tools are read tools. It refuses a write call without a key
		// before it writes anything.
		req.Connection.ID = ""
	case a.q.LedgerKey != "":
		req.Key = a.q.LedgerKey
	case a.q.Derived:
		req.Scope = a.q.Scope // the log decides whether the call is a repeat
	default:
		req.Key = a.Key
	}
	req.Retry = a.anew
	var b runtime.Begun
	err := a.ask(ctx, func(ctx context.Context) (err error) {
		notes := a.along(ctx)
		if a.Present != nil {
			a.s.Reap()
		}
		req.Delivered = nil
		for _, d := range notes {
			req.Delivered = append(req.Delivered, d.trace)
		}
		a.begunAt = time.Now()
		b, err = o.Log.Begin(ctx, req)
		a.s.arrived(notes, err == nil)
		return err
	})
	return b, err
}

// ask makes a request to the log. While the log is away it tries again, for at most LogTimeout
// and as long as a call waits for the outcome.
func (a *Attempt) ask(ctx context.Context, f func(context.Context) error) error {
	return a.askWhile(ctx, func(d time.Duration) bool { return a.pause(ctx, d) }, f)
}

// askWhile is [Attempt.ask] with another rest between two tries. It stops when rest returns
// false.
func (a *Attempt) askWhile(ctx context.Context, rest func(time.Duration) bool, f func(context.Context) error) error {
	return asklog.WhileAway(a.s.o.LogTimeout, func(d time.Duration, err error) bool {
		a.say("waiting for tgad's log: " + err.Error())
		return rest(d)
	}, func() error { return asklog.Bounded(ctx, f) })
}

// along takes the deliveries that the begin of this call notes. It first waits for the answers
// that are still being written: the client may have such an answer, and have made this call
// because of it, before the write has returned in this process.
func (a *Attempt) along(ctx context.Context) []*Delivery {
	for _, d := range a.q.Earlier {
		select {
		case <-d.given.C:
		case <-a.lonely.C:
		case <-ctx.Done():
		}
	}
	for {
		all, moved := a.s.along(a.q.To, a.Key)
		if moved == nil {
			return all
		}
		select {
		case <-moved:
		case <-a.lonely.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
