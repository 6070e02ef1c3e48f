package engine

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// ownerKeys knows the key under which the values of an owner are sealed. An owner is a stream, or a set of
// values that is erased together ([chain.Attachment.Owner]). Each stored value names its key, and an erasure
// destroys all these keys. The old values of an owner with many streams may have been deleted, so no stored
// value names their keys any more. Therefore the keys of such an owner are stored separately.
type ownerKeys struct {
	mu    sync.Mutex // also held while the store is read, so that two concurrent writers of an owner get one key
	known lru[string, chain.KeyID]
}

func (k *ownerKeys) init() { k.known.init(4096, 1<<20) }

// of returns the key of an owner: the key of its existing values, or a new one. If the keys of the owner are
// stored separately, the key is durable there before it seals anything.
func (k *ownerKeys) of(r *ringed, x *index, o sealrules.Owner) (chain.KeyID, error) {
	name := o.Name()
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, ok := k.known.get(name); ok {
		return key, nil
	}
	key, err := k.find(r, x, o)
	if err == nil {
		k.known.put(name, key, int64(len(name)))
	}
	return key, err
}

func (k *ownerKeys) find(r *ringed, x *index, o sealrules.Owner) (chain.KeyID, error) {
	var kept []chain.KeyID
	var err error
	if o.Kept {
		if kept, err = x.keptKeys(o.Kind, o.ID); err != nil {
			return 0, err
		}
	}
	if n := len(kept); n > 0 {
		if _, err := r.ring.Seal(nil, kept[n-1], nil, o.ID); !errors.Is(err, chain.ErrKeyDestroyed) {
			return kept[n-1], err
		}
	}
	key, err := x.ownerKey(o.Kind, o.ID)
	if err == nil && key == 0 {
		key, err = r.newKey(tga.DefaultNamespace, "")
	}
	if err != nil || !o.Kept {
		return key, err
	}
	value := make([]byte, 0, 8*(len(kept)+1))
	for _, n := range append(kept, key) {
		value = binary.BigEndian.AppendUint64(value, uint64(n))
	}
	w := r.used.commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaOwner(o.Kind, o.ID)), value)
	return key, r.used.commits.apply(w)
}

// metaOwner returns the name of the `m` key that stores the keys of an owner, 8 bytes each, the newest last.
func metaOwner(kind keyspace.Kind, id []byte) string { return fmt.Sprintf("keys.%c.%x", kind, id) }

// keptKeys returns the separately stored keys of an owner.
func (r *reading) keptKeys(kind keyspace.Kind, id []byte) (keys []chain.KeyID, err error) {
	name := metaOwner(kind, id)
	b, err := r.meta(name)
	if err != nil {
		return nil, err
	}
	return decodeKeys(name, b)
}

func decodeKeys(name string, b []byte) (keys []chain.KeyID, err error) {
	if len(b)%8 != 0 {
		return nil, damaged("meta %s has %d bytes", name, len(b))
	}
	for ; len(b) > 0; b = b[8:] {
		keys = append(keys, chain.KeyID(binary.BigEndian.Uint64(b)))
	}
	return keys, nil
}

// OwnerKeys calls each with every owner whose keys are stored separately, and with these keys. It is for copying a store.
func (db *DB) OwnerKeys(ctx context.Context, each func(kind byte, id []byte, keys []chain.KeyID) error) error {
	return db.inside(func(o *opened) error {
		lower, upper := keyspace.MetaBounds()
		return o.index.scan(lower, upper, func(key, value []byte) error {
			name, err := keyspace.ParseMeta(key)
			if err == nil {
				err = ctx.Err()
			}
			owner, ok := strings.CutPrefix(name, "keys.")
			if !ok || err != nil {
				return err
			}
			keys, err := decodeKeys(name, value)
			id, herr := hex.DecodeString(owner[min(2, len(owner)):])
			if err != nil || herr != nil {
				return errors.Join(err, herr)
			}
			return each(owner[0], id, keys)
		})
	})
}

// forget drops the cached keys of streams. An erasure destroys these keys.
func (k *ownerKeys) forget(streams ...tga.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range streams {
		for _, o := range sealrules.OwnersOf(id) {
			k.known.drop(o.Name())
		}
	}
}

// ownerKey returns the key of an owner's first sealed value, 0 if no such key can be used. It looks at
// two values, because the first value of a stream may be its item 0, which is not sealed.
func (x *index) ownerKey(kind keyspace.Kind, owner []byte) (chain.KeyID, error) {
	lower, upper, err := keyspace.AttachmentBounds(kind, owner)
	if err != nil {
		return 0, err
	}
	rows, err := x.page(lower, upper, 2)
	for _, row := range rows {
		if key := sealrules.KeyOf(row.value); key != 0 {
			if _, err := sealrules.Open(row.key, row.value, x.keys); !errors.Is(err, chain.ErrKeyDestroyed) {
				return key, err
			}
		}
	}
	return 0, err
}

// beside returns the attachments of an append to a trace with their values as they are stored: the
// values of the trace sealed under its key, and other values under the key of their owner.
func (db *DB) beside(trace tga.ID, key chain.KeyID, list []chain.Attachment) ([]chain.Attachment, error) {
	ring := db.ringed.ring != nil
	out := list
	for i := range list {
		a := &list[i]
		if a.Value == nil || !ring && !sealrules.Marked(a.Value) {
			continue
		}
		kind, under := keyspace.Kind(a.Kind), chain.KeyID(0)
		if sealrules.OfTrace(trace, a) {
			under = key
		} else if o := sealrules.OwnerOf(a); ring && o.ID != nil {
			var err error
			if under, err = db.owned.of(&db.ringed, db.index, o); err != nil {
				return nil, err
			}
		}
		at, err := keyspace.AppendAttachment(nil, kind, a.Key)
		if err != nil {
			return nil, err
		}
		value, err := sealrules.Store(at, a.Value, under, db.index.keys)
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
