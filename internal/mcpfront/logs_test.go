package mcpfront

import (
	"context"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// slowNotes is a log that takes its time to note that an answer was delivered.
type slowNotes struct {
	asklog.Log
	asked   chan struct{} // a note is under way
	take    chan struct{} // closed: it may be taken
	permits atomic.Int32
}

func (l *slowNotes) Begin(ctx context.Context, r runtime.BeginRequest) (runtime.Begun, error) {
	b, err := l.Log.Begin(ctx, r)
	if err == nil && b.Standing == runtime.BeginSend {
		l.permits.Add(1)
	}
	return b, err
}

func (l *slowNotes) Delivered(ctx context.Context, trace tga.ID) error {
	select {
	case l.asked <- struct{}{}:
	default:
	}
	select {
	case <-l.take:
		return l.Log.Delivered(ctx, trace)
	case <-ctx.Done():
		return ctx.Err()
	}
}
