package engine

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// order knows how far the global order is durable. The log numbers the appends of a store
// 1, 2, 3, …, and each group is durable before the next group is written. So the durable part
// of the order has no hole.
type order struct {
	mu    sync.Mutex
	last  uint64        // newest durable index
	grown chan struct{} // closed when last grows; nil while no caller waits

	// The newest leaves, so that a follower that keeps up need not read the log, where the
	// leaves lie between the bodies. Allocated for the first follower.
	placed uint64 // newest index that was assigned; it may not be durable yet
	recent []Leaf // the leaf of index i is at i % recentLeaves
	since  uint64 // first index whose leaf was kept
}

// recentLeaves is how many leaves are kept in memory: 150 bytes each.
const recentLeaves = 8192

func (o *order) init(last uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.placed, o.since = last, last, last+1
}

// place gives a leaf the next index. It is called in the order in which the log has the leaves.
func (o *order) place(l Leaf) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.placed++
	if o.recent != nil {
		l.Index = o.placed
		o.recent[o.placed%recentLeaves] = l
	}
}

// remember keeps the leaves from now on.
func (o *order) remember() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.recent == nil {
		o.recent, o.since = make([]Leaf, recentLeaves), o.placed+1
	}
}

// remembered copies the leaves first..last into buf, as many as fit. It returns nil if the first
// of them is not in memory.
func (o *order) remembered(first, last uint64, buf []Leaf) []Leaf {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.recent == nil || first < o.since || first+recentLeaves <= o.placed || last > o.last {
		return nil
	}
	buf = buf[:min(last-first+1, uint64(len(buf)))]
	for i := range buf {
		buf[i] = o.recent[(first+uint64(i))%recentLeaves]
	}
	return buf
}

// grow says that every index up to last is durable.
func (o *order) grow(last uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last <= o.last {
		return
	}
	o.last = last
	if o.grown != nil {
		close(o.grown)
		o.grown = nil
	}
}

func (o *order) durable() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// wait returns the newest durable index, and a channel that is closed when that index grows.
func (o *order) wait() (last uint64, grown <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.grown == nil {
		o.grown = make(chan struct{})
	}
	return o.last, o.grown
}

// view is a read view of the index, with every body that it names. Everything in it is durable.
type view struct {
	reading
	snapshot *pebble.Snapshot
	unpin    func()
}

func (x *index) view() view {
	unpin := x.log.Pin()
	snapshot := x.p.NewSnapshot()
	return view{x.at(snapshot), snapshot, unpin}
}

// Cursor returns the newest durable index of the global order, 0 for an empty store.
func (db *DB) Cursor() uint64 { return db.order.durable() }

// Follow yields the leaves after a cursor in order, without a gap, and waits for more
// until ctx ends or the store closes; it then yields that error and ends. A leaf is
// yielded once it and all before it are durable.
func (db *DB) Follow(ctx context.Context, after uint64) iter.Seq2[Leaf, error] {
	return func(yield func(Leaf, error) bool) {
		after := after      // each range begins there
		var at wal.Position // of the record read last; zero if the leaves came from memory
		page := uint64(firstLeafPage)
		buf := make([]Leaf, memoryPage) // allocated once: allocation is most of what a follower costs each append
		db.order.remember()
		for {
			prefix, grown := db.order.wait()
			for prefix > after {
				if err := ctx.Err(); err != nil {
					yield(Leaf{}, err)
					return
				}
				var leaves []Leaf
				if err := db.inside(func(o *opened) (err error) {
					first, last := after+1, min(prefix, after+page)
					if leaves = db.order.remembered(first, last, buf); leaves != nil {
						at = wal.Position{}
						return nil
					}
					leaves, at, err = o.index.leaves(at, first, last)
					return err
				}); err != nil {
					yield(Leaf{}, err)
					return
				}
				for _, l := range leaves {
					if !yield(l, nil) {
						return
					}
					after = l.Index
				}
				page = leafPage
			}
			select {
			case <-grown:
				continue
			case <-ctx.Done():
				yield(Leaf{}, ctx.Err())
			case <-db.health.stopped():
				yield(Leaf{}, tga.Errorf(tga.StoreUnavailable, "follow after %d: the store is closed", after))
			case <-db.health.poisoned:
				yield(Leaf{}, db.health.sick())
			}
			return
		}
	}
}

// leafPage is how many leaves are read at once. The first page is smaller, for a caller that
// wants only one leaf.
const (
	firstLeafPage = 8
	leafPage      = 1024
	memoryPage    = 64 // of the leaves in memory, which are copied
)

// leaves reads the leaves first..last, which are all durable. It begins at the record at, which
// must not lie after the first leaf; if at is zero, it begins at a landmark. It returns the record
// in which it ended.
func (x *index) leaves(at wal.Position, first, last uint64) ([]Leaf, wal.Position, error) {
	if at == (wal.Position{}) {
		var err error
		if at, err = x.landmark(first); err != nil {
			return nil, at, err
		}
	}
	out := make([]Leaf, 0, last-first+1)
	err := x.log.Walk(at, func(r *wal.Record) error {
		at = r.At
		return eachLeaf(r, func(l Leaf) error {
			switch want := first + uint64(len(out)); {
			case l.Index > want:
				return damaged("order: leaf %d follows %d", l.Index, want-1)
			case l.Index == want:
				out = append(out, l)
			}
			if l.Index == last {
				return errPageFull
			}
			return nil
		})
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	if err == nil && uint64(len(out)) != last-first+1 {
		err = damaged("order: %d leaves from %d, want %d", len(out), first, last-first+1)
	}
	return out, at, readError(err)
}

// eachLeaf calls f for each append of a record.
func eachLeaf(r *wal.Record, f func(Leaf) error) error {
	return r.Ops(func(op *wal.Op) error {
		if op.Kind != wal.Order {
			return nil
		}
		l, err := decodeLeaf(op.Index, op.Value)
		if err != nil {
			return err
		}
		return f(l)
	})
}

// landmark returns the newest landmark that does not lie after an index. If there is none, it
// returns the zero position, which is the beginning of the log.
func (r *reading) landmark(index uint64) (at wal.Position, err error) {
	lower, _ := keyspace.GlobalBounds()
	err = r.health.guarded(func() error {
		it, err := r.from.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: keyspace.AppendGlobal(nil, index+1)})
		if err != nil {
			return err
		}
		if it.Last() {
			row, verr := it.ValueAndErr()
			if err = verr; err == nil {
				at, err = decodeLandmark(row)
			}
		}
		return errors.Join(err, it.Error(), it.Close())
	})
	return at, readError(err)
}
