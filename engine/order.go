package engine

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// floorEvery is how many appends pass between two writes of the order's floor, under
// which Open need not look for holes.
const floorEvery = 4096

// order numbers the appends of a store, 1, 2, 3, …, and knows which are durable.
//
// An index is given before the commit, and commits reach the log in an order of their
// own, so after a crash the indexes found can have holes. While the store runs, nothing
// past the gap-free durable prefix is shown; at open, holes are filled with void
// leaves. A follower therefore never sees an index again with other content, and never
// misses one.
type order struct {
	mu       sync.Mutex
	last     uint64             // newest index given
	prefix   uint64             // every index up to it is durable
	inflight map[uint64]ongoing // given, not durable, or durable after a hole
	grown    chan struct{}      // closed when prefix grows; nil while nobody waits
}

// ongoing is an append between its index and its durability.
type ongoing struct {
	trace tga.ID
	keys  []string      // of its attachments
	done  chan struct{} // closed when durable; nil while nobody waits
	over  bool          // durable, behind a hole
}

func (o *order) init(last uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.prefix, o.inflight = last, last, make(map[uint64]ongoing)
}

// begin gives the next index and calls times under the same mutex, so that what the
// leaves say of time grows with the index.
func (o *order) begin(trace tga.ID, keys []string, times func()) (index uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	o.inflight[o.last] = ongoing{trace: trace, keys: keys}
	times()
	return o.last
}

// end says that index is durable.
func (o *order) end(index uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.inflight[index]
	if g.done != nil {
		close(g.done)
	}
	o.inflight[index] = ongoing{over: true}
	grew := false
	for o.inflight[o.prefix+1].over {
		o.prefix++
		delete(o.inflight, o.prefix)
		grew = true
	}
	if grew && o.grown != nil {
		close(o.grown)
		o.grown = nil
	}
}

// writes returns what is closed when an append in flight that has an attachment under key
// is durable, nil where there is none.
func (o *order) writes(key string) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	for index, g := range o.inflight {
		if !slices.Contains(g.keys, key) {
			continue
		}
		if g.done == nil {
			g.done = make(chan struct{})
			o.inflight[index] = g
		}
		return g.done
	}
	return nil
}

func (o *order) durable() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.prefix
}

// wait returns the durable prefix and a channel that is closed when it has grown.
func (o *order) wait() (prefix uint64, grown <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.grown == nil {
		o.grown = make(chan struct{})
	}
	return o.prefix, o.grown
}

func (o *order) floorValue() []byte {
	return binary.BigEndian.AppendUint64(nil, o.durable())
}

// view is a read view in which every append is durable but those listed. It is taken
// under the order's mutex: an append is listed before its commit begins and until its
// sync has returned, so what the view shows and the list does not name is durable.
type view struct {
	*pebble.Snapshot
	traces []tga.ID
	keys   map[string]<-chan struct{} // attachment keys, and when they are durable
}

func (o *order) view(p *pebble.DB) view {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := view{Snapshot: p.NewSnapshot()}
	for index, g := range o.inflight {
		if g.over {
			continue
		}
		v.traces = append(v.traces, g.trace)
		if len(g.keys) == 0 {
			continue
		}
		if g.done == nil {
			g.done = make(chan struct{})
			o.inflight[index] = g
		}
		if v.keys == nil {
			v.keys = make(map[string]<-chan struct{})
		}
		for _, k := range g.keys {
			v.keys[k] = g.done
		}
	}
	slices.SortFunc(v.traces, func(a, b tga.ID) int { return slices.Compare(a[:], b[:]) })
	return v
}

// Cursor returns the newest index of the gap-free durable prefix of the global order,
// 0 for an empty store.
func (db *DB) Cursor() uint64 { return db.order.durable() }

// Follow yields the leaves after a cursor in order, without a gap, and waits for more
// until ctx ends or the store closes; it then yields that error and ends. A leaf is
// yielded once it and all before it are durable.
func (db *DB) Follow(ctx context.Context, after uint64) iter.Seq2[Leaf, error] {
	return func(yield func(Leaf, error) bool) {
		for {
			prefix, grown := db.order.wait()
			for prefix > after {
				leaves, err := db.leaves(after+1, min(prefix, after+leafPage))
				if err != nil {
					yield(Leaf{}, err)
					return
				}
				for _, l := range leaves {
					if !yield(l, nil) {
						return
					}
					after = l.Index
				}
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

const leafPage = 1024

// leaves reads the leaves first..last, all durable.
func (db *DB) leaves(first, last uint64) ([]Leaf, error) {
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	out := make([]Leaf, 0, last-first+1)
	err := db.scan(db.p, keyspace.AppendGlobal(nil, first), keyspace.AppendGlobal(nil, last+1), func(key, value []byte) error {
		index, err := keyspace.ParseGlobal(key)
		if err != nil {
			return err
		}
		if want := first + uint64(len(out)); index != want {
			return damaged("order: leaf %d follows %d", index, want-1)
		}
		l, err := decodeLeaf(index, value)
		out = append(out, l)
		return err
	})
	if err == nil && uint64(len(out)) != last-first+1 {
		err = damaged("order: %d leaves from %d, want %d", len(out), first, last-first+1)
	}
	return out, err
}

// recoverOrder finds the newest index and times, and fills the holes that a crash
// left. It writes nothing when there is no hole or in a read-only
// store.
func (db *DB) recoverOrder(readOnly bool) error {
	floor, err := db.metaNumber(metaFloor)
	if err != nil {
		return err
	}
	var last Leaf
	next := max(floor, 1) // the floor's own leaf is there, and is read for its time
	prefix := next - 1
	fill := writer{b: db.p.NewBatch()}
	err = db.scan(db.p, keyspace.AppendGlobal(nil, next), upperOf(keyspace.GlobalBounds()), func(key, value []byte) error {
		index, err := keyspace.ParseGlobal(key)
		if err != nil {
			return err
		}
		if last.Index == 0 && floor > 0 && index != floor {
			return damaged("order: the first leaf from the floor %d is %d", floor, index)
		}
		if next == index && prefix == index-1 {
			prefix = index
		}
		if last, err = decodeLeaf(index, value); err != nil {
			return err
		}
		for ; next < index; next++ {
			// With the times of the leaf behind it, which count those of the appends that
			// the crash took from before it.
			void := Leaf{Void: true, Committed: last.Committed, NewestTS: last.NewestTS}
			fill.set(keyspace.AppendGlobal(nil, next), void.appendValue(nil))
		}
		next++
		return nil
	})
	if err != nil {
		return closing(fill.b, err)
	}
	if floor > 0 && last.Index < floor {
		return closing(fill.b, damaged("order: the newest leaf is %d, the floor %d", last.Index, floor))
	}
	db.newest.Store(int64(last.Committed))
	db.newestTS.Store(int64(last.NewestTS))
	if fill.b.Empty() || readOnly {
		db.order.init(prefix)
		return closeBatch(fill.b)
	}
	db.order.init(last.Index)
	if fill.err != nil {
		return closing(fill.b, fill.err)
	}
	db.log.Info("filled holes of the order", "voids", fill.b.Count())
	return db.apply(fill.b)
}

// attachmentKeys returns the store keys of attachments, for [order.begin].
func attachmentKeys(list []chain.Attachment) []string {
	if len(list) == 0 {
		return nil
	}
	keys := make([]string, len(list))
	for i, a := range list {
		keys[i] = string(byte(a.Kind)) + string(a.Key)
	}
	return keys
}
