package attempt

import (
	"context"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/runtime"
)

// pause waits; false when nobody waits for the outcome any more.
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

// Begin asks the log. A log that is away is asked again for a while; nothing was sent
// then, and the same begin id names the same attempt.
func (a *Attempt) Begin(ctx context.Context, beginID string) (runtime.Begun, error) {
	o := &a.s.o
	req := runtime.BeginRequest{BeginID: beginID, Request: runtime.Request{
		TraceID: a.Trace(), Server: o.Server, Tool: a.q.Params.Tool, Args: a.q.Args, Namespace: o.Namespace, Meta: a.meta,
	}}
	req.Connection, req.Hint = a.conn, a.q.Hint
	switch {
	case a.Keyless:
		// Which tools are read tools is the log's to say: it refuses a write call without
		// a key before it writes anything.
		req.Connection.ID = ""
	case a.q.LedgerKey != "":
		req.Key = a.q.LedgerKey
	case a.q.Derived:
		req.Scope = a.q.Scope // and the log says whether it is a repeat
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

// ask asks the log. One that is away is asked again for a while, as long as somebody waits
// for the outcome.
func (a *Attempt) ask(ctx context.Context, f func(context.Context) error) error {
	return a.askWhile(ctx, func(d time.Duration) bool { return a.pause(ctx, d) }, f)
}

// askWhile is [Attempt.ask] with a rest of its own between two tries; false ends them.
func (a *Attempt) askWhile(ctx context.Context, rest func(time.Duration) bool, f func(context.Context) error) error {
	return asklog.WhileAway(a.s.o.LogTimeout, func(d time.Duration, err error) bool {
		a.say("waiting for tgad's log: " + err.Error())
		return rest(d)
	}, func() error { return asklog.Bounded(ctx, f) })
}

// along takes what the begin of this call is to note, once that can be done: the client may
// have an answer, and have gone on from it, before the write of that answer has returned here.
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
