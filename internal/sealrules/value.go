package sealrules

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The stored form of an attachment's value is the value itself, or, if the value is sealed:
//
//	 0  FF "SEALED" version [1]
//	 8  key id [8]
//	16  nonce [12], ciphertext and tag [16] of AES-256-GCM
//
// An unsealed value that itself begins with FF "SEALED" is stored after such a header with key id 0, so
// the two forms cannot be confused. The additional data is the store's key of the attachment, with its
// kind byte, so a stored value opens under no other key of the store. The additional data of a part of
// an entry is always longer.
const (
	valueMark   = "\xffSEALED"
	valueHeader = len(valueMark) + 1 + 8
)

// Marked reports whether a value begins like a sealed one. Such a value is never stored as it is.
func Marked(value []byte) bool { return bytes.HasPrefix(value, []byte(valueMark)) }

var errNoRing = errors.New("the store is open without its key ring")

// Store returns the stored form of an attachment's value under the store's key at: the value
// itself, or, if key is not 0, the value sealed under key. STORE_UNAVAILABLE: it cannot be sealed.
func Store(at, value []byte, key chain.KeyID, keys chain.Keys) ([]byte, error) {
	if key == 0 && !Marked(value) {
		return value, nil
	}
	out := make([]byte, 0, valueHeader+chain.SealOverhead+len(value))
	out = append(append(out, valueMark...), tga.SealedValueVersion)
	out = binary.BigEndian.AppendUint64(out, uint64(key))
	if key == 0 {
		return append(out, value...), nil
	}
	err := errNoRing
	if keys != nil {
		out, err = keys.Seal(out, key, value, at)
	}
	if err == nil && len(out) != cap(out) {
		err = tga.Errorf(tga.GenericStateError, "a key ring sealed %d bytes as %d", len(value), len(out)-valueHeader)
	}
	if err != nil {
		return nil, valueUnavailable("seal", at, key, err)
	}
	return out, nil
}

// KeyOf returns the key under which a stored value is sealed, 0 if it is not sealed.
func KeyOf(stored []byte) chain.KeyID {
	if len(stored) < valueHeader || !Marked(stored) {
		return 0
	}
	return chain.KeyID(binary.BigEndian.Uint64(stored[valueHeader-8:]))
}

// Open returns the value of a stored form that [Store] made. [chain.ErrKeyDestroyed]: the value is
// erased. STORE_UNAVAILABLE: the key is not available. STATE_CHECKSUM_MISMATCH: the bytes are damaged,
// or belong to another key of the store.
func Open(at, stored []byte, keys chain.Keys) ([]byte, error) {
	if !Marked(stored) {
		return stored, nil
	}
	fault := func(code tga.Code, format string, args ...any) error {
		err := tga.Errorf(code, "the value under the key %x: "+format, append([]any{at}, args...)...)
		err.Where = "stored"
		return err
	}
	if len(stored) < valueHeader {
		return nil, fault(tga.StateChecksumMismatch, "%d bytes are too short for a sealed value", len(stored))
	}
	if v := stored[len(valueMark)]; v > tga.SealedValueVersion {
		return nil, fault(tga.FormatTooNew, "version %d, this program knows %d", v, tga.SealedValueVersion)
	} else if v != tga.SealedValueVersion {
		return nil, fault(tga.StateChecksumMismatch, "version %d", v)
	}
	key, b := KeyOf(stored), stored[valueHeader:]
	switch {
	case key == 0 && !Marked(b):
		return nil, fault(tga.StateChecksumMismatch, "it needs no mark")
	case key == 0:
		return b, nil
	case len(b) < chain.SealOverhead:
		return nil, fault(tga.StateChecksumMismatch, "%d bytes are too short for a sealed value", len(stored))
	case keys == nil:
		return nil, valueUnavailable("open", at, key, errNoRing)
	}
	value, err := keys.Open(make([]byte, 0, len(b)-chain.SealOverhead), key, b, at)
	switch {
	case errors.Is(err, chain.ErrKeyDestroyed):
		return nil, chain.ErrKeyDestroyed
	case tga.CodeOf(err) == tga.StateChecksumMismatch:
		return nil, fault(tga.StateChecksumMismatch, "%w", err)
	case err != nil:
		return nil, valueUnavailable("open", at, key, err)
	}
	return value, nil
}

// valueUnavailable returns the error for a value that cannot be sealed or opened now. It does not
// mean that the stored bytes are damaged.
func valueUnavailable(verb string, at []byte, key chain.KeyID, cause error) error {
	return tga.Errorf(tga.StoreUnavailable, "%s the value under the key %x: data key %d: %w", verb, at, key, cause)
}
