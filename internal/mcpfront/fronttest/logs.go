package fronttest

import (
	"context"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// SlowNotes is a log that delays the notes of deliveries.
type SlowNotes struct {
	asklog.Log
	Asked   chan struct{} // gets a value when a note is under way
	Take    chan struct{} // notes continue once it is closed
	Permits atomic.Int32
}

func (l *SlowNotes) Begin(ctx context.Context, r runtime.BeginRequest) (runtime.Begun, error) {
	b, err := l.Log.Begin(ctx, r)
	if err == nil && b.Standing == runtime.BeginSend {
		l.Permits.Add(1)
	}
	return b, err
}

func (l *SlowNotes) Delivered(ctx context.Context, trace tga.ID) error {
	select {
	case l.Asked <- struct{}{}:
	default:
	}
	select {
	case <-l.Take:
		return l.Log.Delivered(ctx, trace)
	case <-ctx.Done():
		return ctx.Err()
	}
}
