package engine

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// ownerKeys knows which key the values of a stream, or of a family's nodes, are sealed under. An
// owner has one key, but for one whose first values are from before the ring, or that was not used
// for long: each value says which is its own, and an erasure destroys all of them.
type ownerKeys struct {
	mu    sync.Mutex // held for a look into the store too: two who write to an owner at once find one key
	known lru[string, chain.KeyID]
}

func (k *ownerKeys) init() { k.known.init(4096, 1<<20) }

// of returns the key of an owner: that of what is there already, or a new one.
func (k *ownerKeys) of(r *ringed, x *index, kind keyspace.Kind, owner []byte) (chain.KeyID, error) {
	name := string(byte(kind)) + string(owner)
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, ok := k.known.get(name); ok {
		return key, nil
	}
	key, err := x.ownerKey(kind, owner)
	if err == nil && key == 0 {
		key, err = r.newKey(tga.DefaultNamespace, "")
	}
	if err == nil {
		k.known.put(name, key, int64(len(name)))
	}
	return key, err
}

// forget forgets the keys of streams, which are destroyed.
func (k *ownerKeys) forget(streams []tga.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range streams {
		k.known.drop(string(byte(keyspace.Stream)) + string(id[:]))
	}
}

// ownerKey returns the key of an owner's first sealed value, 0 where it has none that can be used.
// The first of a stream may be its item 0, which is not sealed.
func (x *index) ownerKey(kind keyspace.Kind, owner []byte) (chain.KeyID, error) {
	lower, upper, err := keyspace.AttachmentBounds(kind, owner)
	if err != nil {
		return 0, err
	}
	rows, err := x.page(lower, upper, 2)
	for _, row := range rows {
		if key := valueKey(row.value); key != 0 {
			if _, err := openValue(row.key, row.value, x.keys); !errors.Is(err, chain.ErrKeyDestroyed) {
				return key, err
			}
		}
	}
	return 0, err
}

// beside returns the attachments of an append to a trace with what is stored of their values: those
// of the trace sealed under its key, and others under the key of their owner.
func (db *DB) beside(trace tga.ID, key chain.KeyID, list []chain.Attachment) ([]chain.Attachment, error) {
	ring := db.ringed.ring != nil
	out := list
	for i := range list {
		a := &list[i]
		if a.Value == nil || !ring && !bytes.HasPrefix(a.Value, []byte(valueMark)) {
			continue
		}
		kind, under := keyspace.Kind(a.Kind), chain.KeyID(0)
		if ofTrace(trace, a) {
			under = key
		} else if owner := keyspace.Owned(kind, a.Key); ring && owner != nil {
			var err error
			if under, err = db.owned.of(&db.ringed, db.index, kind, owner); err != nil {
				return nil, err
			}
		}
		at, err := keyspace.AppendAttachment(nil, kind, a.Key)
		if err != nil {
			return nil, err
		}
		value, err := storedValue(at, a.Value, under, db.index.keys)
		if err != nil {
			return nil, err
		}
		if &out[0] == &list[0] {
			out = slices.Clone(list)
		}
		out[i].Value = value
	}
	return out, nil
}
