package engine

import (
	"bytes"
	"errors"
	"sync"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// newTraces tells, for most new ids, that the store has no such trace, without a look-up in
// the index. Ids are UUIDv7, so a new trace has one of the largest ids of the store: it is
// enough to remember every id of the store above some floor.
//
// If absent returns true, an append begins the trace without reading it. So that answer must
// never be wrong: a second genesis entry would overwrite the first. Therefore every trace is
// added under its lock before its first entry is queued, and the floor at open is the largest
// id in the store.
type newTraces struct {
	mu    sync.Mutex
	floor tga.ID // every trace of the store with a larger id is in young or in old
	young map[tga.ID]struct{}
	old   map[tga.ID]struct{}
}

// youngTraces is how many ids each of the two sets keeps. If more traces than that begin
// between the making of an id and its first append, that id is looked up in the index.
const youngTraces = 16 << 10

// nowhere is above every id.
var nowhere = tga.ID(bytes.Repeat([]byte{0xff}, 16))

// init forgets all ids. The caller asserts that no trace of the store has an id above floor.
func (n *newTraces) init(floor tga.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.floor, n.young, n.old = floor, map[tga.ID]struct{}{}, map[tga.ID]struct{}{}
}

// absent reports whether the store certainly has no trace of that id. The trace's lock is
// held.
func (n *newTraces) absent(id tga.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if bytes.Compare(id[:], n.floor[:]) <= 0 {
		return false
	}
	_, young := n.young[id]
	_, old := n.old[id]
	return !young && !old
}

// add says that the store has, or is about to have, a trace of that id.
func (n *newTraces) add(id tga.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.young[id] = struct{}{}
	if len(n.young) < youngTraces {
		return
	}
	// The older set is cleared, and the floor rises to its largest id. One id far in the
	// future lifts the floor above all others; then every new trace is looked up, as if
	// there were no newTraces.
	for id := range n.old {
		if bytes.Compare(id[:], n.floor[:]) > 0 {
			n.floor = id
		}
	}
	clear(n.old)
	n.young, n.old = n.old, n.young
}

// largestTrace returns the largest id of the traces that the store has or had, the zero id
// if there are none.
func (r *reading) largestTrace() (largest tga.ID, err error) {
	err = r.health.guarded(func() error {
		it, err := r.from.NewIter(nil)
		if err != nil {
			return err
		}
		for _, kind := range []keyspace.Kind{keyspace.Entry, keyspace.Tombstone} {
			lower, upper := keyspace.Bounds(kind)
			if !it.SeekLT(upper) || bytes.Compare(it.Key(), lower) < 0 {
				continue
			}
			id := nowhere // the key is damaged: assume the largest id
			if len(it.Key()) > len(id) {
				id = tga.ID(it.Key()[1:])
			}
			if bytes.Compare(id[:], largest[:]) > 0 {
				largest = id
			}
		}
		return errors.Join(it.Error(), it.Close())
	})
	return largest, readError(err)
}
