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

// Log is where calls are begun and finished, such as a client of a daemon. [runtime.Runtime]
// describes the methods of the same names.
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

// logWait bounds one request to the log. It cancels the request and is not a deadline of the
// context, because the log would take that as the call's deadline and end the call.
const logWait = 15 * time.Second

// Bounded makes one request to the log, of at most logWait.
func Bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := time.AfterFunc(logWait, cancel)
	defer t.Stop()
	return f(ctx)
}

// Persist is [Patient], and repeats the request for as long as the log is away.
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

// Patient makes a request that only tells the log something. It repeats the request while another
// process holds the call's lock.
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

// WhileAway runs f, which makes a request to the log. While the log is away, WhileAway repeats f until
// patience is over. rest waits between two tries; if it returns false, WhileAway stops.
func WhileAway(patience time.Duration, rest func(time.Duration, error) bool, f func() error) error {
	until := time.Now().Add(patience)
	for pause := (wait.Pause{}); ; {
		err := f()
		if !errors.Is(err, tga.StoreUnavailable) || time.Now().After(until) || !rest(pause.Next(), err) {
			return err
		}
	}
}
