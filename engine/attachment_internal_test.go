package engine

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestAttachmentsOverTheEndOfAPage: whether a page ends with the last one of the prefix, one before or one
// behind it, each is yielded once and in order, and none of another prefix or kind.
func TestAttachmentsOverTheEndOfAPage(t *testing.T) {
	serial.Test(t)
	for _, n := range []int{0, 1, attachmentPage - 1, attachmentPage, attachmentPage + 1, 2*attachmentPage + 1} {
		db := inMemory(t)
		put := func(high byte, i int) []byte {
			key := make([]byte, 32)
			key[0] = high
			binary.BigEndian.PutUint32(key[1:], uint32(i))
			db.Put(attached(keyspace.Blob, keyspace.DigestKey([32]byte(key))), []byte{byte(i)})
			return key
		}
		put(6, 0)
		var want [][]byte
		for i := range n {
			want = append(want, put(7, i))
		}
		put(8, 0)
		seen := 0
		for a, err := range db.Attachments(t.Context(), chain.AttachBlob, []byte{7}) {
			if err != nil || seen == n || a.Kind != chain.AttachBlob || !slices.Equal(a.Key, want[seen]) || !slices.Equal(a.Value, []byte{byte(seen)}) {
				t.Fatalf("attachment %d of %d: %+v, %v", seen, n, a, err)
			}
			seen++
		}
		if seen != n {
			t.Errorf("%d attachments, want %d", seen, n)
		}
	}
}

// TestAttachmentsEndWithTheirError: an invalid row ends the list with its error, after the pages before it.
// An invalid kind has no list.
func TestAttachmentsEndWithTheirError(t *testing.T) {
	db := inMemory(t)
	for i := range attachmentPage + 2 {
		key := [32]byte{0: byte(i >> 8), 1: byte(i)}
		row := []byte{rowValue, 1}
		if i == attachmentPage+1 {
			row = []byte{rowBody}
		}
		db.PutRow(attached(keyspace.Blob, keyspace.DigestKey(key)), row)
	}
	seen, errs := 0, []error{}
	for a, err := range db.Attachments(t.Context(), chain.AttachBlob, nil) {
		if err == nil {
			seen++
		} else if errs = append(errs, err); a.Key != nil {
			t.Errorf("%+v beside an error", a)
		}
	}
	if seen != attachmentPage || len(errs) != 1 || tga.CodeOf(errs[0]) != tga.StateChecksumMismatch {
		t.Errorf("%d attachments, %v", seen, errs)
	}
	for range db.Attachments(t.Context(), chain.AttachBlob, nil) {
		break
	}
	for a, err := range db.Attachments(t.Context(), 'x', nil) {
		if err == nil {
			t.Errorf("of a kind that is none: %+v", a)
		}
	}
}

// attached is the key of an attachment whose owner names it by the bytes after the kind.
func attached(kind keyspace.Kind, rest []byte) []byte { return append([]byte{byte(kind)}, rest...) }
