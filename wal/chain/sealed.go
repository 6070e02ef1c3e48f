package chain

import (
	"encoding/binary"
	"errors"

	"github.com/tgad/tgad/schemas/tga"
)

// KeyID names a data key of a key ring. 0 is no key.
type KeyID uint64

// Keys has the data keys under which the parts of entries are sealed (encrypted). Its methods
// may be called concurrently.
//
// A sealed part is the key's id [8], followed by the result of Seal: a nonce [12] that was
// never used under the key before, and the ciphertext and tag of AES-256-GCM.
type Keys interface {
	// Seal appends to dst the nonce, the ciphertext and the tag of plain: [SealOverhead] bytes
	// more than plain has. Open needs the same aad.
	Seal(dst []byte, key KeyID, plain, aad []byte) ([]byte, error)
	// Open appends to dst the plaintext of sealed. The error is [ErrKeyDestroyed] if the key
	// was destroyed for good, STATE_CHECKSUM_MISMATCH if the bytes are not what Seal returned,
	// and STORE_UNAVAILABLE if the key cannot be read now: caused by [ErrKeyMissing] if only this
	// key is missing.
	Open(dst []byte, key KeyID, sealed, aad []byte) ([]byte, error)
}

// ErrKeyDestroyed says that a data key was destroyed: what it sealed is erased.
var ErrKeyDestroyed = errors.New("the data key was destroyed")

// ErrKeyMissing says that a key ring lacks one data key and has others: it is an older copy, or
// one key in it is damaged. Only what is sealed under that key waits for a better copy of the ring.
var ErrKeyMissing = errors.New("the data key is missing")

// SealOverhead is how many bytes [Keys.Seal] adds: nonce and tag.
const SealOverhead = 12 + 16

// keyLen is the length of the key's id before what was sealed.
const keyLen = 8

// aadRoom is enough for the additional data of a part with a pointer of usual length.
const aadRoom = 128

// appendAAD appends the additional data that binds a sealed part: its place in the log, so that
// a part cannot be moved to another place, and the digest of the artifact that describes it.
//
//	trace id [16]  seq [8]  part number [1]  length of the pointer [2], pointer  artifact digest [32]
func appendAAD(dst []byte, e *tga.LogEntry, part int, pointer string) []byte {
	dst = append(dst, e.TraceID[:]...)
	dst = binary.BigEndian.AppendUint64(dst, e.Seq)
	dst = append(dst, byte(part))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(pointer)))
	dst = append(dst, pointer...)
	return append(dst, e.ArtifactDigest[:]...)
}

// AppendSealedFrame is [AppendFrame] for an entry that has a key: it seals the parts under that
// key. For an entry without a key, or without an artifact to seal, it makes the plain frame. If
// [Keys.Seal] fails, or keys is nil, the error is STORE_UNAVAILABLE and there is no frame.
func AppendSealedFrame(dst []byte, e *Entry, keys Keys) (frame, spill []byte, err error) {
	if e.Key == 0 || e.Artifact == nil {
		frame, spill = AppendFrame(dst, e)
		return frame, spill, nil
	}
	if keys == nil {
		return nil, nil, e.unsealable("seal", errNoRing)
	}
	var aad [aadRoom]byte
	frame, spill, err = appendFrame(dst, e, func(part int, pointer string, data []byte) ([]byte, error) {
		out := make([]byte, 0, keyLen+SealOverhead+len(data))
		out = binary.BigEndian.AppendUint64(out, uint64(e.Key))
		out, err := keys.Seal(out, e.Key, data, appendAAD(aad[:0], &e.LogEntry, part, pointer))
		if err == nil && len(out) != cap(out) {
			err = tga.Errorf(tga.GenericStateError, "a key ring sealed %d bytes as %d", len(data), len(out)-keyLen)
		}
		return out, err
	})
	if err != nil {
		return nil, nil, e.unsealable("seal", err)
	}
	return frame, spill, nil
}

var errNoRing = errors.New("the store is open without its key ring")

// unsealable makes the error for parts of e that cannot be sealed or opened now. It is no
// statement about the stored bytes.
func (e *Entry) unsealable(verb string, cause error) error {
	err := tga.Errorf(tga.StoreUnavailable, "trace %s seq %d: %s under key %d: %w", e.TraceID, e.Seq, verb, e.Key, cause).In(e.TraceID)
	err.Seq = e.Seq
	return err
}

// open opens the sealed parts of an entry, in place. It returns false if their key was
// destroyed.
func (e *Entry) open(h header, parts []part, keys Keys) (bool, error) {
	for i := range parts {
		if parts[i].encoding != sealed {
			continue
		}
		key := KeyID(binary.BigEndian.Uint64(parts[i].data))
		if key == 0 || i > 0 && key != e.Key { // the first part of a sealed frame is sealed
			return false, storedFault(h, tga.StateChecksumMismatch, "part %d: sealed under key %d, the first part under key %d", i, key, e.Key)
		}
		e.Key = key
	}
	if keys == nil {
		return false, e.unsealable("open", errNoRing)
	}
	var aad [aadRoom]byte
	for i := range parts {
		p := &parts[i]
		if p.encoding != sealed {
			continue
		}
		b := p.data[keyLen:]
		plain, err := keys.Open(make([]byte, 0, len(b)-SealOverhead), e.Key, b, appendAAD(aad[:0], &h.LogEntry, i, p.pointer))
		switch {
		case errors.Is(err, ErrKeyDestroyed):
			return false, nil
		case tga.CodeOf(err) == tga.StateChecksumMismatch:
			return false, storedFault(h, tga.StateChecksumMismatch, "part %d: %w", i, err)
		case err != nil:
			return false, e.unsealable("open", err)
		}
		p.data = plain
	}
	return true, nil
}

// NoKeys is for checking a log without its keys: everything sealed reads as erased, and nothing
// can be sealed.
type NoKeys struct{}

// Seal refuses.
func (NoKeys) Seal([]byte, KeyID, []byte, []byte) ([]byte, error) { return nil, errNoRing }

// Open returns [ErrKeyDestroyed].
func (NoKeys) Open([]byte, KeyID, []byte, []byte) ([]byte, error) { return nil, ErrKeyDestroyed }
