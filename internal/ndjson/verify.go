package ndjson

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Report counts what [Verify] found to be right.
type Report struct {
	Lines                             int
	Traces, Entries, Notes, Documents int
	Erased                            int // artifacts and documents that were destroyed
}

// Verify reads an export and recomputes every digest, chain and link, with the checks
// of [chain.Replay]. It holds one trace in memory: its artifacts, and only the documents
// of the entry that it is reading.
//
// The first fault ends Verify. The error names the line, the trace, and the seq or note
// at fault, with WantDigest and GotDigest if two digests differ. Its code is that of the
// failed check, SCHEMA_VIOLATION or VALIDATION_ERROR for a line that is not of the
// format, STATE_CHECKSUM_MISMATCH for an export that was cut off, LIMIT_EXCEEDED for a
// line or a trace over the limits, STORE_UNAVAILABLE if r fails. The report counts what
// verified before the fault.
func Verify(r io.Reader) (Report, error) { return VerifyEach(r, Watch{}) }

// Watch has functions that are called with each piece of an export once it was verified. Each may
// be nil.
type Watch struct {
	// Single says that there must be one export only. A line after its end, which could begin
	// another export, is then SCHEMA_VIOLATION.
	Single bool
	Entry  func(*chain.Entry) // with its artifact and its documents
	Note   func(tga.Note)
	// Trace is called after the entries and notes of a trace. Its error ends the reading, and is
	// returned with the line of the trace's head.
	Trace func(*chain.Trace, Place) error
}

// Place is where the lines of a trace are: Size bytes from offset At on.
type Place struct{ At, Size int64 }

// Each reads one export, as [VerifyEach] does, and calls f with each trace. An error of f ends the
// reading, and is returned as the error of the line with the trace's head.
func Each(r io.Reader, f func(entries []chain.Entry, notes []tga.Note) error) (Report, error) {
	var entries []chain.Entry
	var notes []tga.Note
	return VerifyEach(r, Watch{
		Single: true, Entry: func(e *chain.Entry) { entries = append(entries, *e) }, Note: func(n tga.Note) { notes = append(notes, n) },
		Trace: func(*chain.Trace, Place) error {
			whole, its := entries, notes
			entries, notes = nil, nil
			return f(whole, its)
		},
	})
}

// ReadTrace reads and verifies a trace. r must have exactly the lines of that trace.
func ReadTrace(r io.Reader) (entries []chain.Entry, notes []tga.Note, err error) {
	var end bytes.Buffer
	if err := End(&end, 1); err != nil {
		return nil, nil, err
	}
	_, err = Each(io.MultiReader(r, &end), func(e []chain.Entry, n []tga.Note) error {
		entries, notes = e, n
		return nil
	})
	return entries, notes, err
}

// VerifyEach is [Verify] for callers that need the content of the export too.
func VerifyEach(r io.Reader, watch Watch) (Report, error) {
	v := verifier{in: bufio.NewReaderSize(r, 64<<10), watch: watch}
	for {
		b, err := v.line()
		if err == io.EOF {
			return v.report, v.end()
		}
		if err == nil {
			err = v.take(b)
		}
		if err != nil {
			return v.report, v.at(err)
		}
		v.report.Lines++
	}
}

type verifier struct {
	in     *bufio.Reader
	watch  Watch
	report Report
	size   int64 // bytes of the lines of the current trace
	read   int64 // bytes of all lines
	ended  bool  // the newest line is an end
	before int   // traces before the newest end

	trace *chain.Trace // nil between traces
	// entry is the entry whose artifact and documents are being read. It is applied when a
	// line of another kind comes.
	entry     *chain.Entry
	withParts bool // its artifact line has come
}

// line returns the next line without its newline. io.EOF means that there is none. The last
// line need not have a newline.
func (v *verifier) line() ([]byte, error) {
	var b []byte
	for {
		part, err := v.in.ReadSlice('\n')
		v.size, v.read = v.size+int64(len(part)), v.read+int64(len(part))
		b = append(b, part...)
		if err := checkSize(len(b), v.size); err != nil {
			return nil, err
		}
		switch {
		case err == nil:
			return b[:len(b)-1], nil
		case err == io.EOF && len(b) > 0:
			return b, nil
		case err == io.EOF:
			return nil, io.EOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, tga.Errorf(tga.StoreUnavailable, "read an export: %w", err)
		}
	}
}

func (v *verifier) take(b []byte) error {
	if v.ended && v.watch.Single {
		return bad("there is a line after the end line")
	}
	kind, l, err := parseLine(b)
	if err != nil {
		return err
	}
	v.ended = false
	switch kind {
	case "artifact":
		return v.artifact(l)
	case "document":
		return v.document(l)
	}
	if err := v.apply(); err != nil {
		return err
	}
	switch kind {
	case "entry":
		return v.next(l)
	case "note":
		return v.note(l)
	case "end":
		return v.last(l)
	}
	return v.head(l)
}

// next processes an entry line.
func (v *verifier) next(l line) error {
	e, err := l.entry()
	if err != nil {
		return v.placed(err, 1, 0)
	}
	if v.trace == nil {
		v.trace = chain.NewTrace(e.TraceID)
	}
	if v.trace.NoteHead.Number != 0 {
		return bad("entry after a note")
	}
	v.entry, v.withParts = e, false
	return nil
}

func (v *verifier) artifact(l line) error {
	if v.entry == nil || v.withParts {
		return bad("artifact that does not follow its entry")
	}
	if err := v.sameSeq(l); err != nil {
		return err
	}
	v.withParts = true
	if gone, err := l.erased(); gone || err != nil {
		return err
	}
	a, err := tga.DecodeArtifact(l["artifact"], valueLimits)
	if err != nil {
		return err
	}
	v.entry.Artifact = a
	return nil
}

func (v *verifier) document(l line) error {
	if v.entry == nil || !v.withParts {
		return bad("document that does not follow its artifact")
	}
	if err := v.sameSeq(l); err != nil {
		return err
	}
	d, err := l.document()
	if err != nil {
		return err
	}
	v.entry.Documents = append(v.entry.Documents, d)
	return nil
}

func (v *verifier) sameSeq(l line) error {
	seq, err := l.uint("seq", 64)
	if err == nil && seq != v.entry.Seq {
		err = bad("it is of seq %d, the entry before it is seq %d", seq, v.entry.Seq).At("/seq")
	}
	return err
}

// apply checks the entry that has been read with all its parts.
func (v *verifier) apply() error {
	if v.entry == nil {
		return nil
	}
	if !v.withParts {
		return bad("entry %d without its artifact line", v.entry.Seq)
	}
	if err := v.trace.Apply(v.entry); err != nil {
		return err
	}
	v.report.Entries++
	if v.watch.Entry != nil {
		v.watch.Entry(v.entry)
	}
	if v.entry.Artifact == nil {
		v.report.Erased++
	}
	for _, d := range v.entry.Documents {
		if d.Erased {
			v.report.Erased++
		} else {
			v.report.Documents++
		}
	}
	v.entry, v.trace.Documents = nil, nil // checked: the bytes are not needed again
	return nil
}

func (v *verifier) note(l line) error {
	if v.trace == nil {
		return bad("note outside a trace")
	}
	n, err := tga.DecodeNote(l["note"])
	if err != nil {
		return v.placed(err, 0, 1)
	}
	if err := v.trace.ApplyNote(n); err != nil {
		return err
	}
	v.report.Notes++
	if v.watch.Note != nil {
		v.watch.Note(*n)
	}
	v.trace.Notes = nil // the check of the next note needs only NoteHead
	return nil
}

// head processes the line that ends a trace.
func (v *verifier) head(l line) error {
	t := v.trace
	if t == nil {
		return bad("head outside a trace")
	}
	head, err := l.digest("head_digest")
	if err != nil {
		return err
	}
	note, err := l.digest("note_digest")
	if err != nil {
		return err
	}
	entries, err := l.uint("entries", 64)
	if err != nil {
		return err
	}
	notes, err := l.uint("notes", 32)
	if err != nil {
		return err
	}
	id, err := l.text("trace_id")
	if err != nil {
		return err
	}
	state, err := l.text("state")
	if err != nil {
		return err
	}
	switch {
	case id != t.ID.String():
		return bad("head of trace %s", id).At("/trace_id")
	case entries != t.Head.Seq || notes != uint64(t.NoteHead.Number):
		err := tga.Errorf(tga.StateSequenceGap, "head says %d entries and %d notes, there are %d and %d",
			entries, notes, t.Head.Seq, t.NoteHead.Number)
		err.ExpectedSeq, err.ActualSeq = entries, t.Head.Seq
		return err
	case head != t.Head.Digest:
		return differs("head_digest", t.Head.Digest, head)
	case note != t.NoteHead.Digest:
		return differs("note_digest", t.NoteHead.Digest, note)
	case state != t.Head.State.String():
		return tga.Errorf(tga.StateChecksumMismatch, "head says state %q, it is %q", state, t.Head.State).At("/state")
	}
	if v.watch.Trace != nil {
		if err := v.watch.Trace(t, Place{v.read - v.size, v.size}); err != nil {
			return err
		}
	}
	v.report.Traces++
	v.trace, v.size = nil, 0
	return nil
}

// last processes the line that ends an export.
func (v *verifier) last(l line) error {
	if v.trace != nil {
		return bad("end inside a trace")
	}
	traces, err := l.uint("traces", 63)
	if err != nil {
		return err
	}
	if have := v.report.Traces - v.before; uint64(have) != traces {
		return tga.Errorf(tga.StateSequenceGap, "end says %d traces, there are %d", traces, have).At("/traces")
	}
	v.ended, v.before, v.size = true, v.report.Traces, 0
	return nil
}

// placed sets Seq or Note of an error about the next entry or note to the number that it
// should have.
func (v *verifier) placed(err error, entry uint64, note uint32) error {
	var e *tga.Error
	if !errors.As(err, &e) {
		return err
	}
	at := *e
	at.Seq, at.Note = entry, note
	if v.trace != nil && entry != 0 {
		at.Seq += v.trace.Head.Seq
	}
	if v.trace != nil && note != 0 {
		at.Note += v.trace.NoteHead.Number
	}
	return &at
}

func differs(what string, want, got tga.Digest) error {
	err := tga.Errorf(tga.StateChecksumMismatch, "%s is %s, computed %s", what, got, want).At("/" + what)
	err.WantDigest, err.GotDigest = want, got
	return err
}

func (v *verifier) end() error {
	switch {
	case v.trace != nil:
		return v.at(tga.Errorf(tga.StateChecksumMismatch, "export ends inside a trace: no head line"))
	case !v.ended:
		return v.at(tga.Errorf(tga.StateChecksumMismatch, "export was cut off behind a trace: no end line"))
	}
	return nil
}

// at adds line, trace and place to an error.
func (v *verifier) at(err error) error {
	var e *tga.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err // it is not about the line
	case !errors.As(err, &e):
		e = &tga.Error{Code: tga.StateChecksumMismatch, Message: err.Error()}
	}
	at := *e
	at.Err = err
	if at.Code != tga.StoreUnavailable {
		at.Where = "stored"
	}
	if v.trace != nil {
		at.TraceID = v.trace.ID
		if at.Note == 0 && at.Seq == 0 {
			at.Seq = v.trace.Head.Seq
			if v.entry != nil {
				at.Seq = v.entry.Seq
			}
		}
		at.Message = tga.Errorf(e.Code, "line %d, trace %s: %s", v.report.Lines+1, v.trace.ID, e.Message).Message
		return &at
	}
	at.Message = tga.Errorf(e.Code, "line %d: %s", v.report.Lines+1, e.Message).Message
	return &at
}
