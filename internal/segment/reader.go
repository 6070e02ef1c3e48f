package segment

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"iter"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Reader reads single traces of a segment. It may be used by several goroutines.
type Reader struct {
	r       io.ReaderAt
	keys    chain.Keys
	footer  *footer
	fileSum tga.Digest
}

// Open reads the footer of a segment of size bytes and checks its digest. It does not check
// the blocks: each block is checked when it is read, and [Verify] checks all of them.
//
// keys open sealed entries. If keys is nil, a trace with a sealed entry is STORE_UNAVAILABLE.
//
// Errors: STATE_CHECKSUM_MISMATCH, Where "stored"; FORMAT_TOO_NEW; STORE_UNAVAILABLE
// when r fails.
func Open(r io.ReaderAt, size int64, keys chain.Keys) (*Reader, error) {
	if size < leastLen {
		return nil, fault("of %d bytes: cut short", size)
	}
	head, err := readAt(r, 0, headerLen)
	if err != nil {
		return nil, err
	}
	if err := checkHeader(head); err != nil {
		return nil, err
	}
	tail, err := readAt(r, size-trailerLen, trailerLen)
	if err != nil {
		return nil, err
	}
	t, err := decodeTrailer(tail, size)
	if err != nil {
		return nil, err
	}
	foot, err := readAt(r, int64(t.offset), int64(t.length))
	if err != nil {
		return nil, err
	}
	if sum := tga.Sum(foot); sum != t.footerSum {
		return nil, mismatch("footer digest", sum, t.footerSum)
	}
	f, err := decodeFooter(foot, t.offset)
	if err != nil {
		return nil, err
	}
	return &Reader{r: r, keys: keys, footer: f, fileSum: t.fileSum}, nil
}

// Is reports whether a file begins with the magic bytes of a segment.
func Is(r io.ReaderAt) (bool, error) {
	head := make([]byte, len(headerMagic))
	if n, err := r.ReadAt(head, 0); n < len(head) && err != io.EOF {
		return false, tga.Errorf(codeOf(err), "read a segment: %w", err)
	}
	return string(head) == headerMagic, nil
}

// Digest returns the digest of the file that the trailer states.
func (r *Reader) Digest() tga.Digest { return r.fileSum }

// Len returns the number of traces.
func (r *Reader) Len() int { return len(r.footer.traces) }

// Index yields what the footer says about each trace, in the order of their ids.
func (r *Reader) Index() iter.Seq[Info] { return slices.Values(r.footer.traces) }

// Lookup returns what the footer says about a trace. ok is false if it does not have the trace.
func (r *Reader) Lookup(id tga.ID) (Info, bool) { return r.footer.lookup(id) }

// On returns a reader of the same segment that reads from at. It does not read and check again
// what Open did.
func (r *Reader) On(at io.ReaderAt) *Reader { return &Reader{at, r.keys, r.footer, r.fileSum} }

// Size returns roughly how many bytes of memory the reader takes.
func (r *Reader) Size() int64 {
	return int64(traceEntryLen*len(r.footer.traces) + blockEntryLen*len(r.footer.blocks))
}

// Trace returns a trace of the segment, replayed and compared with the footer. It
// reads the block that holds the trace.
//
// Errors: NOT_FOUND; STATE_CHECKSUM_MISMATCH and other codes of [chain.Replay], Where
// "stored"; STORE_UNAVAILABLE when the underlying reader fails.
func (r *Reader) Trace(id tga.ID) (Trace, error) {
	info, ok := r.Lookup(id)
	if !ok {
		return Trace{}, tga.Errorf(tga.NotFound, "trace %s is not in the segment", id).In(id)
	}
	b, err := r.Block(info.Block)
	if err != nil {
		return Trace{}, named(err, id, 0, 0)
	}
	return b.Trace(id)
}

// Traces yields all traces in the order of the file, each checked as [Reader.Trace]
// checks it. It ends with the first error.
func (r *Reader) Traces() iter.Seq2[Trace, error] {
	return func(yield func(Trace, error) bool) {
		for i := range r.footer.blocks {
			for t, err := range r.block(i) {
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
}

// block yields the traces of one block.
func (r *Reader) block(n int) iter.Seq2[Trace, error] {
	return func(yield func(Trace, error) bool) {
		traces, stored, err := r.packed(n)
		if err != nil {
			yield(Trace{}, err)
			return
		}
		for t, err := range readBlock(bytes.NewReader(stored), traces, n, r.keys) {
			if err == nil {
				if want, ok := r.Lookup(t.trace.ID); !ok || want != t.info {
					err = fault("block %d: trace %s differs from the footer", n, t.trace.ID).In(t.trace.ID)
				}
			}
			if !yield(t.trace, err) || err != nil {
				return
			}
		}
	}
}

// packed reads a block as it is stored, and checks its digest.
func (r *Reader) packed(n int) (traces uint32, stored []byte, err error) {
	return r.stored(r.footer.blocks[n], decodeBlockHeader, "block")
}

// stored reads a block or the list as it is stored, and checks its digest.
func (r *Reader) stored(info blockInfo, decode func([]byte) (uint32, uint64, error), what string) (traces uint32, stored []byte, err error) {
	// The footer's lengths were checked against the file's size, so this allocates no more
	// bytes than the file has.
	b, err := readAt(r.r, int64(info.offset), int64(blockHeaderLen+info.stored))
	if err != nil {
		return 0, nil, err
	}
	traces, length, err := decode(b)
	if err == nil && length != info.stored {
		err = fault("%s: %d bytes, the footer says %d", what, length, info.stored)
	}
	if err != nil {
		return 0, nil, err
	}
	stored = b[blockHeaderLen:]
	if sum := tga.Sum(stored); sum != info.digest {
		return 0, nil, mismatch(what+" digest", sum, info.digest)
	}
	return traces, stored, nil
}

// replayed is a trace read from a block, with what the footer must say about it.
type replayed struct {
	trace Trace
	state *chain.Trace
	info  Info
}

// readBlock yields the traces of one block from its stored bytes: exactly as many as
// its header says, and then the end of the records and of the zstd frame.
func readBlock(stored io.Reader, traces uint32, n int, keys chain.Keys) iter.Seq2[replayed, error] {
	return func(yield func(replayed, error) bool) {
		// Concurrency 1 starts no goroutine. recordReader bounds how much a trace may
		// decompress to.
		dec, err := zstd.NewReader(stored, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			yield(replayed{}, fault("block %d: %w", n, err))
			return
		}
		defer dec.Close()
		rr := recordReader{r: dec, keys: keys}
		for range traces {
			t, state, err := rr.next()
			if err != nil {
				yield(replayed{}, err)
				return
			}
			if !yield(replayed{t, state, t.info(state, n)}, nil) {
				return
			}
		}
		var one [1]byte
		if _, err := io.ReadFull(dec, one[:]); err != io.EOF {
			yield(replayed{}, fault("block %d: bytes after its %d traces, or no end: %v", n, traces, err))
		}
	}
}

// decodeListHeader reads the header of a list, which has the form of a block's header. Unlike a
// block, a list may have 0 traces.
func decodeListHeader(b []byte) (traces uint32, stored uint64, err error) {
	if len(b) < blockHeaderLen || string(b[:4]) != listMagic {
		return 0, 0, fault("list: none at its place")
	}
	return binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:]), nil
}

func decodeBlockHeader(b []byte) (traces uint32, stored uint64, err error) {
	if len(b) < blockHeaderLen || string(b[:4]) != blockMagic {
		return 0, 0, fault("block: none at its place")
	}
	traces, stored = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])
	if traces == 0 || traces > MaxTraces {
		return 0, 0, fault("block: %d traces", traces)
	}
	return traces, stored, nil
}

func readAt(r io.ReaderAt, offset, n int64) ([]byte, error) {
	b := make([]byte, n)
	if got, err := r.ReadAt(b, offset); got < len(b) {
		return nil, tga.Errorf(codeOf(err), "read a segment at %d, %d of %d bytes: %w", offset, got, n, noEOF(err))
	}
	return b, nil
}

// codeOf returns the code of a reader's error: a reader that knows better than that it failed says so.
func codeOf(err error) tga.Code { return cmp.Or(tga.CodeOf(err), tga.StoreUnavailable) }
