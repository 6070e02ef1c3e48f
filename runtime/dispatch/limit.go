package dispatch

import (
	"context"
	"sync"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Limit lets at most n calls of one server and one namespace be under way at once; n
// must be positive. Others wait for a place until their context ends, and are then
// RATE_LIMITED, not sent. Each namespace has places of its own, so that a tenant whose
// calls take long holds up nobody else; the server sees at most n for each of them.
func Limit(next runtime.Dispatcher, n int) runtime.Dispatcher {
	return &limit{next: next, n: n, open: map[string]*room{}}
}

type limit struct {
	next runtime.Dispatcher
	n    int

	mu   sync.Mutex
	open map[string]*room // by namespace, while somebody is in it or waits
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
	// A select with both ready picks either: a call whose time is over is not sent.
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
