package logfile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"slices"
	"sort"

	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// The kinds of file.
const (
	Segment  = "segment"
	Export   = "export"
	Evidence = "evidence file"
)

// File is an open file. Its methods may be called from any number of goroutines.
type File struct {
	Path, Kind string
	// Fault is the first fault of the file, nil if all of it verified. Traces that verified before
	// the fault are shown.
	Fault error
	// Proved and NotProved say in sentences what an evidence file proves, and what it does not.
	Proved, NotProved []string

	// Found counts what verified.
	Found struct{ Traces, Entries, Notes int }

	file    *os.File
	size    int64
	segment *segment.Reader // nil if the file is no segment, or its footer cannot be read
	list    []listed        // in the order of the ids
}

// listed is a trace of the file.
type listed struct {
	wire.OpenTrace
	doubt bool
	place ndjson.Place // of its lines; zero in a segment
	seq   uint64       // of its head
	notes uint32
}

// Open opens a file and verifies all of it. A file that does not verify is no error: see
// [File].Fault. An error means that the file could not be read, or is of no known kind.
func Open(ctx context.Context, path string, watch func(*Reader) (stop func())) (f *File, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, tga.Errorf(tga.NotFound, "open the file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	st, err := file.Stat()
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "%w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, tga.Errorf(tga.ValidationError, "%s is not a regular file: name a segment, an export or an evidence file; --data DIR shows a store", path)
	}
	f = &File{Path: path, Kind: Export, file: file, size: st.Size()}
	in := NewReader(ctx, file)
	defer watch(in)()
	if f.Fault = f.read(in); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if tga.CodeOf(f.Fault) == tga.StoreUnavailable {
		return nil, f.Fault
	}
	if f.Fault != nil && f.Kind == Export && f.Found.Entries == 0 && !f.hasLines() {
		return nil, tga.Errorf(tga.ValidationError, "%s is not a sealed segment, an export or an evidence file", path)
	}
	f.sort()
	return f, nil
}

// hasLines reports whether a file begins like an export. It may be damaged further on.
func (f *File) hasLines() bool {
	head := make([]byte, 64)
	n, _ := f.file.ReadAt(head, 0) // after an error, the bytes that were read decide
	head = bytes.TrimLeft(head[:n], " \t\r\n")
	return bytes.HasPrefix(head, []byte("{")) && bytes.Contains(head, []byte(`"kind"`))
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// read verifies the file and lists its traces. The error is the file's first fault.
func (f *File) read(in *Reader) error {
	if is, err := segment.Is(in); err != nil || is {
		f.Kind = Segment
		return cmp.Or(err, f.readSegment(in))
	}
	is, err := bundle.Is(in)
	if err != nil || !is {
		return cmp.Or(err, f.readLines(in, 0))
	}
	f.Kind = Evidence
	report, err := bundle.Verify(io.NewSectionReader(in, 0, f.size), bundle.Trust{})
	if err == nil {
		f.Proved, f.NotProved = report.Words()
	}
	if report.At == 0 {
		return err
	}
	return cmp.Or(err, f.readLines(in, report.At))
}

func (f *File) readSegment(in *Reader) error {
	var err error
	if f.segment, err = segment.Open(in, f.size, chain.NoKeys{}); err == nil {
		f.segment = f.segment.On(f.file) // later reads do not depend on the context of Open
	}
	_, found := segment.Walk(in, f.size, chain.NoKeys{}, func(_ *segment.Trace, t *chain.Trace) error {
		f.Found.Traces, f.Found.Entries, f.Found.Notes = f.Found.Traces+1, f.Found.Entries+int(t.Head.Seq), f.Found.Notes+int(t.NoteHead.Number)
		f.add(t, ndjson.Place{})
		return nil
	})
	return cmp.Or(err, found)
}

// readLines reads an export that begins at an offset.
func (f *File) readLines(in *Reader, at int64) error {
	var notes []tga.Note // of the trace that is read
	report, err := ndjson.VerifyEach(io.NewSectionReader(in, at, f.size-at), ndjson.Watch{
		Note: func(n tga.Note) { notes = append(notes, n) },
		Trace: func(t *chain.Trace, place ndjson.Place) error {
			t.Notes, notes = notes, nil
			place.At += at
			f.add(t, place)
			t.Notes = nil
			return nil
		},
	})
	f.Found.Traces, f.Found.Entries, f.Found.Notes = report.Traces, report.Entries, report.Notes
	return err
}

// add adds a verified trace to the list.
func (f *File) add(t *chain.Trace, place ndjson.Place) {
	l := listed{OpenTrace: story.Listed(t.Listing()), place: place, seq: t.Head.Seq, notes: t.NoteHead.Number}
	if rec, ok := story.Doubt(t); ok {
		l.doubt, l.Attempts, l.Doubt = true, rec.Attempts.Count, &wire.Doubt{Since: l.Since}
	}
	f.list = append(f.list, l)
}

// sort orders the traces by their ids. A file may be several exports one after the other, and a later one
// may have more of a trace. Of each trace, the longest version is kept.
func (f *File) sort() {
	slices.SortFunc(f.list, func(a, b listed) int {
		return cmp.Or(slices.Compare(a.TraceID[:], b.TraceID[:]), cmp.Compare(b.seq, a.seq), cmp.Compare(b.notes, a.notes))
	})
	f.list = slices.CompactFunc(f.list, func(a, b listed) bool { return a.TraceID == b.TraceID })
}

// find returns the place of a trace in the list.
func (f *File) find(id tga.ID) (int, bool) {
	return slices.BinarySearchFunc(f.list, id, func(l listed, id tga.ID) int { return slices.Compare(l.TraceID[:], id[:]) })
}

// trace reads a trace of the file.
func (f *File) trace(id tga.ID) (entries []chain.Entry, notes []tga.Note, err error) {
	i, ok := f.find(id)
	switch {
	case !ok:
		return nil, nil, tga.Errorf(tga.NotFound, "the file has no trace %s that verifies", id).In(id)
	case f.Kind != Segment:
		entries, notes, err = ndjson.ReadTrace(io.NewSectionReader(f.file, f.list[i].place.At, f.list[i].place.Size))
	default:
		var t segment.Trace
		if t, err = f.sealed(id); err != nil {
			break
		}
		entries = t.Entries
		for _, n := range t.Notes {
			notes = append(notes, n.Note)
		}
	}
	if err == nil && (len(entries) == 0 || entries[0].TraceID != id) {
		err = tga.Errorf(tga.StateChecksumMismatch, "the file was changed: it has another trace where trace %s was", id).In(id)
	}
	return entries, notes, err
}

// errFound ends the search of a segment.
var errFound = errors.New("found")

// sealed reads a trace of a segment. If the file has a fault, it does not trust the footer, and reads the
// segment from the beginning.
func (f *File) sealed(id tga.ID) (found segment.Trace, err error) {
	if f.segment != nil && f.Fault == nil {
		return f.segment.Trace(id)
	}
	_, err = segment.Walk(f.file, f.size, chain.NoKeys{}, func(t *segment.Trace, _ *chain.Trace) error {
		if t.ID != id {
			return nil
		}
		found = *t
		return errFound
	})
	if errors.Is(err, errFound) {
		return found, nil
	}
	return found, cmp.Or(err, error(tga.Errorf(tga.NotFound, "trace %s is no longer in the file", id).In(id)))
}

// Ready implements the view's source. An open file is always ready.
func (f *File) Ready(context.Context) error { return nil }

// InDoubt returns the calls that may have been sent and for which the file has no effect.
func (f *File) InDoubt(context.Context) (all []wire.OpenTrace, err error) {
	for _, l := range f.list {
		if l.doubt {
			all = append(all, l.OpenTrace)
		}
	}
	return all, nil
}

// Approvals returns none: a file does not have the questions that wait for people.
func (f *File) Approvals(context.Context) ([]wire.Approval, error) { return nil, nil }

// Traces yields the traces of the file.
func (f *File) Traces(_ context.Context, q wire.TracesQuery) iter.Seq2[wire.OpenTrace, error] {
	return func(yield func(wire.OpenTrace, error) bool) {
		list := f.list
		if q.Newest {
			list = slices.SortedFunc(slices.Values(list), func(a, b listed) int { return newer(a.OpenTrace, b.OpenTrace) })
			after := wire.OpenTrace{TraceID: q.After, Since: q.Before}
			list = list[sort.Search(len(list), func(i int) bool { return q.After.IsZero() || newer(after, list[i].OpenTrace) < 0 }):]
		} else if from, found := f.find(q.After); found {
			list = list[from+1:]
		} else {
			list = list[from:]
		}
		for _, l := range list {
			ok, err := f.matches(&q, l.OpenTrace)
			if (ok || err != nil) && (!yield(l.OpenTrace, err) || err != nil) {
				return
			}
		}
	}
}

// newer compares traces by the time at which they came into their states, the newest first.
func newer(a, b wire.OpenTrace) int {
	return cmp.Or(cmp.Compare(b.Since, a.Since), bytes.Compare(b.TraceID[:], a.TraceID[:]))
}

// matches reports whether a trace matches the query.
func (f *File) matches(q *wire.TracesQuery, t wire.OpenTrace) (bool, error) {
	if !story.Matches(q, t) {
		return false, nil
	}
	if q.Class == "" && q.Text == "" {
		return true, nil
	}
	entries, _, err := f.trace(t.TraceID)
	if err != nil {
		return false, err
	}
	var request, effect *tga.Artifact
	for i := range entries {
		switch a := entries[i].Artifact; {
		case a == nil:
		case a.Type == tga.RequestType:
			request = a
		case a.Type == tga.EffectType:
			effect = a
		}
	}
	return story.Within(q, request, effect), nil
}

// Request returns the request of a trace.
func (f *File) Request(_ context.Context, id tga.ID) (*tga.Artifact, error) {
	entries, _, err := f.trace(id)
	if err != nil {
		return nil, err
	}
	if a := entries[0].Artifact; a != nil {
		return a, nil
	}
	return nil, tga.Errorf(tga.NotFound, "the request of trace %s is erased", id).In(id)
}

// Trace returns everything about one trace.
func (f *File) Trace(_ context.Context, id tga.ID) (m wire.Timeline, err error) {
	entries, notes, err := f.trace(id)
	if err != nil {
		return m, err
	}
	l, _ := f.find(id)
	m = wire.Timeline{TraceID: id, Namespace: f.list[l].Namespace, Deadline: f.list[l].Deadline}
	if a := entries[0].Artifact; a != nil {
		m.PlanID = a.PlanID
	}
	for i := range entries {
		m.Entries = append(m.Entries, story.Said(&entries[i]))
	}
	for i := range notes {
		m.Notes = append(m.Notes, notes[i].AppendCanonical(nil))
	}
	return m, nil
}

// Document returns the bytes of a stored document.
func (f *File) Document(_ context.Context, id tga.ID, pointer string) ([]byte, tga.Digest, error) {
	entries, _, err := f.trace(id)
	if err != nil {
		return nil, tga.Digest{}, err
	}
	for _, e := range entries {
		for _, d := range e.Documents {
			if d.Pointer == pointer && !d.Erased {
				return d.Data, tga.Sum(d.Data), nil
			}
		}
	}
	return nil, tga.Digest{}, tga.Errorf(tga.NotFound, "trace %s has no document %.80q", id, pointer).In(id)
}
