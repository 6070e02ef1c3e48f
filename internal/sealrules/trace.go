package sealrules

import (
	"cmp"
	"encoding/json"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// OfTrace reports whether an attachment belongs to a trace: a question to people about it, or evidence of
// it. Such an attachment is sealed under the trace's key and erased with it. Nodes of a working state are
// appended with a trace too, but they are needed after it, so they do not belong to it.
func OfTrace(trace tga.ID, a *chain.Attachment) bool {
	return a.Kind == chain.AttachApproval || a.Kind == chain.AttachBlob && keyspace.EvidenceOf(trace, a.Key)
}

// seals reports whether an append to a trace has a value that a store with a key ring seals.
func seals(trace tga.ID, attachments []chain.Attachment) bool {
	for i := range attachments {
		if a := &attachments[i]; a.Value != nil && OfTrace(trace, a) {
			return true
		}
	}
	return false
}

// KeyFor returns the key under which a store with a key ring seals an append to a trace. It is the key of
// the trace's earlier entries. If fresh is true, the caller must ask the ring for a new key, with the
// namespace and the subject of request. If key is 0 and fresh is false, nothing is sealed under a key of
// the trace.
func KeyFor(t *chain.Trace, b *chain.Batch) (key chain.KeyID, fresh bool, request *tga.Artifact, err error) {
	request = t.Request
	switch {
	case len(b.Artifacts) == 0 && !seals(t.ID, b.Attachments):
		return 0, false, nil, nil
	case t.Head.Seq > 0 && request == nil:
		return 0, false, nil, tga.Errorf(tga.StateInvalidTransition, "append to trace %s: it was erased", t.ID).In(t.ID)
	case t.Key != 0:
		return t.Key, false, nil, nil
	case request == nil && len(b.Artifacts) == 0:
		return 0, false, nil, nil // the attachments belong to no trace
	case request == nil:
		request = b.Artifacts[0].Artifact
	}
	return 0, true, request, nil
}

// SubjectOf returns the namespace of a request, and its subject or "".
func SubjectOf(request *tga.Artifact) (namespace, subject string) {
	namespace = cmp.Or(request.Meta.String(tga.MetaNamespace), tga.DefaultNamespace)
	return namespace, request.Meta.String(tga.MetaSubject)
}

// Gone reports whether a trace's entries have nothing left to erase.
func Gone(entries []chain.Entry) bool {
	for i := range entries {
		if e := &entries[i]; e.Artifact != nil || e.Key != 0 {
			return false
		}
	}
	return true
}

// Bare returns entries as they are after an erasure: without artifacts and documents.
func Bare(entries []chain.Entry) []chain.Entry {
	bare := make([]chain.Entry, 0, len(entries))
	for _, e := range entries {
		bare = append(bare, chain.Entry{LogEntry: e.LogEntry, Preimage: e.Preimage, Committed: e.Committed, Epoch: e.Epoch})
	}
	return bare
}

// ErasedNote returns the note that says who erased a trace with that number of entries, and why.
func ErasedNote(who, reason string, entries int) (chain.NewNote, error) {
	body, err := json.Marshal(map[string]any{"entries": entries, "reason": reason})
	if err != nil {
		return chain.NewNote{}, tga.Errorf(tga.GenericStateError, "erase: %w", err)
	}
	return chain.NewNote{Kind: tga.NoteErased, Who: who, Body: body}, nil
}

// Beside returns the attachments that are erased with a trace: its questions to people, and the evidence
// that its notes name. Their values are nil, so appending them deletes them.
func Beside(id tga.ID, notes []tga.Note) (list []chain.Attachment) {
	add := func(kind chain.AttachmentKind, key []byte) {
		if _, err := keyspace.AppendAttachment(nil, keyspace.Kind(kind), key); err == nil {
			list = append(list, chain.Attachment{Kind: kind, Key: key})
		}
	}
	add(chain.AttachApproval, keyspace.ApprovalKey(id))
	for i := range notes {
		var body struct {
			Evidence string `json:"evidence_digest"`
		}
		if json.Unmarshal(notes[i].Body, &body) != nil {
			continue // in another kind of note the member may have another type
		}
		if d, err := tga.ParseDigest(body.Evidence); err == nil && !d.IsZero() {
			add(chain.AttachBlob, keyspace.EvidenceKey(d, id))
			add(chain.AttachBlob, keyspace.DigestKey(d)) // the key under which a store of format 2 has it
		}
	}
	return list
}

// Erasable refuses a trace that has not ended, that has a new attempt due (timed), or whose lease somebody holds
// (held).
func Erasable(id tga.ID, last tga.State, timed, held bool) error {
	switch {
	case !last.Terminal():
		return tga.Errorf(tga.StateInvalidTransition, "erase trace %s: it is %s. End it first: let it run, or tgad resolve or tgad abandon it", id, last).In(id)
	case timed:
		return tga.Errorf(tga.StateInvalidTransition, "erase trace %s: a new attempt of it is due. Erase it after that", id).In(id)
	case held:
		return tga.Errorf(tga.StateLockAcquireFailed, "erase trace %s: another process or call holds its lease", id).In(id)
	}
	return nil
}

// IsOf reports whether a trace belongs to a subject: its request names the subject, or one of its entries has a key of own.
func IsOf(entries []chain.Entry, own map[chain.KeyID]bool, namespace, subject string) bool {
	for i := range entries {
		e := &entries[i]
		if own[e.Key] {
			return true
		}
		if e.Type == tga.RequestType && e.Artifact != nil {
			if n, s := SubjectOf(e.Artifact); n == namespace && s == subject {
				return true
			}
		}
	}
	return false
}
