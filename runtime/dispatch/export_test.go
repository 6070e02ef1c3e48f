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

// WaitUntilFull returns once every place of a namespace is taken in a Limit.
func WaitUntilFull(d runtime.Dispatcher, namespace string) {
	l := d.(*limit)
	full := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		r := l.open[namespace]
		return r != nil && len(r.taken) == cap(r.taken)
	}
	for !full() {
		goruntime.Gosched()
	}
}

// Remembered is how many namespaces a Breaker or a Limit keeps something of.
func Remembered(d runtime.Dispatcher) int {
	switch d := d.(type) {
	case *breaker:
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.open)
	case *limit:
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.open)
	}
	return -1
}
