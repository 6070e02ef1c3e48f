package dispatch

import (
	"context"
	"sync"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Limit lets at most n calls of one server and one namespace run at once; n must be
// positive. Other calls wait for a place until their context ends; then they are
// RATE_LIMITED, not sent. Each namespace has n places of its own, so that a tenant whose
// calls take long delays nobody else. The server sees at most n calls per namespace.
func Limit(next runtime.Dispatcher, n int) runtime.Dispatcher {
	return &limit{next: next, n: n, open: map[string]*room{}}
}

type limit struct {
	next runtime.Dispatcher
	n    int

	mu   sync.Mutex
	open map[string]*room // by namespace, while a call of it runs or waits
}

// room has the places of one namespace.
type room struct {
	taken chan struct{}
	users int
}

func (l *limit) enter(namespace string) *room {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.open[namespace]
	if r == nil {
		r = &room{taken: make(chan struct{}, l.n)}
		l.open[namespace] = r
	}
	r.users++
	return r
}

func (l *limit) leave(namespace string, r *room) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(l.open, namespace)
	}
}

func (l *limit) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	// If both cases of the select below are ready, it picks either. A call whose time is
	// over must not be sent, so check first.
	if err := ctx.Err(); err != nil {
		return runtime.Reply{}, notSent(tga.RateLimited, call, err, "no time was left")
	}
	r := l.enter(call.Namespace)
	defer l.leave(call.Namespace, r)
	select {
	case r.taken <- struct{}{}:
		defer func() { <-r.taken }()
		return l.next.Dispatch(ctx, call)
	case <-ctx.Done():
		return runtime.Reply{}, notSent(tga.RateLimited, call, ctx.Err(), "all %d places are taken", l.n)
	}
}

func (l *limit) Check(ctx context.Context, call runtime.Call) error {
	return runtime.Check(ctx, l.next, call)
}

func (l *limit) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	return prepare(ctx, l.next, call)
}
