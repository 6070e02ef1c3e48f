package chaintest

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Ring is a key ring for tests; it also serves as the key ring of a store. Its keys are derived
// from their ids, and its nonces from the additional data, so that a golden file made with it does
// not change. It can be used for several opens of a store, one after the other.
type Ring struct {
	Destroyed map[chain.KeyID]bool
	Err       error       // if not nil, every call returns it
	BySubject bool        // the traces of a subject share one key
	Lost      chain.KeyID // this key is not available now

	mu       sync.Mutex
	given    chain.KeyID
	shared   map[chain.KeyID]bool
	subjects map[string][]chain.KeyID // the last is for new traces, unless it is 0
}

func (r *Ring) aead(key chain.KeyID) (cipher.AEAD, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Err != nil {
		return nil, r.Err
	}
	if r.Destroyed[key] {
		return nil, chain.ErrKeyDestroyed
	}
	if key != 0 && key == r.Lost {
		return nil, tga.Errorf(tga.StoreUnavailable, "key %d is lost: %w", key, chain.ErrKeyMissing)
	}
	sum := tga.Sum(binary.BigEndian.AppendUint64([]byte("key of a test "), uint64(key)))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal seals with a nonce that is derived from aad.
func (r *Ring) Seal(dst []byte, key chain.KeyID, plain, aad []byte) ([]byte, error) {
	g, err := r.aead(key)
	if err != nil {
		return nil, err
	}
	nonce := tga.Sum(aad)
	return g.Seal(append(dst, nonce[:g.NonceSize()]...), nonce[:g.NonceSize()], plain, aad), nil
}

// Open opens what Seal returned.
func (r *Ring) Open(dst []byte, key chain.KeyID, sealed, aad []byte) ([]byte, error) {
	g, err := r.aead(key)
	if err != nil {
		return nil, err
	}
	out, err := g.Open(dst, sealed[:g.NonceSize()], sealed[g.NonceSize():], aad)
	if err != nil {
		return nil, tga.Errorf(tga.StateChecksumMismatch, "it does not open under key %d", key)
	}
	return out, nil
}

// ID returns the same id for every ring.
func (r *Ring) ID() tga.ID { return tga.ID{1, 6: 0x70, 8: 0x80, 15: 7} }

// Key returns the next key, or that of the subject.
func (r *Ring) Key(namespace, subject string) (chain.KeyID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Err != nil {
		return 0, r.Err
	}
	who, shared := namespace+"\x00"+subject, r.BySubject && subject != ""
	if list := r.subjects[who]; shared && len(list) > 0 && list[len(list)-1] != 0 {
		return list[len(list)-1], nil
	}
	r.given++
	if shared {
		if r.shared == nil {
			r.shared, r.subjects = map[chain.KeyID]bool{}, map[string][]chain.KeyID{}
		}
		r.shared[r.given] = true
		r.subjects[who] = append(slices.DeleteFunc(r.subjects[who], func(n chain.KeyID) bool { return n == 0 }), r.given)
	}
	return r.given, nil
}

// Shared reports whether a key belongs to a subject.
func (r *Ring) Shared(key chain.KeyID) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared[key], r.Err
}

// Retire returns the subject's keys; the next trace gets another one.
func (r *Ring) Retire(namespace, subject string) (keys []chain.KeyID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := namespace + "\x00" + subject
	for _, n := range r.subjects[who] {
		if n != 0 && !r.Destroyed[n] {
			keys = append(keys, n)
		}
	}
	if len(keys) > 0 {
		r.subjects[who] = append(slices.Clone(keys), 0)
	}
	return keys, r.Err
}

// Destroy destroys a key.
func (r *Ring) Destroy(key chain.KeyID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Err != nil {
		return r.Err
	}
	if r.Destroyed == nil {
		r.Destroyed = map[chain.KeyID]bool{}
	}
	r.Destroyed[key] = true
	return nil
}

// Gone returns a copy of the destroyed keys. It may be called while the ring is in use.
func (r *Ring) Gone() map[chain.KeyID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.Destroyed)
}

// RequestDigest returns a digest that differs from plain.
func (r *Ring) RequestDigest(plain tga.Digest) tga.Digest {
	return tga.Sum(append([]byte("secret of a test"), plain[:]...))
}

// Lose makes a key unavailable from now on, 0 for none. It may be called while the ring is in use.
func (r *Ring) Lose(key chain.KeyID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Lost = key
}
