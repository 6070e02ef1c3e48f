package sealrules

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Numbered is a ring that numbers its keys and can skip numbers. Without skipping, a ring that was
// restored from a copy would reuse numbers that the store has used. Then the values that the lost keys
// sealed would look damaged, and no later copy of the ring would have all keys.
type Numbered interface {
	Last() chain.KeyID
	Reserve(upTo chain.KeyID) error
	// Missing counts the numbers that were skipped.
	Missing() int
}

// Lacks counts the keys up to used that a ring, an older copy, does not have.
func Lacks(ring Numbered, used chain.KeyID) int {
	lacks := ring.Missing()
	if last := ring.Last(); last < used {
		lacks += int(used - last)
	}
	return lacks
}

// SealedUnder is what a store stores about its ring: the id of the ring [16], and whether the digests in the ledger are
// keyed by the ring's secret [1].
//
// Keyed says that the ledger has [chain.Keyring.RequestDigest] of each request, and never the plain
// digest. It is set if the store had its ring before its first ledger record. It holds for all records
// of the store.
type SealedUnder struct {
	Ring  tga.ID
	Keyed bool
}

// Value returns the stored form.
func (s SealedUnder) Value() []byte {
	value := append(s.Ring[:len(s.Ring):len(s.Ring)], 0)
	if s.Keyed {
		value[16] = 1
	}
	return value
}

// ReadSealedUnder reads the stored form; ok is false for other bytes.
func ReadSealedUnder(value []byte) (s SealedUnder, ok bool) {
	if len(value) != 17 {
		return s, false
	}
	return SealedUnder{tga.ID(value[:16]), value[16] == 1}, true
}

// Fits refuses a ring other than the one under which the store is sealed.
func (s SealedUnder) Fits(ring chain.Keyring, store string) error {
	if ring != nil && ring.ID() != s.Ring {
		return tga.Errorf(tga.StoreUnavailable, "open %s: the store is sealed under key ring %s, the one given is %s", store, s.Ring, ring.ID())
	}
	return nil
}

// Missing returns the error for calls to a sealed store without its ring, nil for any other store.
func (s SealedUnder) Missing(ring chain.Keyring) error {
	if ring == nil && !s.Ring.IsZero() {
		return tga.Errorf(tga.StoreUnavailable, "the store is sealed under key ring %s and open without it: nothing is written, nothing is sent. Open it with the ring (tgad keyring)", s.Ring)
	}
	return nil
}

// Digest returns the digest of a request that the ledger stores.
func (s SealedUnder) Digest(ring chain.Keyring, p tga.Proposal) tga.Digest {
	d := tga.RequestDigest(p)
	if s.Keyed && ring != nil {
		return ring.RequestDigest(d)
	}
	return d
}

// NewKey asks a ring for a key for a new trace or owner: the key of the subject, or an unused key.
func NewKey(ring chain.Keyring, namespace, subject string) (chain.KeyID, error) {
	key, err := ring.Key(namespace, subject)
	if err == nil && key == 0 {
		err = tga.Errorf(tga.StoreUnavailable, "key ring %s gave no key", ring.ID())
	}
	return key, err
}

// Own adds to all the keys of a trace or a stream that are not shared; 0 stands for a value without a key. It counts in done
// a trace or stream with a shared key, or with values that have no key. On an error it adds nothing.
func Own(ring chain.Keyring, keys []chain.KeyID, all *[]chain.KeyID, done *chain.Erased) error {
	keys = slices.Sorted(slices.Values(keys))
	shared, own := false, len(*all)
	for _, key := range slices.Compact(slices.Clone(keys)) {
		if key == 0 {
			continue
		}
		is, err := ring.Shared(key)
		if err != nil {
			*all = (*all)[:own]
			return err
		}
		if shared = shared || is; !is {
			*all = append(*all, key)
		}
	}
	if len(keys) > 0 && keys[0] == 0 {
		done.Unsealed++
	}
	if shared {
		done.Shared++
	}
	return nil
}

// Marking is a ring with a mark for each key. Marks show whether two copies of a ring have different keys of the same number: see keyring.Ring.Marks.
type Marking interface {
	Marks(after chain.KeyID, numbers int) (keys []chain.KeyID, marks [][]byte, err error)
}

// NotVerified returns the problem that a check reports for traces and values whose keys the ring lacks.
func NotVerified(n int) error {
	return tga.Errorf(tga.StoreUnavailable, "the key ring does not have the keys of %d traces or values beside them, so what they carry is not verified: put its newest copy back", n)
}
