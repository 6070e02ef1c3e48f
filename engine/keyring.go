package engine

import (
	"encoding/binary"
	"sync"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Keyring has the data keys of a store that seals its artifacts and documents. It lies outside of
// the store.
type Keyring = chain.Keyring

// ringed is what a store knows about its key ring.
type ringed struct {
	ring  Keyring               // nil: no ring was given
	under sealrules.SealedUnder // zero: the store is not sealed
	used  *usedKeys
	lacks int // number of keys that the store has used and the ring, an older copy, lacks
}

// usedKeys has the largest key number that the store may use. It is durable before a key with that
// number seals anything.
type usedKeys struct {
	commits *committer
	mu      sync.Mutex
	upTo    chain.KeyID
}

// Value of `m` `keyring`: id of the ring 16 · keyed 1.
const metaKeyring = "keyring"

// Value of `m` `keys`: [usedKeys.upTo] 8, if the ring numbers its keys.
const metaKeys = "keys"

// readRing finds out under which ring the store is sealed. If the store gets a ring for the first
// time, readRing stores that. Without its ring only the parts of a store that are not sealed can be
// read, and nothing can be appended.
func (o *opening) readRing() error {
	r := ringed{ring: o.opts.Keyring}
	value, err := o.index.meta(metaKeyring)
	if err != nil {
		return err
	}
	under, ok := sealrules.ReadSealedUnder(value)
	switch {
	case value != nil && !ok:
		return damaged("meta %s has %d bytes", metaKeyring, len(value))
	case value != nil:
		r.under = under
	case r.ring == nil || o.readOnly:
		return nil // not sealed, and nothing may be written
	default:
		lower, upper := keyspace.LedgerBounds()
		used, err := o.index.first(lower, upper)
		if err != nil {
			return err
		}
		r.under = sealrules.SealedUnder{Ring: r.ring.ID(), Keyed: used == nil}
		w := o.commits.newWriter()
		w.set(keyspace.AppendMeta(nil, metaKeyring), r.under.Value())
		if err := o.commits.apply(w); err != nil {
			return err
		}
	}
	if err := r.under.Fits(r.ring, o.dir); err != nil {
		return err
	}
	r.used = &usedKeys{commits: o.commits}
	if err := r.leaveOut(o); err != nil {
		return err
	}
	o.ringed = r
	if r.ring == nil {
		o.log.Warn("the store is sealed, and opened without its key ring: nothing can be appended", "ring", r.under.Ring)
	}
	return nil
}

// leaveOut makes a ring that is older than the store skip every key number that the store has used.
func (r *ringed) leaveOut(o *opening) error {
	ring, ok := r.ring.(sealrules.Numbered)
	if !ok {
		return nil
	}
	used, err := o.index.metaNumber(metaKeys)
	if err != nil {
		return err
	}
	r.used.upTo = chain.KeyID(used)
	if r.lacks = sealrules.Lacks(ring, r.used.upTo); r.lacks > 0 {
		o.log.Warn("the key ring is an older copy: calls whose keys it does not have cannot be read until a newer copy is put back", "ring", r.under.Ring, "missing_keys", r.lacks, "store_used", used)
	}
	if o.readOnly {
		return nil
	}
	return ring.Reserve(r.used.upTo)
}

// remember makes durable that a key is used. One write covers all keys that the ring has made so far.
func (r *ringed) remember(key chain.KeyID) error {
	ring, ok := r.ring.(sealrules.Numbered)
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

// missing returns the error for calls to a sealed store without its ring, nil for any other store.
func (r *ringed) missing() error { return r.under.Missing(r.ring) }

// digest returns the digest of a request that the ledger stores.
func (r *ringed) digest(p tga.Proposal) tga.Digest { return r.under.Digest(r.ring, p) }

// RequestDigest returns the digest of a request that the ledger stores. If the store had a key ring
// before its first ledger record, the digest is keyed by a secret of the ring.
func (db *DB) RequestDigest(p tga.Proposal) tga.Digest { return db.ringed.digest(p) }

// SealedUnder returns the id of the key ring under which the store is sealed, zero if there is none, and whether the
// digests in the ledger are keyed by the ring's secret.
func (db *DB) SealedUnder() (ring tga.ID, keyed bool) {
	return db.ringed.under.Ring, db.ringed.under.Keyed
}

// writable returns why appends are refused, nil if they are not.
func (db *DB) writable() error {
	if err := db.health.writable(); err != nil {
		return err
	}
	return db.ringed.missing()
}

// keyFor returns the key under which an append to a trace is sealed, 0 if nothing is sealed.
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
	key, err := sealrules.NewKey(r.ring, namespace, subject)
	if err == nil {
		err = r.remember(key)
	}
	return key, err
}
