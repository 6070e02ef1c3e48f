package story

import (
	"iter"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// Fold makes a trace from a daemon's answer, and checks every digest and link on the way. So
// what is shown is proven by the log, whatever answered.
func Fold(said wire.Timeline, document Documents) (*chain.Trace, error) {
	return chain.Replay(said.TraceID, Entries(said, document), Notes(said))
}

// Unread reports whether an error of [Fold], or of another check of a log, says that the log could not be read, so
// that nothing is known about it. Any other error is a finding: the log is not what it says it is.
func Unread(err error) bool {
	switch tga.CodeOf(err) {
	case "", tga.StoreUnavailable, tga.StateLockAcquireFailed, tga.NotFound, tga.FormatTooNew, tga.PermissionDenied:
		return true
	}
	return false
}

// Documents returns the bytes of a stored document of a trace's effect.
type Documents func(pointer string) ([]byte, error)

// Entries yields the entries of a trace as a store would.
func Entries(said wire.Timeline, document Documents) iter.Seq2[chain.Entry, error] {
	return func(yield func(chain.Entry, error) bool) {
		for i := range said.Entries {
			e, err := foldEntry(&said.Entries[i], document)
			if err != nil {
				yield(chain.Entry{}, err)
				return
			}
			if !yield(*e, nil) {
				return
			}
		}
	}
}

// Notes yields the notes of a trace as a store would.
func Notes(said wire.Timeline) iter.Seq2[tga.Note, error] {
	return func(yield func(tga.Note, error) bool) {
		for _, raw := range said.Notes {
			n, err := tga.DecodeNote(raw)
			if err != nil {
				yield(tga.Note{}, err)
				return
			}
			if !yield(*n, nil) {
				return
			}
		}
	}
}

func foldEntry(said *wire.Entry, document Documents) (*chain.Entry, error) {
	le, err := tga.DecodeLogEntry(said.Entry)
	if err != nil {
		return nil, err
	}
	epoch, err := strconv.ParseUint(said.Epoch, 10, 64)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "entry %d of trace %s: epoch %q: %w", le.Seq, le.TraceID, said.Epoch, err)
	}
	e := &chain.Entry{LogEntry: *le, Committed: said.Committed, Epoch: chain.Epoch(epoch)}
	if len(said.Artifact) > 0 && string(said.Artifact) != "null" {
		if e.Artifact, err = tga.DecodeArtifact(said.Artifact, tga.Limits{MaxBytes: tga.MostBytes, MaxDepth: tga.MostDepth}); err != nil {
			return nil, err
		}
	}
	for _, d := range said.Documents {
		doc := chain.Document{Pointer: d.Pointer, Erased: d.Erased}
		if !d.Erased {
			if doc.Data, err = document(d.Pointer); err != nil {
				return nil, err
			}
		}
		e.Documents = append(e.Documents, doc)
	}
	return e, nil
}

// Said returns an entry in the form of a daemon's answer, with the canonical bytes that were
// hashed, unchanged.
func Said(e *chain.Entry) wire.Entry {
	m := wire.Entry{
		Entry: e.AppendCanonical(nil), Committed: e.Committed,
		Epoch: strconv.FormatUint(uint64(e.Epoch), 10),
	}
	if e.Artifact != nil {
		m.Artifact = e.Artifact.Canonical
	}
	for _, doc := range e.Documents {
		d := wire.Document{Pointer: doc.Pointer, SizeBytes: int64(len(doc.Data)), Hash: tga.Sum(doc.Data), Erased: doc.Erased}
		if doc.Erased && e.Artifact != nil && e.Artifact.Effect != nil {
			for _, h := range e.Artifact.Effect.DocumentHashes {
				if h.Pointer == doc.Pointer {
					d.SizeBytes, d.Hash = max(h.SizeBytes, 0), h.Hash
				}
			}
		}
		m.Documents = append(m.Documents, d)
	}
	return m
}

// Listed returns what a list shows of a trace, as a message.
func Listed(l chain.Listing) wire.OpenTrace {
	return wire.OpenTrace{
		TraceID: l.TraceID, Namespace: l.Namespace, State: l.State.String(), Since: l.Since, Deadline: l.Deadline,
		ToolServer: l.Server, ToolName: l.Tool, IdempotencyKey: l.Key, ToolCallID: l.ToolCallID,
	}
}
