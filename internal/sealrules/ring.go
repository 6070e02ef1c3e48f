package sealrules

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Numbered is a ring that says which numbers its keys have, and can leave some out. A ring that was put
// back from a copy would give numbers again that the store has used: what the lost keys sealed would
// look damaged, and no later copy of the ring would have all keys.
type Numbered interface {
	Last() chain.KeyID
	Reserve(upTo chain.KeyID) error
	// Missing counts the numbers that were left out.
	Missing() int
}

// Lacks counts the keys up to a number that a store has used, and an older copy of the ring does not have.
func Lacks(ring Numbered, used chain.KeyID) int {
	lacks := ring.Missing()
	if last := ring.Last(); last < used {
		lacks += int(used - last)
	}
	return lacks
}

// SealedUnder is what a store remembers of the ring that it is sealed under: its id [16], and whether the ledger has
// digests by the ring's secret [1].
//
// Keyed says that the ledger has [chain.Keyring.RequestDigest] of each request, and nowhere the digest
// itself: of a store that had its ring before its first ledger record. One rule holds for all
// records of a store.
type SealedUnder struct {
	Ring  tga.ID
	Keyed bool
}

// Value is what is stored.
func (s SealedUnder) Value() []byte {
	value := append(s.Ring[:len(s.Ring):len(s.Ring)], 0)
	if s.Keyed {
		value[16] = 1
	}
	return value
}

// ReadSealedUnder reads what [SealedUnder.Value] made; ok is false of other bytes.
func ReadSealedUnder(value []byte) (s SealedUnder, ok bool) {
	if len(value) != 17 {
		return s, false
	}
	return SealedUnder{tga.ID(value[:16]), value[16] == 1}, true
}

// Fits refuses a ring that is another than the store is sealed under.
func (s SealedUnder) Fits(ring chain.Keyring, store string) error {
	if ring != nil && ring.ID() != s.Ring {
		return tga.Errorf(tga.StoreUnavailable, "open %s: the store is sealed under key ring %s, the one given is %s", store, s.Ring, ring.ID())
	}
	return nil
}

// Missing returns why a store that is sealed and has no ring takes no calls.
func (s SealedUnder) Missing(ring chain.Keyring) error {
	if ring == nil && !s.Ring.IsZero() {
		return tga.Errorf(tga.StoreUnavailable, "the store is sealed under key ring %s and open without it: nothing is written, nothing is sent. Open it with the ring (tgad keyring)", s.Ring)
	}
	return nil
}

// Digest is what the ledger has of a request.
func (s SealedUnder) Digest(ring chain.Keyring, p tga.Proposal) tga.Digest {
	d := tga.RequestDigest(p)
	if s.Keyed && ring != nil {
		return ring.RequestDigest(d)
	}
	return d
}

// NewKey asks a ring for a key that nothing was sealed under in the store.
func NewKey(ring chain.Keyring, namespace, subject string) (chain.KeyID, error) {
	key, err := ring.Key(namespace, subject)
	if err == nil && key == 0 {
		err = tga.Errorf(tga.StoreUnavailable, "key ring %s gave no key", ring.ID())
	}
	return key, err
}

// Own adds to all those of the keys of a trace or a stream that no other has; 0 stands for what has none. What the others
// mean for an erasure is counted. On an error nothing is added.
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

// Marking is a ring that tells its keys from others of the same numbers, in another copy of the ring: see keyring.Ring.Marks.
type Marking interface {
	Marks(after chain.KeyID, numbers int) (keys []chain.KeyID, marks [][]byte, err error)
}

// NotVerified is what a check says of traces and values whose keys the ring does not have.
func NotVerified(n int) error {
	return tga.Errorf(tga.StoreUnavailable, "the key ring does not have the keys of %d traces or values beside them, so what they carry is not verified: put its newest copy back", n)
}
