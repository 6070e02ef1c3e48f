package engine

import (
	"encoding/binary"
	"sync"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Keyring has the data keys of a store that seals what its entries carry, outside of the store.
type Keyring = chain.Keyring

// ringed is what a store knows of its key ring.
//
// keyed says that the ledger has [Keyring.RequestDigest] of each request, and nowhere the digest
// itself: of a store that had its ring before its first ledger record. One rule holds for all
// records of a store.
type ringed struct {
	ring  Keyring // nil: none was given
	id    tga.ID  // that the store is sealed under; zero: none
	keyed bool
	used  *usedKeys
	lacks int // keys that the store has used, and an older copy of the ring does not have
}

// numberedRing is a ring that says which numbers its keys have, and can leave some out. A ring that was put
// back from a copy would give numbers again that the store has used: what the lost keys sealed would
// look damaged, and no later copy of the ring would have all keys.
type numberedRing interface {
	Last() chain.KeyID
	Reserve(upTo chain.KeyID) error
	// Missing counts the numbers that were left out.
	Missing() int
}

// usedKeys is the greatest number that a key of the store may have. It is durable before a key of such
// a number seals anything.
type usedKeys struct {
	commits *committer
	mu      sync.Mutex
	upTo    chain.KeyID
}

// Value of `m` `keyring`: id of the ring 16 · keyed 1.
const metaKeyring = "keyring"

// Value of `m` `keys`: [usedKeys.upTo] 8, where the ring is numbered.
const metaKeys = "keys"

// readRing finds out which ring the store is sealed under, and says so where this is the first
// time that it has one. Without its ring a store can be read as far as nothing is sealed, and
// not be written to.
func (o *opening) readRing() error {
	r := ringed{ring: o.opts.Keyring}
	value, err := o.index.meta(metaKeyring)
	if err != nil {
		return err
	}
	switch {
	case value != nil && len(value) != 17:
		return damaged("meta %s has %d bytes", metaKeyring, len(value))
	case value != nil:
		r.id, r.keyed = tga.ID(value[:16]), value[16] == 1
	case r.ring == nil || o.readOnly:
		return nil // not sealed, or not to be
	default:
		lower, upper := keyspace.LedgerBounds()
		used, err := o.index.first(lower, upper)
		if err != nil {
			return err
		}
		r.id, r.keyed = r.ring.ID(), used == nil
		value = append(r.id[:len(r.id):len(r.id)], 0)
		if r.keyed {
			value[16] = 1
		}
		w := o.commits.newWriter()
		w.set(keyspace.AppendMeta(nil, metaKeyring), value)
		if err := o.commits.apply(w); err != nil {
			return err
		}
	}
	if r.ring != nil && r.ring.ID() != r.id {
		return tga.Errorf(tga.StoreUnavailable, "open %s: the store is sealed under key ring %s, the one given is %s", o.dir, r.id, r.ring.ID())
	}
	r.used = &usedKeys{commits: o.commits}
	if err := r.leaveOut(o); err != nil {
		return err
	}
	o.ringed = r
	if r.ring == nil {
		o.log.Warn("the store is sealed, and opened without its key ring: nothing can be appended", "ring", r.id)
	}
	return nil
}

// leaveOut has a ring that is older than the store give no number that the store has used.
func (r *ringed) leaveOut(o *opening) error {
	ring, ok := r.ring.(numberedRing)
	if !ok {
		return nil
	}
	used, err := o.index.metaNumber(metaKeys)
	if err != nil {
		return err
	}
	r.used.upTo = chain.KeyID(used)
	last := ring.Last()
	r.lacks = ring.Missing()
	if last < r.used.upTo {
		r.lacks += int(r.used.upTo - last)
	}
	if r.lacks > 0 {
		o.log.Warn("the key ring is an older copy: calls whose keys it does not have cannot be read until a newer copy is put back", "ring", r.id, "missing_keys", r.lacks, "store_used", used)
	}
	if o.readOnly {
		return nil
	}
	return ring.Reserve(r.used.upTo)
}

// remember makes durable that a key is used, once for all that the ring has made by now.
func (r *ringed) remember(key chain.KeyID) error {
	ring, ok := r.ring.(numberedRing)
	if !ok {
		return nil
	}
	u := r.used
	u.mu.Lock()
	defer u.mu.Unlock()
	if key <= u.upTo {
		return nil
	}
	last := ring.Last()
	w := u.commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaKeys), binary.BigEndian.AppendUint64(nil, uint64(last)))
	if err := u.commits.apply(w); err != nil {
		return err
	}
	u.upTo = last
	return nil
}

// missing returns why a store that is sealed and has no ring takes no calls.
func (r *ringed) missing() error {
	if r.ring == nil && !r.id.IsZero() {
		return tga.Errorf(tga.StoreUnavailable, "the store is sealed under key ring %s and open without it: nothing is written, nothing is sent. Open it with the ring (tgad keyring)", r.id)
	}
	return nil
}

// digest is what the ledger has of a request.
func (r *ringed) digest(p tga.Proposal) tga.Digest {
	d := tga.RequestDigest(p)
	if r.keyed && r.ring != nil {
		return r.ring.RequestDigest(d)
	}
	return d
}

// RequestDigest returns what the ledger has of a request: its digest, or in a store whose key
// ring came before its first ledger record a digest by a secret of the ring.
func (db *DB) RequestDigest(p tga.Proposal) tga.Digest { return db.ringed.digest(p) }

// writable returns why nothing can be appended, nil where it can.
func (db *DB) writable() error {
	if err := db.health.writable(); err != nil {
		return err
	}
	return db.ringed.missing()
}

// keyFor returns the key that what is appended to a trace is sealed under, 0 where nothing is.
func (r *ringed) keyFor(t *chain.Trace, b *chain.Batch) (chain.KeyID, error) {
	if r.ring == nil {
		return 0, nil
	}
	key, fresh, request, err := sealrules.KeyFor(t, b)
	if !fresh || err != nil {
		return key, err
	}
	return r.newKey(sealrules.SubjectOf(request))
}

func (r *ringed) newKey(namespace, subject string) (chain.KeyID, error) {
	key, err := r.ring.Key(namespace, subject)
	if err == nil && key == 0 {
		err = tga.Errorf(tga.StoreUnavailable, "key ring %s gave no key", r.id)
	}
	if err == nil {
		err = r.remember(key)
	}
	return key, err
}
