package keyring

import (
	"crypto/cipher"
	"errors"
	"io"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// slot reads a slot. r.mu is held.
func (r *Ring) slot(n chain.KeyID) (slot, error) {
	if r.sharing != nil && uint64(n) > r.slots {
		if err := r.grown(); err != nil {
			return slot{}, err
		}
	}
	if n == 0 || uint64(n) > r.slots {
		return slot{}, missing("key ring %s has no key %d: it is older than the store, or another one", r.path, n)
	}
	var b [slotLen]byte
	if got, err := r.file.ReadAt(b[:], slotAt(n)); err != nil && !errors.Is(err, io.EOF) {
		return slot{}, tga.Errorf(tga.StoreUnavailable, "read key ring %s: %w", r.path, err)
	} else if s, ok := decodeSlot(b[:got], uint64(n)); ok {
		return s, nil
	} else if blank(b[:got]) {
		return slot{}, missing("key ring %s has no key %d: it is a copy from before that key. Only a newer copy has it", r.path, n)
	}
	return slot{}, missing("key ring %s: key %d is damaged. Restore the ring from a copy", r.path, n)
}

// missing returns the error for a key that is not available. It concerns only this key.
func missing(format string, args ...any) error {
	err := tga.Errorf(tga.StoreUnavailable, format, args...)
	err.Err = chain.ErrKeyMissing
	return err
}

// aead returns the cipher of a key.
func (r *Ring) aead(n chain.KeyID) (cipher.AEAD, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.keys[n]
	if ok && r.sharing == nil {
		return g, nil
	}
	if r.file == nil {
		return nil, r.usable()
	}
	s, err := r.slot(n)
	if err != nil {
		return nil, err
	}
	if s.state == destroyed {
		delete(r.keys, n) // another process may have destroyed it
		return nil, chain.ErrKeyDestroyed
	}
	if ok {
		return g, nil
	}
	key, err := r.wrap.unwrap(s.wrapped, uint64(n))
	if err != nil {
		return nil, missing("key ring %s: key %d is wrapped under another key-encryption key", r.path, n)
	}
	if g, err = newGCM(key); err != nil {
		return nil, err
	}
	clear(key)
	for old := range r.keys { // drop any key: it is unwrapped again when it is needed
		if len(r.keys) < mostKeys {
			break
		}
		delete(r.keys, old)
	}
	r.keys[n] = g
	return g, nil
}

// Seal implements [chain.Keys].
func (r *Ring) Seal(dst []byte, key chain.KeyID, plain, aad []byte) ([]byte, error) {
	g, err := r.aead(key)
	if err != nil {
		return nil, err
	}
	at := len(dst)
	dst = append(dst, make([]byte, g.NonceSize())...)
	if _, err := io.ReadFull(r.opts.Rand, dst[at:]); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "key ring: random bytes: %w", err)
	}
	return g.Seal(dst, dst[at:], plain, aad), nil
}

// Open implements [chain.Keys].
func (r *Ring) Open(dst []byte, key chain.KeyID, sealed, aad []byte) ([]byte, error) {
	g, err := r.aead(key)
	if err != nil {
		return nil, err
	}
	n := g.NonceSize()
	if len(sealed) < n {
		return nil, damaged("%d bytes are too short for a sealed value", len(sealed))
	}
	out, err := g.Open(dst, sealed[:n], sealed[n:], aad)
	if err != nil {
		return nil, damaged("it does not open under key %d", key)
	}
	return out, nil
}

// Shared reports whether a key belongs to a subject: other traces may be sealed under it.
func (r *Ring) Shared(key chain.KeyID) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return false, err
	}
	s, err := r.slot(key)
	return s.state == ofSubject || s.state == retired, err
}
