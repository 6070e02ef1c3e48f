package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Timeout bounds each dispatch of a tool: of returns how long it may take, 0 for no
// own bound. If the time runs out without an answer, and the call may have been sent,
// the error is TOOL_TIMEOUT: the call is in doubt.
func Timeout(next runtime.Dispatcher, of func(tool string) time.Duration) runtime.Dispatcher {
	return &timeout{next, of}
}

type timeout struct {
	next runtime.Dispatcher
	of   func(tool string) time.Duration
}

func (t *timeout) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	limit := t.of(call.Tool)
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, runtime.ErrSendTimeout)
		defer cancel()
	}
	if err := ctx.Err(); err != nil {
		return runtime.Reply{}, notSent(tga.ToolTimeout, call, err, "no time was left")
	}
	reply, err := t.next.Dispatch(ctx, call)
	if err == nil || errors.Is(err, runtime.ErrNotSent) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return reply, err
	}
	return runtime.Reply{}, tga.Errorf(tga.ToolTimeout, "%s on %s, attempt %d: no answer in time: %w", call.Tool, call.Server, call.Attempt, err).In(call.TraceID)
}

func (t *timeout) Check(ctx context.Context, call runtime.Call) error {
	return runtime.Check(ctx, t.next, call)
}

func (t *timeout) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	return prepare(ctx, t.next, call)
}
