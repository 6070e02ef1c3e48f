package dispatch

import (
	"context"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// Limit lets at most n calls of one server be under way at once; n must be positive.
// Others wait for a place until their context ends, and are then RATE_LIMITED, not
// sent.
func Limit(next runtime.Dispatcher, n int) runtime.Dispatcher {
	return &limit{next, make(chan struct{}, n)}
}

type limit struct {
	next  runtime.Dispatcher
	taken chan struct{}
}

func (l *limit) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	// A select with both ready picks either: a call whose time is over is not sent.
	if err := ctx.Err(); err != nil {
		return runtime.Reply{}, notSent(tga.RateLimited, call, err, "no time was left")
	}
	select {
	case l.taken <- struct{}{}:
		defer func() { <-l.taken }()
		return l.next.Dispatch(ctx, call)
	case <-ctx.Done():
		return runtime.Reply{}, notSent(tga.RateLimited, call, ctx.Err(), "all %d places are taken", cap(l.taken))
	}
}

func (l *limit) Prepare(ctx context.Context, call runtime.Call) ([]wal.Attachment, error) {
	return prepare(ctx, l.next, call)
}
