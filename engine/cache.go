package engine

import (
	"sync"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// fold is a trace at one of its states, folded from its entries and notes. The trace in it is
// shared and never modified; callers get clones.
type fold struct {
	*chain.Trace
	segment uint64 // of an archived trace, 0 while its entries are in the store

	// reservation is the record of the trace's key while the trace has reserved the key. It
	// is nil if the trace has not, or if that is not known. Only appends to the trace itself
	// change its reservation, so there is no need to read it again from the store.
	reservation *ledger.Record
}

// lru keeps the values used last, bounded by count and by bytes. Its values are shared and
// never modified, and they are durable: a value is put in after its sync has returned.
type lru[K comparable, V any] struct {
	mu       sync.Mutex
	byKey    map[K]*cached[K, V]
	ring     cached[K, V] // a sentinel: next is the most, prev the least recently used value
	bytes    int64
	maxBytes int64
	maxCount int
}

type cached[K comparable, V any] struct {
	key        K
	value      V
	size       int64
	prev, next *cached[K, V]
}

func (c *lru[K, V]) init(count int, bytes int64) {
	c.byKey, c.maxCount, c.maxBytes = make(map[K]*cached[K, V]), count, bytes
	c.ring.prev, c.ring.next = &c.ring, &c.ring
}

func (c *lru[K, V]) get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if ok {
		c.front(e)
		value = e.value
	}
	return value, ok
}

// put keeps a value of size bytes. A value larger than the bound is not kept.
func (c *lru[K, V]) put(key K, value V, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[key]
	switch {
	case size > c.maxBytes:
		c.remove(e)
		return
	case e == nil:
		e = &cached[K, V]{key: key}
		e.prev, e.next = e, e
		c.byKey[key] = e
	}
	c.bytes += size - e.size
	e.value, e.size = value, size
	c.front(e)
	for c.bytes > c.maxBytes || len(c.byKey) > c.maxCount {
		c.remove(c.ring.prev)
	}
}

// front marks e as the most recently used value.
func (c *lru[K, V]) front(e *cached[K, V]) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = &c.ring, c.ring.next
	e.prev.next, e.next.prev = e, e
}

func (c *lru[K, V]) drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.byKey[key])
}

func (c *lru[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byKey)
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	c.bytes = 0
}

func (c *lru[K, V]) remove(e *cached[K, V]) {
	if e == nil {
		return
	}
	delete(c.byKey, e.key)
	e.prev.next, e.next.prev = e.next, e.prev
	c.bytes -= e.size
}

func (c *lru[K, V]) used() (count int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey), c.bytes
}

// recordSize is roughly the size of a ledger record in the cache, in bytes. The absence of a
// record is cached too, and takes less.
const recordSize = 512

// foldSize estimates the memory of a fold in bytes. A decoded artifact takes about as
// much again as its canonical bytes.
func foldSize(t *chain.Trace) int64 {
	size := int64(1024)
	for _, a := range []*tga.Artifact{t.Request, t.Decision, t.Call, t.Effect} {
		if a != nil {
			size += 2*int64(len(a.Canonical)) + 512
		}
	}
	for i := range t.Entries {
		size += 256 + int64(len(t.Entries[i].IdempotencyKey))
	}
	for i := range t.Notes {
		size += 256 + int64(len(t.Notes[i].Body))
	}
	for i := range t.Documents {
		size += int64(len(t.Documents[i].Data))
	}
	return size
}
