package segment

import (
	"crypto/sha256"
	"hash"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Writer writes a segment. It is for one goroutine. After an error of the underlying
// writer every call returns that error. What was written is then no segment and must be
// discarded.
type Writer struct {
	w      io.Writer
	sum    hash.Hash // of all bytes written
	offset uint64
	zstd   *zstd.Encoder
	keys   chain.Keys

	block    []byte // trace records not yet written
	inBlock  uint32
	packed   []byte // reused for the compressed block
	shown    map[tga.ID]chain.Listing
	listed   int64 // bytes of the list
	footer   footer
	err      error // of w; sticky
	finished bool
}

// NewWriter starts a segment on w. The caller syncs and closes w after [Writer.Close]. keys seal
// the entries that have a key; it may be nil if none has.
func NewWriter(w io.Writer, keys chain.Keys) (*Writer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(maxWindow))
	if err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "start a segment: %w", err)
	}
	sw := &Writer{w: w, sum: sha256.New(), zstd: enc, keys: keys, shown: map[tga.ID]chain.Listing{}}
	return sw, sw.write(appendHeader(nil))
}

// Add adds one trace. It replays the trace first, so that a segment never holds what [Verify]
// would refuse; it returns an error of [chain.Replay] unchanged. A trace that is not terminal,
// or already in the segment, is STATE_ERROR. A record over [MaxTrace] bytes, a list over
// [MaxList] bytes or a trace after [MaxTraces] is LIMIT_EXCEEDED. After any of these errors the
// segment is as if Add had not been called.
func (w *Writer) Add(t *Trace) error {
	if err := w.usable(); err != nil {
		return err
	}
	replayed, err := t.Replay()
	switch {
	case err != nil:
		return err
	case !replayed.Head.State.Terminal():
		return tga.Errorf(tga.GenericStateError, "seal trace %s: its state is %q, not terminal", t.ID, replayed.Head.State).In(t.ID)
	case w.has(t.ID):
		return tga.Errorf(tga.GenericStateError, "seal trace %s: it is in this segment already", t.ID).In(t.ID)
	case len(w.shown) == MaxTraces:
		return tga.Errorf(tga.LimitExceeded, "seal trace %s: segment has %d traces", t.ID, MaxTraces).In(t.ID)
	}
	if err := checkSize(t.ID, recordSize(t)); err != nil {
		return err
	}
	shown := replayed.Listing()
	listed := w.listed + int64(len(appendListing(nil, &shown)))
	if err := checkList(t.ID, listed); err != nil {
		return err
	}
	block, err := t.append(w.block, w.keys)
	if err != nil {
		return err
	}
	w.footer.traces = append(w.footer.traces, t.info(replayed, len(w.footer.blocks)))
	w.shown[t.ID], w.listed = shown, listed
	w.block = block
	w.inBlock++
	if len(w.block) < BlockTarget {
		return nil
	}
	return w.flush()
}

func (w *Writer) has(id tga.ID) bool {
	_, ok := w.shown[id]
	return ok
}

// checkSize refuses a record with more bytes than [Verify] would read.
func checkSize(trace tga.ID, size int64) error {
	if size > MaxTrace {
		return tga.Errorf(tga.LimitExceeded, "seal trace %s: %d bytes, over %d", trace, size, int64(MaxTrace)).In(trace)
	}
	return nil
}

// checkList refuses a trace that would make the list too long.
func checkList(trace tga.ID, size int64) error {
	if size > MaxList {
		return tga.Errorf(tga.LimitExceeded, "seal trace %s: the list of the segment has %d bytes with it, over %d", trace, size, int64(MaxList)).In(trace)
	}
	return nil
}

// recordSize returns an upper bound of the size of t's record, without making it.
func recordSize(t *Trace) int64 {
	const (
		overhead = 1 << 10 // of one frame, over the bytes it carries
		escaped  = 6       // most bytes that one byte of a name takes in JSON
	)
	size := int64(recordLen)
	for _, e := range t.Entries {
		size += overhead + int64(len(e.IdempotencyKey))
		if e.Artifact != nil {
			size += int64(len(e.Artifact.Canonical))
		}
		for _, d := range e.Documents {
			size += overhead + int64(len(d.Pointer)+len(d.Data))
		}
	}
	for _, n := range t.Notes {
		size += overhead + int64(len(n.Body)+escaped*len(n.Who))
	}
	return size
}

func (w *Writer) flush() error {
	if w.inBlock == 0 {
		return nil
	}
	info, err := w.compressed(blockMagic, w.inBlock, w.block)
	w.footer.blocks = append(w.footer.blocks, info)
	w.block, w.inBlock = w.block[:0], 0
	return err
}

// compressed writes records as a block, or as the list, and returns their place.
func (w *Writer) compressed(magic string, traces uint32, records []byte) (blockInfo, error) {
	w.packed = w.zstd.EncodeAll(records, w.packed[:0])
	info := blockInfo{offset: w.offset, stored: uint64(len(w.packed)), digest: tga.Sum(w.packed)}
	if err := w.write(appendBlockHeader(nil, magic, traces, info.stored)); err != nil {
		return info, err
	}
	return info, w.write(w.packed)
}

// list writes the list, in the order of the traces' ids.
func (w *Writer) list() (err error) {
	w.footer.list, err = w.compressed(listMagic, uint32(len(w.shown)), appendList(nil, w.footer.traces, w.shown))
	return err
}

func appendList(dst []byte, traces []Info, shown map[tga.ID]chain.Listing) []byte {
	for _, t := range traces {
		l := shown[t.TraceID]
		dst = appendListing(dst, &l)
	}
	return dst
}

// Close writes the last block, the list, the footer and the trailer, and returns the digest in
// the trailer. A segment without traces is valid.
func (w *Writer) Close() (tga.Digest, error) {
	if err := w.usable(); err != nil {
		return tga.Digest{}, err
	}
	w.finished = true
	if err := w.flush(); err != nil {
		return tga.Digest{}, err
	}
	slices.SortFunc(w.footer.traces, func(a, b Info) int { return compareIDs(a.TraceID, b.TraceID) })
	if err := w.list(); err != nil {
		return tga.Digest{}, err
	}
	foot := w.footer.append(nil)
	t := trailer{offset: w.offset, length: uint64(len(foot)), footerSum: tga.Sum(foot)}
	if err := w.write(foot); err != nil {
		return tga.Digest{}, err
	}
	b := t.append(nil)
	w.sum.Write(b[:trailerSummed])
	t.fileSum = tga.Digest(w.sum.Sum(nil))
	if _, err := w.w.Write(t.append(nil)); err != nil {
		w.err = tga.Errorf(tga.StoreUnavailable, "write a segment at %d: %w", w.offset, err)
		return tga.Digest{}, w.err
	}
	return t.fileSum, nil
}

func (w *Writer) usable() error {
	if w.finished && w.err == nil {
		return tga.Errorf(tga.GenericStateError, "write a segment that is closed")
	}
	return w.err
}

func (w *Writer) write(b []byte) error {
	if _, err := w.w.Write(b); err != nil {
		w.err = tga.Errorf(tga.StoreUnavailable, "write a segment at %d: %w", w.offset, err)
		return w.err
	}
	w.sum.Write(b)
	w.offset += uint64(len(b))
	return nil
}
