package keyring

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"hash/crc32"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A ring is a header and slots. Integers are big-endian; bytes that are not listed are zero.
//
//	header
//	   0  "TGADRING" [8]   version [4] = 1   where the KEK is from [1]: 1 a file, 2 a command
//	  16  id of the ring [16]
//	  32  the ring's secret, wrapped [60]
//	  96  length of the wrapped KEK [4], of a ring whose KEK is from a command; and its bytes
//	4092  checksum of the bytes before it [4]
//
//	slot n, from 1, at 4096 + 128 (n - 1)
//	   0  state [1]: 1 for a trace, 2 of a subject, 3 of a subject, for no new trace, 4 destroyed
//	   8  subject tag [16], zeros for a trace
//	  24  the data key, wrapped [60]; zeros where it is destroyed
//	 124  checksum of the slot's number [8] and of the bytes before it [4]
//
// A wrapped key is a nonce [12], and the ciphertext [32] and tag [16] of AES-256-GCM under the
// KEK; the additional data is the ring's id and the number of the slot [8], 0 for the secret.
// A slot lies within one sector of the disk, so a crash leaves the old slot or the new one.
const (
	magic      = "TGADRING"
	headerLen  = 4096
	slotLen    = 128
	wrappedLen = 12 + 32 + 16
	maxKEK     = headerLen - 4 - 100

	fromFile    = 1
	fromProgram = 2
)

// state is the state of a slot.
type state byte

const (
	ofTrace   state = 1
	ofSubject state = 2
	retired   state = 3 // of a subject; no new trace gets it
	destroyed state = 4
)

type tag [16]byte

// slot is a data key as it is stored in the ring.
type slot struct {
	state   state
	tag     tag
	wrapped [wrappedLen]byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// slotSum is the checksum of a slot, which binds it to its place.
func slotSum(n uint64, b []byte) uint32 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(nil, n), castagnoli)
	return crc32.Update(sum, castagnoli, b[:slotLen-4])
}

func (s *slot) append(dst []byte, n uint64) []byte {
	at := len(dst)
	dst = append(dst, byte(s.state), 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, s.tag[:]...)
	dst = append(dst, s.wrapped[:]...)
	dst = append(dst, make([]byte, slotLen-4-(len(dst)-at))...)
	return binary.BigEndian.AppendUint32(dst, slotSum(n, dst[at:at+slotLen-4]))
}

// decodeSlot reads slot n; ok is false if it is damaged, or was never written completely.
func decodeSlot(b []byte, n uint64) (s slot, ok bool) {
	if len(b) != slotLen || binary.BigEndian.Uint32(b[slotLen-4:]) != slotSum(n, b) {
		return slot{}, false
	}
	s = slot{state: state(b[0]), tag: tag(b[8:24]), wrapped: [wrappedLen]byte(b[24 : 24+wrappedLen])}
	again := s.append(nil, n)
	return s, string(again) == string(b) && s.state >= ofTrace && s.state <= destroyed &&
		(s.state == ofTrace || s.state == destroyed) == (s.tag == tag{}) &&
		(s.state == destroyed) == (s.wrapped == [wrappedLen]byte{})
}

// blank reports whether a slot was never written. A crash may leave such slots at the end of a
// batch; their keys were given to nobody.
func blank(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// slotAt returns the offset of slot n.
func slotAt(n chain.KeyID) int64 { return headerLen + slotLen*(int64(n)-1) }

// header is the header of a ring.
type header struct {
	from   byte
	id     tga.ID
	secret [wrappedLen]byte
	kek    []byte // the KEK, wrapped by the program
}

func (h *header) encode() []byte {
	b := make([]byte, headerLen)
	copy(b, magic)
	binary.BigEndian.PutUint32(b[8:], tga.KeyringVersion)
	b[12] = h.from
	copy(b[16:], h.id[:])
	copy(b[32:], h.secret[:])
	binary.BigEndian.PutUint32(b[96:], uint32(len(h.kek)))
	copy(b[100:], h.kek)
	binary.BigEndian.PutUint32(b[headerLen-4:], crc32.Checksum(b[:headerLen-4], castagnoli))
	return b
}

func decodeHeader(path string, b []byte) (h header, err error) {
	if len(b) < headerLen || string(b[:8]) != magic {
		return h, tga.Errorf(tga.ValidationError, "key ring %s: it is no key ring", path)
	}
	b = b[:headerLen]
	if v := binary.BigEndian.Uint32(b[8:]); v != tga.KeyringVersion {
		return h, tga.Errorf(tga.FormatTooNew, "key ring %s has version %d, this program knows %d", path, v, tga.KeyringVersion)
	}
	n := binary.BigEndian.Uint32(b[96:])
	if n <= maxKEK {
		h = header{from: b[12], id: tga.ID(b[16:32]), secret: [wrappedLen]byte(b[32 : 32+wrappedLen]), kek: b[100 : 100+n]}
	}
	if n > maxKEK || h.from != fromFile && h.from != fromProgram || string(h.encode()) != string(b) {
		return h, damaged("key ring %s: its header is damaged. Restore it from a copy, else nothing that it sealed can be read", path)
	}
	return h, nil
}

func damaged(format string, args ...any) *tga.Error {
	err := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	err.Where = "stored"
	return err
}

// wrapping wraps and unwraps keys under a KEK.
type wrapping struct {
	aead cipher.AEAD
	id   tga.ID
}

func newWrapping(kek []byte, id tga.ID) (wrapping, error) {
	g, err := newGCM(kek)
	return wrapping{g, id}, err
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (w wrapping) aad(n uint64) []byte {
	return binary.BigEndian.AppendUint64(w.id[:len(w.id):len(w.id)], n)
}

func (w wrapping) wrap(key, nonce []byte, n uint64) (out [wrappedLen]byte) {
	copy(out[:], nonce)
	w.aead.Seal(out[:12], nonce, key, w.aad(n))
	return out
}

func (w wrapping) unwrap(b [wrappedLen]byte, n uint64) ([]byte, error) {
	return w.aead.Open(nil, b[:12], b[12:], w.aad(n))
}
