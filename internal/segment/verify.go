package segment

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Report counts what [Verify] found to be right.
type Report struct {
	Blocks, Traces, Entries, Notes, Documents int
	Erased                                    int        // artifacts and documents that were destroyed
	Digest                                    tga.Digest // of the file, computed
}

// Verify reads a whole segment of size bytes in the order of the file and returns the
// first fault. It recomputes every chain before it reads the footer, and then compares
// the footer and the digests with what it found. It needs memory for one trace and the
// index.
//
// The error has trace, seq or note, the stored and the computed digest if two digests
// differ, and the codes of [chain.Replay]. If the damage leaves no trace readable, the
// error has the block's offset, and the first trace of that block by the footer if that
// can be read. STORE_UNAVAILABLE means that r failed and the segment may be good, or that
// keys do not open a sealed entry.
func Verify(r io.ReaderAt, size int64, keys chain.Keys) (Report, error) {
	return Walk(r, size, keys, func(*Trace, *chain.Trace) error { return nil })
}

// Walk is [Verify], and also calls f with each trace in the order of the file, as stored and
// as folded. At that time the trace is verified in itself, but not yet against the footer and
// the digest of the file. So rely on what f got only if Walk returns no error. An error of f
// ends the walk and is returned unchanged.
func Walk(r io.ReaderAt, size int64, keys chain.Keys, f func(*Trace, *chain.Trace) error) (Report, error) {
	// A reader that fails must not look like a segment that is damaged.
	src := &source{r: io.NewSectionReader(r, 0, size)}
	v := verifier{each: f, keys: keys, shown: map[tga.ID]chain.Listing{}, keyless: map[tga.ID]bool{}, in: &summed{r: bufio.NewReaderSize(src, 64<<10), h: sha256.New()}}
	report, err := v.run(size)
	if v.stopped != nil {
		return Report{}, v.stopped
	}
	if src.err != nil {
		return Report{}, tga.Errorf(codeOf(src.err), "read a segment: %w", src.err)
	}
	if err != nil {
		return Report{}, v.located(err, r, size)
	}
	return report, nil
}

type verifier struct {
	in      *summed
	each    func(*Trace, *chain.Trace) error
	keys    chain.Keys
	stopped error           // of each
	keyless map[tga.ID]bool // traces whose request cannot be read because its key was destroyed
	shown   map[tga.ID]chain.Listing
	found   footer
	report  Report
}

func (v *verifier) run(size int64) (Report, error) {
	head, err := v.read(headerLen)
	if err != nil {
		return Report{}, err
	}
	if err := checkHeader(head); err != nil {
		return Report{}, err
	}
	for {
		b, err := v.read(blockHeaderLen)
		if err != nil {
			return Report{}, err
		}
		if string(b[:4]) == listMagic {
			return v.end(b, size)
		}
		if err := v.block(b); err != nil {
			return Report{}, err
		}
	}
}

// block reads the block that follows its header. If the header claims more bytes than the file has,
// a later read fails.
func (v *verifier) block(head []byte) error {
	info := blockInfo{offset: v.in.offset - blockHeaderLen}
	traces, stored, err := decodeBlockHeader(head)
	if err != nil {
		return err
	}
	info.stored = stored
	n := len(v.found.blocks)
	sum := sha256.New()
	body := io.TeeReader(io.LimitReader(v.in, int64(stored)), sum)
	for t, err := range readBlock(body, traces, n, v.keys) {
		if err != nil {
			return err
		}
		if len(v.found.traces) == MaxTraces {
			return fault("over %d traces", MaxTraces)
		}
		v.found.traces = append(v.found.traces, t.info)
		v.shown[t.trace.ID] = t.state.Listing()
		if e := &t.trace.Entries[0]; e.Artifact == nil && e.Key != 0 {
			v.keyless[t.trace.ID] = true
		}
		v.count(&t)
		if v.stopped = v.each(&t.trace, t.state); v.stopped != nil {
			return v.stopped
		}
	}
	info.digest = tga.Digest(sum.Sum(nil))
	v.found.blocks = append(v.found.blocks, info)
	return nil
}

func (v *verifier) count(t *replayed) {
	v.report.Traces++
	v.report.Notes += len(t.trace.Notes)
	for _, e := range t.trace.Entries {
		v.report.Entries++
		if e.Artifact == nil {
			v.report.Erased++
		}
		for _, d := range e.Documents {
			if d.Erased {
				v.report.Erased++
			} else {
				v.report.Documents++
			}
		}
	}
}

// end compares the stored list, footer and trailer with those made from the traces that were
// found. head is the list's header.
func (v *verifier) end(head []byte, size int64) (Report, error) {
	slices.SortFunc(v.found.traces, func(a, b Info) int { return compareIDs(a.TraceID, b.TraceID) })
	for i := 1; i < len(v.found.traces); i++ {
		if id := v.found.traces[i].TraceID; id == v.found.traces[i-1].TraceID {
			return Report{}, fault("trace %s is there twice", id).In(id)
		}
	}
	if err := v.list(head); err != nil {
		return Report{}, err
	}
	head, err := v.read(footerHeadLen)
	if err != nil {
		return Report{}, err
	}
	want := v.found.append(nil)
	offset := v.in.offset - footerHeadLen
	if room := uint64(size) - offset - trailerLen; uint64(len(want)) != room {
		return Report{}, fault("footer: %d bytes for the %d traces found, it has %d", len(want), len(v.found.traces), room)
	}
	rest, err := v.read(len(want) - footerHeadLen)
	if err != nil {
		return Report{}, err
	}
	got := append(slices.Clone(head), rest...)
	if !bytes.Equal(got, want) {
		return Report{}, v.differs(got, offset)
	}
	tail, err := v.read(trailerSummed)
	if err != nil {
		return Report{}, err
	}
	fileSum := tga.Digest(v.in.h.Sum(nil))
	last, err := v.read(trailerLen - trailerSummed)
	if err != nil {
		return Report{}, err
	}
	t, err := decodeTrailer(append(tail, last...), size)
	if err != nil {
		return Report{}, err
	}
	if t.offset != offset {
		return Report{}, fault("trailer: footer at %d, it is at %d", t.offset, offset)
	}
	if sum := tga.Sum(want); t.footerSum != sum {
		return Report{}, mismatch("footer digest", sum, t.footerSum)
	}
	if t.fileSum != fileSum {
		return Report{}, mismatch("file digest", fileSum, t.fileSum)
	}
	v.report.Blocks, v.report.Digest = len(v.found.blocks), fileSum
	return v.report, nil
}

// list compares the stored list with the one made from the traces that were found.
func (v *verifier) list(head []byte) error {
	info := blockInfo{offset: v.in.offset - blockHeaderLen}
	traces, stored, err := decodeListHeader(head)
	if err != nil {
		return err
	}
	if int(traces) != len(v.found.traces) {
		return fault("list: of %d traces, found %d", traces, len(v.found.traces))
	}
	info.stored = stored
	sum := sha256.New()
	same := false
	err = unpackList(io.TeeReader(io.LimitReader(v.in, int64(stored)), sum), func(rr *recordReader) (err error) {
		if len(v.keyless) > 0 {
			same, err = v.likely(rr)
		} else {
			same, err = rr.same(appendList(nil, v.found.traces, v.shown))
		}
		if err == nil && !same {
			err = fault("list: says of a trace what the trace does not")
		}
		return err
	})
	if err != nil {
		return err
	}
	info.digest = tga.Digest(sum.Sum(nil))
	v.found.list = info
	return nil
}

// likely reports whether the list agrees with each trace, if the keys of some traces were
// destroyed. It accepts what the list says about the requests of those traces, because only the
// list still has that.
func (v *verifier) likely(rr *recordReader) (bool, error) {
	for _, t := range v.found.traces {
		got, err := rr.listing(t.TraceID)
		if err != nil {
			return false, err
		}
		want := v.shown[t.TraceID]
		if v.keyless[t.TraceID] {
			want.Namespace, want.Deadline, want.Server, want.Tool = got.Namespace, got.Deadline, got.Server, got.Tool
		}
		if got != want {
			return false, nil
		}
	}
	return true, nil
}

// differs makes the error that says where a stored footer differs from the computed one.
func (v *verifier) differs(got []byte, offset uint64) error {
	f, err := decodeFooter(got, offset)
	if err != nil {
		return err
	}
	for i := range min(len(f.blocks), len(v.found.blocks)) {
		b, want := f.blocks[i], v.found.blocks[i]
		if b.digest != want.digest {
			return mismatch("digest of a block in the footer", want.digest, b.digest)
		}
		if b != want {
			return fault("footer: block %d is %d bytes at %d, found %d at %d", i, b.stored, b.offset, want.stored, want.offset)
		}
	}
	if f.list != v.found.list {
		return fault("footer: the list is %d bytes at %d with digest %s, found %d at %d with %s", f.list.stored, f.list.offset, f.list.digest,
			v.found.list.stored, v.found.list.offset, v.found.list.digest)
	}
	for i := range min(len(f.traces), len(v.found.traces)) {
		t, want := f.traces[i], v.found.traces[i]
		if t == want {
			continue
		}
		what, computed, stored := "head digest in the footer", want.HeadDigest, t.HeadDigest
		if computed == stored {
			what, computed, stored = "digest of the last note in the footer", want.NoteDigest, t.NoteDigest
		}
		err := mismatch("trace "+want.TraceID.String()+": "+what, computed, stored).In(want.TraceID)
		if computed == stored {
			err = fault("footer: it says %+v, found %+v", t, want).In(want.TraceID)
		}
		err.Seq = want.Last
		return err
	}
	return fault("footer: differs from what was found")
}

// located adds the place of the damage to an error that names no trace, by the footer if that
// can be read. This is only for the person who reads the error.
func (v *verifier) located(err error, r io.ReaderAt, size int64) error {
	var e *tga.Error
	if !errors.As(err, &e) || !e.TraceID.IsZero() {
		return err
	}
	stored, openErr := Open(r, size, nil)
	if openErr != nil { // the footer is damaged too, so it cannot help
		return err
	}
	n := len(v.found.blocks)
	for i, t := range stored.footer.traces {
		if int(t.Block) != n {
			continue
		}
		at := *e
		at.TraceID, at.Err = t.TraceID, err
		at.Message = tga.Errorf(e.Code, "%s (in block %d at %d; the first of its traces is %s by the footer, seq %d to %d)",
			e.Message, n, stored.footer.blocks[n].offset, stored.footer.traces[i].TraceID, t.First, t.Last).Message
		return &at
	}
	return err
}

func (v *verifier) read(n int) ([]byte, error) {
	b := make([]byte, n)
	if got, err := io.ReadFull(v.in, b); err != nil {
		return nil, fault("ends at %d, after %d of %d bytes: %w", v.in.offset, got, n, noEOF(err))
	}
	return b, nil
}

// summed counts and hashes what is read through it.
type summed struct {
	r      io.Reader
	h      hash.Hash
	offset uint64
}

func (s *summed) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.h.Write(b[:n])
	s.offset += uint64(n)
	return n, err
}

// source remembers the first error of the reader other than io.EOF.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF && s.err == nil {
		s.err = err
	}
	return n, err
}
