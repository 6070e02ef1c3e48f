package segment

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The list holds what a list of traces shows of each trace, so that no block has to be
// unpacked for that. It is derived from the traces and has no facts of its own: [Verify]
// makes it again and compares.

// List is the decoded list of a segment. It no longer needs its reader.
type List struct {
	footer *footer
	shown  []chain.Listing // in the order of the footer's traces
	size   int64
}

// List reads the list of the segment and checks its digest.
//
// Errors: STATE_CHECKSUM_MISMATCH, Where "stored"; STORE_UNAVAILABLE when the underlying
// reader fails.
func (r *Reader) List() (*List, error) {
	f := r.footer
	traces, stored, err := r.stored(f.list, decodeListHeader, "list")
	if err != nil {
		return nil, err
	}
	if int(traces) != len(f.traces) {
		return nil, fault("list: of %d traces, the footer has %d", traces, len(f.traces))
	}
	l := &List{footer: f, shown: make([]chain.Listing, 0, len(f.traces))}
	err = unpackList(bytes.NewReader(stored), func(rr *recordReader) error {
		for _, t := range f.traces {
			x, err := rr.listing(t.TraceID)
			if err != nil {
				return err
			}
			l.shown = append(l.shown, x)
		}
		l.size = MaxList - rr.room + int64(listingSize*len(f.traces))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Listing returns what the list and the footer say about a trace. ok is false if the segment
// does not have the trace.
func (l *List) Listing(id tga.ID) (shown chain.Listing, info Info, ok bool) {
	i, ok := l.footer.find(id)
	if !ok {
		return chain.Listing{}, Info{}, false
	}
	return l.shown[i], l.footer.traces[i], true
}

// Size returns roughly how many bytes of memory the list takes.
func (l *List) Size() int64 { return l.size }

// listingSize is roughly how many bytes of memory a listing takes, without its strings.
const listingSize = 160

// appendListing appends one trace's part of the list.
func appendListing(dst []byte, l *chain.Listing) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Since))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Deadline))
	dst = append(dst, l.ToolCallID[:]...)
	for _, s := range []string{l.State.String(), l.Namespace, l.Server, l.Tool, l.Key} {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
		dst = append(dst, s...)
	}
	return dst
}

func (rr *recordReader) listing(id tga.ID) (l chain.Listing, err error) {
	head, err := rr.read(listingHeadLen)
	if err != nil {
		return l, err
	}
	l.TraceID, l.ToolCallID = id, tga.ID(head[16:])
	l.Since, l.Deadline = tga.Millis(binary.BigEndian.Uint64(head)), tga.Millis(binary.BigEndian.Uint64(head[8:]))
	var state string
	for _, s := range []*string{&state, &l.Namespace, &l.Server, &l.Tool, &l.Key} {
		n, err := rr.read(4)
		if err != nil {
			return l, err
		}
		b, err := rr.read(uint64(binary.BigEndian.Uint32(n)))
		if err != nil {
			return l, err
		}
		*s = string(b)
	}
	if l.State, err = tga.ParseState(state); err != nil || !l.State.Terminal() {
		return l, fault("list: state %q of trace %s", state, id).In(id)
	}
	return l, nil
}

// unpackList calls f with a reader of the list's records. f must read them to the end.
func unpackList(stored io.Reader, f func(*recordReader) error) error {
	dec, err := zstd.NewReader(stored, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return fault("list: %w", err)
	}
	defer dec.Close()
	if err := f(&recordReader{r: dec, room: MaxList}); err != nil {
		return err
	}
	var one [1]byte
	if _, err := io.ReadFull(dec, one[:]); err != io.EOF {
		return fault("list: bytes after its traces, or no end: %v", err)
	}
	return nil
}

// same reports whether the records of a list equal want.
func (rr *recordReader) same(want []byte) (bool, error) {
	for len(want) > 0 {
		n := min(len(want), 32<<10)
		got, err := rr.read(uint64(n))
		if err != nil || !bytes.Equal(got, want[:n]) {
			return false, err
		}
		want = want[n:]
	}
	return true, nil
}
