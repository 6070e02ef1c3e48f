package segment

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Block is one block of a segment, checked against the footer's digest and unpacked. Its
// traces are decoded when they are requested. Several goroutines may use it. It no longer
// needs its reader.
type Block struct {
	footer  *footer
	n       int
	traces  uint32
	records []byte
	keys    chain.Keys
}

// unpacker decompresses blocks. Its memory is bounded by the largest block that [Writer] makes:
// a block ends with the record that reaches [BlockTarget].
var unpacker = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(MaxTrace+BlockTarget))
	if err != nil {
		panic("segment: options of zstd: " + err.Error())
	}
	return d
})

// Block reads and unpacks a block, by its number from 0 on.
//
// Errors: STATE_CHECKSUM_MISMATCH, Where "stored"; STORE_UNAVAILABLE when the underlying
// reader fails.
func (r *Reader) Block(n uint32) (*Block, error) {
	traces, packed, err := r.packed(int(n))
	if err != nil {
		return nil, err
	}
	records, err := unpacker().DecodeAll(packed, nil)
	if err != nil {
		return nil, fault("block %d: %w", n, err)
	}
	return &Block{r.footer, int(n), traces, records, r.keys}, nil
}

// Size returns roughly how many bytes of memory the block takes.
func (b *Block) Size() int64 { return int64(cap(b.records)) }

// Trace returns a trace of the block, replayed and compared with the footer. It skips the
// traces before it by their lengths, without decoding them.
//
// Errors: NOT_FOUND; STATE_CHECKSUM_MISMATCH and other codes of [chain.Replay], Where
// "stored".
func (b *Block) Trace(id tga.ID) (Trace, error) {
	info, ok := b.footer.lookup(id)
	if !ok || int(info.Block) != b.n {
		return Trace{}, tga.Errorf(tga.NotFound, "trace %s is not in block %d", id, b.n).In(id)
	}
	rest := b.records
	for range b.traces {
		if len(rest) >= recordLen && tga.ID(rest[:16]) == id {
			rr := recordReader{r: bytes.NewReader(rest), keys: b.keys}
			t, state, err := rr.next()
			if err == nil && t.info(state, b.n) != info {
				return Trace{}, fault("block %d: trace %s differs from the footer", b.n, id).In(id)
			}
			return t, err
		}
		n, ok := recordSpan(rest)
		if !ok {
			return Trace{}, fault("block %d: cut short before trace %s", b.n, id).In(id)
		}
		rest = rest[n:]
	}
	return Trace{}, fault("block %d: trace %s is not there, the footer says it is", b.n, id).In(id)
}

// recordSpan returns the length of the record at the beginning of b. ok is false if b ends
// before the record does.
func recordSpan(b []byte) (n int, ok bool) {
	whole := len(b)
	// take removes n bytes from the front of b and returns them.
	take := func(n uint64) []byte {
		if !ok || n > uint64(len(b)) {
			ok = false
			return make([]byte, recordLen) // of zeros: nothing follows
		}
		taken := b[:n]
		b = b[n:]
		return taken
	}
	ok = true
	head := take(recordLen)
	entries, notes := binary.BigEndian.Uint32(head[16:]), binary.BigEndian.Uint32(head[20:])
	for range entries {
		head := take(entryHeadLen)
		take(uint64(binary.BigEndian.Uint32(head)))
		take(binary.BigEndian.Uint64(head[4:]))
		if !ok {
			return 0, false
		}
	}
	for range notes {
		take(uint64(binary.BigEndian.Uint32(take(noteHeadLen))))
		if !ok {
			return 0, false
		}
	}
	return whole - len(b), ok
}
