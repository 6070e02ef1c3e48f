package engine

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Dump returns every key and value of the store.
func (db *DB) Dump() map[string]string {
	out := map[string]string{}
	if err := db.scan(db.p, []byte{0}, nil, func(key, value []byte) error {
		out[string(key)] = string(value)
		return nil
	}); err != nil {
		panic(err)
	}
	return out
}

// Put writes a key behind the store's back; a nil value deletes it.
func (db *DB) Put(key, value []byte) {
	var err error
	if value == nil {
		err = db.p.Delete(key, pebble.Sync)
	} else {
		err = db.p.Set(key, value, pebble.Sync)
	}
	if err != nil {
		panic(err)
	}
	db.dropCaches()
}

// DropCaches makes the next reads come from disk.
func (db *DB) DropCaches() { db.dropCaches() }

// SettledAttachment is [DB.Attachment] with a read of its own.
func (db *DB) SettledAttachment(ctx context.Context, kind chain.AttachmentKind, key []byte, read func() []byte) ([]byte, error) {
	stored := string(byte(kind)) + string(key)
	return db.settled(ctx, stored, func() ([]byte, error) { return read(), nil })
}

// Flush writes the memtables to tables.
func (db *DB) Flush() error { return db.awaited(db.p.Flush) }

// Queued returns how many batches wait for the commit of those before them.
func (db *DB) Queued() int {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	n := 0
	for _, g := range db.commits.queue {
		n += len(g.members)
	}
	return n
}

// QueuedSizes returns the sizes in bytes of the batches that wait, by group.
func (db *DB) QueuedSizes() [][]int {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	var out [][]int
	for _, g := range db.commits.queue {
		var sizes []int
		for _, c := range g.members {
			sizes = append(sizes, c.batch.Len())
		}
		out = append(out, sizes)
	}
	return out
}

// Locked returns how many names are locked.
func (db *DB) Locked() int {
	db.traces.mu.Lock()
	defer db.traces.mu.Unlock()
	db.keys.mu.Lock()
	defer db.keys.mu.Unlock()
	return len(db.traces.held) + len(db.keys.held)
}

const (
	FloorEvery = floorEvery
	MaxBgErrs  = maxBackgroundErrors
	MaxQueued  = maxQueued
	MaxGroup   = maxGroup
)

func contextWithCancel() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

func newTestTrace(n byte) *chain.Trace { return chain.NewTrace(tga.ID{n}) }

var bigDocument = chain.Document{Data: make([]byte, 20_000)}
