package postgres

import (
	"container/list"
	"context"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
)

// gates admits one caller per name. A name uses memory only while a caller waits for it or has entered.
type gates[K comparable] struct {
	mu sync.Mutex
	at map[K]*gate
}

type gate struct {
	users int
	pass  chan struct{} // full if no caller has entered
}

func (g *gates[K]) init() { g.at = map[K]*gate{} }

// enter waits for its turn, until ctx ends or stop is closed.
func (g *gates[K]) enter(ctx context.Context, stop <-chan struct{}, k K) error {
	g.mu.Lock()
	x := g.at[k]
	if x == nil {
		x = &gate{pass: make(chan struct{}, 1)}
		x.pass <- struct{}{}
		g.at[k] = x
	}
	x.users++
	g.mu.Unlock()
	select {
	case <-x.pass: // a free gate admits even a caller whose context has ended
		return nil
	default:
	}
	var err error
	select {
	case <-x.pass:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = tga.Errorf(tga.StoreUnavailable, "the store is closed")
	}
	g.left(k, x)
	return err
}

func (g *gates[K]) leave(k K) {
	g.mu.Lock()
	x := g.at[k]
	g.mu.Unlock()
	x.pass <- struct{}{}
	g.left(k, x)
}

func (g *gates[K]) left(k K, x *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x.users--; x.users == 0 {
		delete(g.at, k)
	}
}

// signals wakes the callers that wait for a change of a trace.
type signals struct {
	mu sync.Mutex
	at map[tga.ID]*signal
}

type signal struct {
	users int
	c     chan struct{}
}

func (s *signals) init() { s.at = map[tga.ID]*signal{} }

// subscribe returns a channel that is closed at the next change. cancel is called once.
func (s *signals) subscribe(id tga.ID) (c <-chan struct{}, cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.at[id]
	if x == nil {
		x = &signal{c: make(chan struct{})}
		s.at[id] = x
	}
	x.users++
	return x.c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.users--; x.users == 0 && s.at[id] == x {
			delete(s.at, id)
		}
	}
}

func (s *signals) notify(id tga.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.at[id]; x != nil {
		close(x.c)
		delete(s.at, id)
	}
}

// lru keeps the values used last, at most most of them. If size is set, it keeps at most mostBytes of them too.
type lru[K comparable, V any] struct {
	mu    sync.Mutex
	most  int
	order *list.List // of *kept[K, V], the last used in front
	at    map[K]*list.Element

	size             func(V) int
	bytes, mostBytes int
}

type kept[K comparable, V any] struct {
	key   K
	value V
	size  int
}

func newLRU[K comparable, V any](most int) *lru[K, V] {
	return &lru[K, V]{most: most, order: list.New(), at: map[K]*list.Element{}}
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.at[k]
	if e == nil {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*kept[K, V]).value, true
}

// put keeps v under k, unless k has a value for which stays returns true.
func (l *lru[K, V]) put(k K, v V, stays func(old V) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	if l.size != nil {
		size = l.size(v)
	}
	if e := l.at[k]; e != nil {
		l.order.MoveToFront(e)
		if x := e.Value.(*kept[K, V]); stays == nil || !stays(x.value) {
			l.bytes += size - x.size
			x.value, x.size = v, size
		}
	} else {
		l.at[k] = l.order.PushFront(&kept[K, V]{k, v, size})
		l.bytes += size
	}
	for l.order.Len() > l.most || l.size != nil && l.bytes > l.mostBytes {
		l.drop(l.order.Back())
	}
}

func (l *lru[K, V]) remove(k K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.at[k]; e != nil {
		l.drop(e)
	}
}

func (l *lru[K, V]) drop(e *list.Element) {
	x := l.order.Remove(e).(*kept[K, V])
	l.bytes -= x.size
	delete(l.at, x.key)
}

// clear removes all values.
func (l *lru[K, V]) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order.Init()
	clear(l.at)
	l.bytes = 0
}

// each calls f for every value.
func (l *lru[K, V]) each(f func(K, V)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.order.Front(); e != nil; e = e.Next() {
		x := e.Value.(*kept[K, V])
		f(x.key, x.value)
	}
}
