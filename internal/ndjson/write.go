package ndjson

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"iter"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Limits. [Write] refuses a trace over them with LIMIT_EXCEEDED, because [Verify] would not read it.
const (
	MaxLine  = 128 << 20 // bytes of one line
	MaxTrace = 256 << 20 // bytes of all lines of one trace
	// MaxDepth is how deep a line is nested at most. A call's arguments may be as deep as
	// [tga.DefaultMaxDepth] says; around them are two objects of the artifact, and the line.
	MaxDepth = tga.DefaultMaxDepth + 3
)

var (
	lineLimits  = tga.Limits{MaxBytes: MaxLine, MaxDepth: MaxDepth}
	valueLimits = tga.Limits{MaxBytes: MaxLine, MaxDepth: MaxDepth - 1} // of a value within a line
)

// checkSize refuses a line that is too long, or that makes its trace too long.
func checkSize(line int, trace int64) error {
	if line > MaxLine || trace > MaxTrace {
		return tga.Errorf(tga.LimitExceeded, "a line of %d bytes, in a trace of %d so far: the most is %d, and %d of a trace", line, trace, MaxLine, MaxTrace)
	}
	return nil
}

// Write writes one trace. It replays the trace while it writes, so that an export never has a
// trace that does not verify. Errors are those of [chain.Replay], and STORE_UNAVAILABLE if w
// fails. After an error the lines written have no head, so [Verify] refuses them. A trace
// without entries is NOT_FOUND.
func Write(w io.Writer, id tga.ID, entries iter.Seq2[chain.Entry, error], notes iter.Seq2[tga.Note, error]) error {
	x := writer{w: bufio.NewWriterSize(w, 64<<10)}
	t, err := chain.Replay(id, x.entries(entries), x.notes(notes))
	switch {
	case x.err != nil:
		return x.err
	case err != nil:
		return err
	case t.Head.Seq == 0:
		return tga.Errorf(tga.NotFound, "export trace %s: it has no entry", id).In(id)
	}
	x.line(appendHead(nil, t))
	if err := x.w.Flush(); err != nil && x.err == nil {
		x.err = tga.Errorf(tga.StoreUnavailable, "write an export: %w", err).In(id)
	}
	return x.err
}

// WriteLists is [Write] for a trace that is in memory.
func WriteLists(w io.Writer, id tga.ID, entries []chain.Entry, notes []tga.Note) error {
	return Write(w, id, each(entries), each(notes))
}

// each yields the elements of a list, as from a store that finds no fault.
func each[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// End writes the line that ends an export of so many traces. [Verify] treats an export without
// it as cut off.
func End(w io.Writer, traces int) error {
	b := strconv.AppendUint([]byte(`{"kind":"end","traces":`), uint64(traces), 10)
	if _, err := w.Write(append(b, "}\n"...)); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "write an export: %w", err)
	}
	return nil
}

type writer struct {
	w    *bufio.Writer
	size int64
	err  error // the first error; writing stops there
}

func (x *writer) line(b []byte) bool {
	b = append(b, '\n')
	x.size += int64(len(b))
	if x.err = checkSize(len(b), x.size); x.err != nil {
		return false
	}
	if _, err := x.w.Write(b); err != nil {
		x.err = tga.Errorf(tga.StoreUnavailable, "write an export: %w", err)
		return false
	}
	return true
}

// entries yields the given entries. It writes an entry once the consumer asks for the next one,
// which is after the consumer has checked it.
func (x *writer) entries(entries iter.Seq2[chain.Entry, error]) iter.Seq2[chain.Entry, error] {
	return func(yield func(chain.Entry, error) bool) {
		for e, err := range entries {
			if !yield(e, err) || err != nil || !x.entry(&e) {
				return
			}
		}
	}
}

func (x *writer) notes(notes iter.Seq2[tga.Note, error]) iter.Seq2[tga.Note, error] {
	return func(yield func(tga.Note, error) bool) {
		if notes == nil || x.err != nil {
			return
		}
		for n, err := range notes {
			if !yield(n, err) || err != nil {
				return
			}
			b := append([]byte(`{"kind":"note","note":`), n.AppendCanonical(nil)...)
			if !x.line(append(b, '}')) {
				return
			}
		}
	}
}

func (x *writer) entry(e *chain.Entry) bool {
	b := append([]byte(`{"kind":"entry","committed":"`), e.Committed.String()...)
	b = append(b, `","epoch":"`...)
	b = strconv.AppendUint(b, uint64(e.Epoch), 10)
	b = append(b, `","entry":`...)
	b = e.AppendCanonical(b)
	if !x.line(append(b, '}')) {
		return false
	}
	b = appendSeq([]byte(`{"kind":"artifact"`), e.Seq)
	if e.Artifact == nil {
		b = append(b, `,"erased":true}`...)
	} else {
		// Counting is cheap, and only what has as many brackets can be as deep.
		if c := e.Artifact.Canonical; bytes.Count(c, []byte("["))+bytes.Count(c, []byte("{")) >= MaxDepth {
			if x.err = tga.Gate(c, valueLimits); x.err != nil {
				return false
			}
		}
		b = append(append(append(b, `,"artifact":`...), e.Artifact.Canonical...), '}')
	}
	if !x.line(b) {
		return false
	}
	for i := range e.Documents {
		if !x.line(appendDocument(nil, e.Seq, &e.Documents[i])) {
			return false
		}
	}
	return true
}

func appendSeq(b []byte, seq uint64) []byte {
	return strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
}

func appendDocument(b []byte, seq uint64, d *chain.Document) []byte {
	b = appendSeq(append(b, `{"kind":"document"`...), seq)
	b = append(b, `,"pointer":`...)
	b = tga.AppendString(b, d.Pointer)
	switch {
	case d.Erased:
		return append(b, `,"erased":true}`...)
	case isCanonical(d.Data):
		b = append(append(b, `,"json":`...), d.Data...)
		return append(b, '}')
	}
	b = append(b, `,"base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, d.Data)
	return append(b, `"}`...)
}

// isCanonical reports whether b is the canonical form of a JSON value. Then a reader that
// parses the line can restore b's bytes by writing the value in canonical form.
func isCanonical(b []byte) bool {
	canonical, err := tga.Canonicalize(b, valueLimits)
	return err == nil && bytes.Equal(canonical, b)
}

func appendHead(b []byte, t *chain.Trace) []byte {
	b = append(append(b, `{"kind":"head","trace_id":"`...), t.ID.String()...)
	b = append(b, `","entries":`...)
	b = strconv.AppendUint(b, t.Head.Seq, 10)
	b = append(b, `,"notes":`...)
	b = strconv.AppendUint(b, uint64(t.NoteHead.Number), 10)
	b = append(append(b, `,"state":"`...), t.Head.State.String()...)
	b = append(append(b, `","head_digest":"`...), t.Head.Digest.String()...)
	b = append(append(b, `","note_digest":"`...), t.NoteHead.Digest.String()...)
	return append(b, `"}`...)
}
