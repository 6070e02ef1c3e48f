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
type ringed struct {
	ring  Keyring               // nil: none was given
	under sealrules.SealedUnder // zero: it is not sealed
	used  *usedKeys
	lacks int // keys that the store has used, and an older copy of the ring does not have
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
	under, ok := sealrules.ReadSealedUnder(value)
	switch {
	case value != nil && !ok:
		return damaged("meta %s has %d bytes", metaKeyring, len(value))
	case value != nil:
		r.under = under
	case r.ring == nil || o.readOnly:
		return nil // not sealed, or not to be
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

// leaveOut has a ring that is older than the store give no number that the store has used.
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

// remember makes durable that a key is used, once for all that the ring has made by now.
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

// missing returns why a store that is sealed and has no ring takes no calls.
func (r *ringed) missing() error { return r.under.Missing(r.ring) }

// digest is what the ledger has of a request.
func (r *ringed) digest(p tga.Proposal) tga.Digest { return r.under.Digest(r.ring, p) }

// RequestDigest returns what the ledger has of a request: its digest, or in a store whose key
// ring came before its first ledger record a digest by a secret of the ring.
func (db *DB) RequestDigest(p tga.Proposal) tga.Digest { return db.ringed.digest(p) }

// SealedUnder returns the key ring that the store is sealed under, the zero id for none, and whether the ledger has
// digests by the ring's secret.
func (db *DB) SealedUnder() (ring tga.ID, keyed bool) {
	return db.ringed.under.Ring, db.ringed.under.Keyed
}

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
	key, err := sealrules.NewKey(r.ring, namespace, subject)
	if err == nil {
		err = r.remember(key)
	}
	return key, err
}
