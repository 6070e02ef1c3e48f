package engine

import (
	"container/list"
	"sync"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// fold is a trace as it is on disk. The trace in it is shared and never modified;
// callers get clones.
type fold struct {
	*wal.Trace
	segment uint64 // of an archived trace, 0 while its entries are in the store

	// reservation is the record of the trace's key while the trace has it reserved; nil
	// where it does not, and where it is not known. Nobody but the trace's own appends
	// changes a reservation, so it needs no second look at the store.
	reservation *ledger.Record
}

// foldCache keeps the folds used last, bounded by count and by bytes. It holds durable
// folds only: they are put in after the sync returned.
type foldCache struct {
	mu       sync.Mutex
	byID     map[tga.ID]*list.Element
	lru      list.List // of cached, newest first
	bytes    int64
	maxBytes int64
	maxCount int
}

type cached struct {
	id   tga.ID
	fold fold
	size int64
}

func (c *foldCache) init(count int, bytes int64) {
	c.byID, c.maxCount, c.maxBytes = make(map[tga.ID]*list.Element), count, bytes
}

func (c *foldCache) get(id tga.ID) (fold, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byID[id]
	if !ok {
		return fold{}, false
	}
	c.lru.MoveToFront(el)
	return el.Value.(cached).fold, true
}

func (c *foldCache) put(id tga.ID, f fold) {
	size := foldSize(f.Trace)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(id)
	if size > c.maxBytes {
		return
	}
	c.byID[id] = c.lru.PushFront(cached{id, f, size})
	c.bytes += size
	for c.bytes > c.maxBytes || len(c.byID) > c.maxCount {
		c.remove(c.lru.Back().Value.(cached).id)
	}
}

func (c *foldCache) drop(id tga.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(id)
}

func (c *foldCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
	c.lru.Init()
	c.bytes = 0
}

func (c *foldCache) remove(id tga.ID) {
	if el, ok := c.byID[id]; ok {
		delete(c.byID, id)
		c.lru.Remove(el)
		c.bytes -= el.Value.(cached).size
	}
}

func (c *foldCache) used() (count int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID), c.bytes
}

// foldSize estimates the memory of a fold in bytes. A decoded artifact takes about as
// much again as its canonical bytes.
func foldSize(t *wal.Trace) int64 {
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
