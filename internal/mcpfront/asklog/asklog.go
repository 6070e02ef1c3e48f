package asklog

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Log is where calls are begun and finished: a daemon's client. What its methods do is
// said at those of [runtime.Runtime].
type Log interface {
	Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error)
	Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error)
	NotSent(ctx context.Context, trace tga.ID, permit runtime.Permit, reason string, wait time.Duration) (runtime.Result, error)
	GiveUp(ctx context.Context, trace tga.ID, permit runtime.Permit, cause string, wait time.Duration) error
	Delivered(ctx context.Context, trace tga.ID) error
	Decide(ctx context.Context, trace tga.ID, vote wire.DecideRequest) (runtime.Result, error)
	Keep(ctx context.Context, r runtime.KeepRequest) (now runtime.Kept, changed bool, err error)
	Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error]
}

// logWait bounds one request to the log. It is no deadline: a deadline would become the
// call's own, and end it.
const logWait = 15 * time.Second

// Bounded makes one request to the log.
func Bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := time.AfterFunc(logWait, cancel)
	defer t.Stop()
	return f(ctx)
}

// Persist is patient, and makes the request again for as long as the log is away.
func Persist(ctx context.Context, f func(context.Context) error) error {
	for pause := (wait.Pause{}); ; {
		err := Patient(ctx, f)
		if !errors.Is(err, tga.StoreUnavailable) {
			return err
		}
		if !wait.Rest(ctx, pause.Next()) {
			return err
		}
	}
}

// Patient makes a request that only tells the log something, and makes it again while
// somebody else who asks about the same call has it for a moment.
func Patient(ctx context.Context, f func(context.Context) error) error {
	for pause := (wait.Pause{}); ; {
		err := Bounded(ctx, f)
		if !errors.Is(err, tga.StateLockAcquireFailed) {
			return err
		}
		if !wait.Rest(ctx, pause.Next()) {
			return err
		}
	}
}

// WhileAway does what asks the log, and again for a while until patience is over where the log is
// away. rest waits between two tries; false ends them.
func WhileAway(patience time.Duration, rest func(time.Duration, error) bool, f func() error) error {
	until := time.Now().Add(patience)
	for pause := (wait.Pause{}); ; {
		err := f()
		if !errors.Is(err, tga.StoreUnavailable) || time.Now().After(until) || !rest(pause.Next(), err) {
			return err
		}
	}
}
