package sends

import (
	"encoding/binary"
	"slices"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Changed appends what changed since the last call, for [Book.Restore] of a later process.
func (b *Book) Changed(dst []byte) ([]byte, error) {
	hashes := make([][32]byte, 0, len(b.changed))
	for hash := range b.changed {
		hashes = append(hashes, hash)
	}
	slices.SortFunc(hashes, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
	for _, hash := range hashes {
		dst = append(dst, hash[:]...)
		at := len(dst)
		dst = append(dst, 0, 0)
		if r := b.records[hash]; r != nil {
			var err error
			if dst, err = r.AppendBinary(dst); err != nil {
				return nil, err
			}
		}
		size := len(dst) - at - 2
		if size > 0xffff {
			return nil, tga.Errorf(tga.LimitExceeded, "a record of %d bytes", size)
		}
		binary.BigEndian.PutUint16(dst[at:], uint16(size))
	}
	clear(b.changed)
	return dst, nil
}

// Restore applies changes that [Book.Changed] wrote. The caller restores them in the order in which they
// were written.
func (b *Book) Restore(src []byte) error {
	for len(src) > 0 {
		if len(src) < 34 {
			return tga.Errorf(tga.StateChecksumMismatch, "a record that ends within its key")
		}
		hash, size := [32]byte(src), int(binary.BigEndian.Uint16(src[32:]))
		if src = src[34:]; size > len(src) {
			return tga.Errorf(tga.StateChecksumMismatch, "a record of %d bytes with %d left", size, len(src))
		}
		var r *ledger.Record
		if size > 0 {
			var err error
			if r, err = ledger.DecodeRecord(src[:size]); err != nil {
				return err
			}
		}
		if old := b.records[hash]; old != nil {
			delete(b.has, old.TraceID)
		}
		if src = src[size:]; r == nil {
			delete(b.records, hash)
			continue
		}
		b.records[hash] = r
		if r.Status == ledger.Reserved {
			b.has[r.TraceID] = hash
		}
	}
	return nil
}
