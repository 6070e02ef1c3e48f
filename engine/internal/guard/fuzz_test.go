package guard

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
)

// FuzzReadWAL holds the strict reader against Pebble's: where it finds no problem, both
// see the same records. With repair, the checksums of what looks like a chunk are made
// right first, so that the input gets past them.
func FuzzReadWAL(f *testing.F) {
	for _, name := range []string{"small", "flushed, then more", "first log of a new store"} {
		for _, img := range images(f) {
			if img.name != name {
				continue
			}
			log := newest(img.files, isLog)
			f.Add(img.files[log], uint32(logNumber(f, log)), true)
			f.Add(img.files[log], uint32(logNumber(f, log)), false)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, number uint32, repair bool) {
		if len(b) > 8*blockSize {
			return
		}
		if repair {
			b = repaired(b)
		}
		w, problems, err := readWALBytes(b, uint64(number))
		if err != nil {
			t.Fatal(err)
		}
		if w.EndOffset > int64(len(b)) || w.Bytes != int64(len(b)) || len(problems) > 8 {
			t.Fatalf("%+v, %d problems, of %d bytes", w, len(problems), len(b))
		}
		if len(problems) > 0 || len(b) > blockSize {
			return // Pebble tries every bit of a long chunk that is damaged
		}
		if n := len(pebbleReads(b, uint64(number))); n != w.Records {
			t.Fatalf("%d records, Pebble reads %d: %+v", w.Records, n, w)
		}
	})
}

// repaired returns b with right checksums in what looks like a run of chunks.
func repaired(b []byte) []byte {
	b = slices.Clone(b)
	for off := 0; off+legacyHeader <= len(b); {
		layout, _ := typeOf(b[off+6])
		end := off + headerLen[layout] + int(binary.LittleEndian.Uint16(b[off+4:]))
		if layout == layoutNone || end > len(b) || end/blockSize != off/blockSize {
			break
		}
		binary.LittleEndian.PutUint32(b[off:], checksum(b[off+6:end]))
		off = end
	}
	return b
}

// FuzzReadManifest feeds a MANIFEST in two parts: they must not matter.
func FuzzReadManifest(f *testing.F) {
	for _, img := range images(f) {
		for name, b := range img.files {
			if isManifest(name) {
				f.Add(b, uint16(len(b)/2))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		if len(b) > 4*blockSize {
			return
		}
		whole, parts := newManifestReader("m"), newManifestReader("m")
		if _, err := io.Copy(whole, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		n := min(int(at), len(b))
		for _, p := range [][]byte{b[:n], b[n:]} {
			if _, err := parts.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		whole.finish()
		parts.finish()
		if whole.Manifest != parts.Manifest || len(whole.problems) != len(parts.problems) {
			t.Fatalf("whole %+v %v, in parts %+v %v", whole.Manifest, whole.problems, parts.Manifest, parts.problems)
		}
		if whole.EndOffset > int64(len(b)) || whole.Bytes != int64(len(b)) {
			t.Fatalf("%+v of %d bytes", whole.Manifest, len(b))
		}
	})
}

// FuzzDecodeMark: what decodes encodes to the same bytes.
func FuzzDecodeMark(f *testing.F) {
	var b [slotSize]byte
	(&Mark{1, 2, 3, 4, testStore}).encode(&b)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := decodeMark(b)
		if !ok {
			return
		}
		var again [slotSize]byte
		m.encode(&again)
		if copy(again[56:60], b[56:60]); !bytes.Equal(again[:56], b[:56]) {
			t.Fatalf("%x, then %x", b, again)
		}
	})
}
