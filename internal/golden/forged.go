package golden

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
)

// Case is a file that differs from a good file, and what a reader says about it.
type Case struct {
	Name    string   `json:"name"`
	Size    int      `json:"size"` // bytes; those beyond the good file are zeros, except for the changes
	Changes []Change `json:"changes"`
	Verdict string   `json:"verdict"`
}

// Change is a range of bytes that differ from the good file.
type Change struct {
	Offset int    `json:"offset"`
	Hex    string `json:"hex"`
}

// NewCase makes the case of a file b: the differences from good.
func NewCase(name string, good, b []byte, verdict string) Case {
	c := Case{Name: name, Size: len(b), Changes: []Change{}, Verdict: verdict}
	base := make([]byte, len(b))
	copy(base, good)
	for at := 0; at < len(b); at++ {
		if b[at] == base[at] {
			continue
		}
		end := at + 1
		for end < len(b) && !bytes.Equal(b[end:min(end+8, len(b))], base[end:min(end+8, len(b))]) {
			end++
		}
		c.Changes = append(c.Changes, Change{at, hex.EncodeToString(b[at:end])})
		at = end
	}
	return c
}

// Stored returns a zstd frame that holds b uncompressed, so that a reader without zstd can read it.
func Stored(b []byte) []byte {
	f := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, binary.LittleEndian.AppendUint32(nil, uint32(len(b)))...)
	for {
		n := min(len(b), 64<<10)
		last := uint32(0)
		if n == len(b) {
			last = 1
		}
		f = append(f, binary.LittleEndian.AppendUint32(nil, last|uint32(n)<<3)[:3]...)
		f = append(f, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			return f
		}
	}
}
