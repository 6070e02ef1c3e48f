package dispatch

import (
	"context"
	goruntime "runtime"

	"github.com/tgad/tgad/runtime"
)

// DispatcherThatBlocks blocks until its context ends.
func DispatcherThatBlocks() runtime.Dispatcher {
	return runtime.DispatcherFunc(func(ctx context.Context, _ runtime.Call) (runtime.Reply, error) {
		<-ctx.Done()
		return runtime.Reply{}, ctx.Err()
	})
}

// WaitUntilFull returns once every place of a Limit is taken.
func WaitUntilFull(d runtime.Dispatcher) {
	l := d.(*limit)
	for len(l.taken) < cap(l.taken) {
		goruntime.Gosched()
	}
}
