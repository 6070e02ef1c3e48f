package bundle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Trust is what the reader of a bundle trusts and knows already.
type Trust struct {
	Key       string // the store's public key; "" uses the key in the bundle, and the report says so
	Witnesses []note.Verifier
	// Old is a signed checkpoint that the reader has from before. The bundle's tree must have grown
	// from it. nil is none.
	Old []byte
	// Append, if not nil, is called with each append of a trace, in order; for a range only with those
	// in it. It is called after the whole bundle was verified.
	Append func(*tree.Leaf, *chain.Trace)
}

// Signed says who signed a checkpoint, and which keys were trusted for it.
type Signed struct {
	Origin     string
	Checkpoint checkpoint.Checkpoint
	Note       []byte           // the checkpoint as it was signed
	KeyGiven   bool             // the key came from the reader, and not from the file
	Key        string           // the key that was trusted first
	HandOvers  int              // how many lead from Key to the key that signed
	Cosigned   []note.Signature // good signatures of the reader's witnesses

	keys *checkpoint.Keys
}

// trust trusts the reader's key, or if there is none, the key in the file.
func (s *Signed) trust(t *Trust, origin, own string) (err error) {
	s.Origin, s.Key = origin, t.Key
	if s.KeyGiven = s.Key != ""; !s.KeyGiven {
		s.Key = own
	}
	s.keys, err = checkpoint.TrustKeys(origin, s.Key, t.Witnesses...)
	return err
}

// handOver follows a hand-over to a later key.
func (s *Signed) handOver(raw []byte) error {
	if _, err := s.keys.Follow(raw); err != nil {
		// The reader may have a later key. Then hand-overs that lead to it do not matter.
		if s.KeyGiven && s.HandOvers == 0 && tga.CodeOf(err) == tga.PermissionDenied {
			return nil
		}
		return err
	}
	s.HandOvers++
	return nil
}

// open checks the signatures of a checkpoint and keeps it.
func (s *Signed) open(raw []byte) (err error) {
	s.Checkpoint, s.Cosigned, err = s.keys.Open(raw)
	s.Note = raw
	return err
}

// includes reports whether the tree of the checkpoint has a leaf.
func (s *Signed) includes(l *tree.Leaf, proof []tlog.Hash) bool {
	c := s.Checkpoint
	return l.Index <= uint64(c.Size) && tlog.CheckRecord(proof, c.Size, c.Head, int64(l.Index)-1, l.Hash()) == nil
}

// Report says what a bundle proves, and what it does not.
type Report struct {
	Signed
	GrewFrom int64  // size of the reader's old checkpoint, 0 = none was given
	From, To uint64 // the range that is complete, 0, 0 = chosen traces
	Leaves   int
	Others   int // leaves among them that are of no trace: see [tree.Leaf.OfTrace]
	Traces   []Trace
	Export   ndjson.Report
	At       int64 // offset of the first line of the traces, in bytes; 0 if verification ended before it
}

// The verdicts on a bundle that [Verify] does not refuse.
const (
	Proved     = "proved"      // everything in the bundle is proved, by the key that the reader gave
	NotCovered = "not covered" // the bundle has entries or notes that came after the checkpoint
	OwnKey     = "own key"     // the bundle is consistent, but its key comes from the bundle itself
)

// Verdict sums [Report.Words] up in one of the verdicts. If several apply, it is the weakest.
func (r *Report) Verdict() string {
	switch {
	case !r.KeyGiven:
		return OwnKey
	case slices.ContainsFunc(r.Traces, func(t Trace) bool { return !t.Covered() }):
		return NotCovered
	}
	return Proved
}

// Trace is what is proved of one trace.
type Trace struct {
	ID             tga.ID
	Entries, Notes uint64 // in the bundle
	// CoveredEntries and CoveredNotes are how many of them the leaves cover: the first so many.
	CoveredEntries, CoveredNotes uint64
	State                        tga.State
}

// Covered reports whether leaves cover all that the bundle has of the trace.
func (t *Trace) Covered() bool { return t.Entries == t.CoveredEntries && t.Notes == t.CoveredNotes }

// Verify checks a bundle. The first fault ends it; the error says what and where, and its code is
// PERMISSION_DENIED for a signature that is not trusted, STATE_CHECKSUM_MISMATCH for a proof or a
// digest that does not hold, STATE_SEQUENCE_GAP for what is missing, SCHEMA_VIOLATION for a line
// that is not of the format, LIMIT_EXCEEDED for one that is too long, and those of
// [ndjson.Verify] for the traces.
func Verify(r io.Reader, trust Trust) (*Report, error) {
	v := verifier{in: bufio.NewReaderSize(r, 64<<10), trust: trust, traces: map[tga.ID]*traced{}}
	if err := v.run(); err != nil {
		var e *tga.Error
		if v.line > 0 && errors.As(err, &e) {
			at := *e
			at.Err, at.Message = err, fmt.Sprintf("line %d: %s", v.line, e.Message)
			return &v.report, &at
		}
		return &v.report, err
	}
	v.tell()
	return &v.report, nil
}

// unanswered is an error that says nothing against the file.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

// IsUnanswered reports whether an error of [Verify] or [VerifyReceipt] says nothing against the file: this program
// cannot read its version, or the file cannot answer the reader's question.
func IsUnanswered(err error) bool { return errors.As(err, new(unanswered)) }

type verifier struct {
	in     *bufio.Reader
	line   int // the line that is being read; 0 after the lines about the tree
	trust  Trust
	head   header
	signed bool // the checkpoint was read
	grown  bool // the proof that it grew from an older one was read
	leaves []tree.Leaf
	traces map[tga.ID]*traced
	order  []tga.ID
	report Report
}

// traced has the digests of a trace's entries and notes.
type traced struct {
	Trace
	said           []tga.Note   // its notes, for [Trust].Append
	whole          *chain.Trace // the trace with said and without documents, for [Trust].Append
	entries, notes []tga.Digest
}

func (v *verifier) run() error {
	first, at := []byte(nil), int64(0)
	for first == nil {
		v.line++
		b, err := readLine(v.in)
		if err == io.EOF {
			return v.cut("the file ends before its traces")
		}
		if err != nil {
			return err
		}
		switch kind := kindOf(b); {
		case v.line == 1:
			err = v.begin(b)
		case kind == "hand_over" && !v.signed:
			err = v.handOver(b)
		case kind == "checkpoint" && !v.signed:
			err = v.checkpoint(b)
		case !v.signed:
			err = tga.Errorf(tga.SchemaViolation, "a line of kind %q before the checkpoint", kind)
		case kind == "prefix" && len(v.leaves) == 0 && !v.grown:
			err = v.prefix(b)
		case kind == "leaf":
			err = v.leaf(b)
		case kind == "evidence", kind == "hand_over", kind == "checkpoint", kind == "prefix":
			err = tga.Errorf(tga.SchemaViolation, "a line of kind %q that is not in its place", kind)
		default:
			first, v.report.At = append(b, '\n'), at
		}
		if err != nil {
			return err
		}
		at += int64(len(b)) + 1
	}
	if v.trust.Old != nil && v.report.GrewFrom == 0 {
		if err := v.grewFrom(nil); err != nil {
			return err
		}
	}
	if len(v.leaves) != v.head.Leaves {
		return v.missing("%d leaves, the first line says %d", len(v.leaves), v.head.Leaves)
	}
	v.line = 0
	export, err := ndjson.VerifyEach(io.MultiReader(bytes.NewReader(first), v.in), ndjson.Watch{Single: true, Entry: v.entry, Note: v.note, Trace: func(t *chain.Trace, at ndjson.Place) error { v.trace(t, at); return nil }})
	v.report.Export = export
	if err != nil {
		return err
	}
	return v.compare()
}

// tell calls [Trust].Append for each append.
func (v *verifier) tell() {
	for i := range v.leaves {
		if l := &v.leaves[i]; v.trust.Append != nil && l.OfTrace() && l.Index >= v.head.From {
			v.trust.Append(l, v.traces[l.TraceID].whole)
		}
	}
}

// Is reports whether a file begins as evidence does.
func Is(r io.ReaderAt) (bool, error) {
	head := make([]byte, len(`{"kind":"evidence"`))
	if n, err := r.ReadAt(head, 0); n < len(head) && err != io.EOF {
		return false, tga.Errorf(tga.StoreUnavailable, "read: %w", err)
	}
	return kindOf(head) == "evidence", nil
}

func (v *verifier) begin(b []byte) error {
	if kindOf(b) != "evidence" {
		return tga.Errorf(tga.SchemaViolation, "this is no evidence file of tgad: it does not begin with a line of kind evidence")
	}
	if is := versionOf(b); is != "" && is != tga.EvidenceBundleVersion {
		return unanswered{tga.Errorf(tga.FormatTooNew, "evidence of format %q, this program reads %q", is, tga.EvidenceBundleVersion)}
	}
	if err := decode(b, &v.head); err != nil {
		return err
	}
	h := &v.head
	switch {
	case h.Version != tga.EvidenceBundleVersion, h.About == nil, h.Origin == "": // null is a second spelling of nothing
		return tga.Errorf(tga.SchemaViolation, "the first line has no version, nothing about the file, or no origin")
	case h.From > h.To, h.From == 0 && h.To != 0, h.From != 0 && uint64(h.Leaves) < h.To-h.From+1, h.Leaves < 0, h.Traces < 0:
		return tga.Errorf(tga.SchemaViolation, "a range from %d to %d with %d leaves of %d traces", h.From, h.To, h.Leaves, h.Traces)
	}
	v.report.From, v.report.To = h.From, h.To
	return v.report.trust(&v.trust, h.Origin, h.Key)
}

func (v *verifier) handOver(b []byte) error {
	var l noteLine
	if err := decode(b, &l); err != nil {
		return err
	}
	return v.report.handOver([]byte(l.Note))
}

func (v *verifier) checkpoint(b []byte) error {
	var l noteLine
	if err := decode(b, &l); err != nil {
		return err
	}
	err := v.report.open([]byte(l.Note))
	v.signed = err == nil
	return err
}

func (v *verifier) prefix(b []byte) error {
	var l prefixLine
	if err := decode(b, &l); err != nil {
		return err
	}
	if err := v.bounded(l.Proof); err != nil {
		return err
	}
	v.grown = true
	c := v.report.Checkpoint
	if l.Size < 1 || l.Size > c.Size || tlog.CheckTree(l.Proof, c.Size, c.Head, l.Size, l.Head) != nil {
		return v.broken("the tree of %d leaves did not grow from that of %d with head %v", c.Size, l.Size, l.Head)
	}
	if v.trust.Old == nil {
		return nil // the proof holds, but the reader has no checkpoint with that old head
	}
	return v.grewFrom(&l)
}

// grewFrom compares the reader's old checkpoint with the one that the bundle grew from.
func (v *verifier) grewFrom(l *prefixLine) error {
	old, _, err := v.report.keys.Open(v.trust.Old)
	if err != nil {
		return err
	}
	now := v.report.Checkpoint
	switch {
	case old.Size > now.Size:
		return v.missing("the old checkpoint has %d leaves, the bundle's has %d: the store was rolled back, or the bundle is older", old.Size, now.Size)
	case old.Size == now.Size && old.Head != now.Head, l != nil && l.Size == old.Size && l.Head != old.Head:
		return v.broken("the tree of %d leaves had head %v in the old checkpoint: what happened was rewritten", old.Size, old.Head)
	case old.Size != now.Size && old.Size != 0 && (l == nil || l.Size != old.Size):
		return unanswered{tga.Errorf(tga.ValidationError, "the bundle has no proof that it grew from the old checkpoint of %d leaves: export it with that checkpoint", old.Size)}
	}
	v.report.GrewFrom = old.Size
	return nil
}

func (v *verifier) leaf(b []byte) error {
	var l leafLine
	if err := decode(b, &l); err != nil {
		return err
	}
	if err := v.bounded(l.Proof); err != nil {
		return err
	}
	leaf, err := tree.ParseLeaf(l.Leaf)
	if err != nil {
		return err
	}
	switch n := len(v.leaves); {
	case leaf.Index != l.Index:
		return tga.Errorf(tga.SchemaViolation, "index %d on the leaf of index %d", l.Index, leaf.Index)
	case n > 0 && leaf.Index <= v.leaves[n-1].Index:
		return tga.Errorf(tga.SchemaViolation, "leaf %d behind leaf %d", leaf.Index, v.leaves[n-1].Index)
	case n == v.head.Leaves:
		return tga.Errorf(tga.SchemaViolation, "more leaves than the first line says: %d", n)
	case !v.report.includes(&leaf, l.Proof):
		return v.broken("leaf %d is not in the tree of the checkpoint", leaf.Index)
	}
	v.leaves = append(v.leaves, leaf)
	return nil
}

func (v *verifier) bounded(proof []tlog.Hash) error {
	if proof == nil { // null would be a second spelling of []
		return tga.Errorf(tga.SchemaViolation, "the proof is null")
	}
	if len(proof) > maxProof {
		return tga.Errorf(tga.LimitExceeded, "proof of %d hashes: at most %d", len(proof), maxProof)
	}
	return nil
}

func (v *verifier) of(id tga.ID) *traced {
	t := v.traces[id]
	if t == nil {
		t = &traced{Trace: Trace{ID: id}}
		v.traces[id] = t
		v.order = append(v.order, id)
	}
	return t
}

func (v *verifier) broken(format string, args ...any) error {
	return tga.Errorf(tga.StateChecksumMismatch, format, args...)
}

func (v *verifier) missing(format string, args ...any) error {
	return tga.Errorf(tga.StateSequenceGap, format, args...)
}

func (v *verifier) cut(what string) error { return tga.Errorf(tga.StateChecksumMismatch, "%s", what) }
