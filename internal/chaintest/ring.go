package chaintest

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Ring is a key ring for tests. Its keys follow from their ids, and its nonces from what they
// are for, so that a golden file made with it does not change.
type Ring struct {
	Destroyed map[chain.KeyID]bool
	Err       error // answers every call, where it is not nil
}

func (r *Ring) aead(key chain.KeyID) (cipher.AEAD, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	if r.Destroyed[key] {
		return nil, chain.ErrKeyDestroyed
	}
	sum := tga.Sum(binary.BigEndian.AppendUint64([]byte("key of a test "), uint64(key)))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal seals with a nonce that follows from aad.
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
