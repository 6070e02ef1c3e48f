package sealrules

import (
	"cmp"
	"encoding/json"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// OfTrace reports whether an attachment says something of a trace: what people are asked about it, or
// evidence of it. It is sealed under the trace's key, and goes with it. Nodes of a working state come
// with a trace too, and are needed after it.
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

// KeyFor says under which key a store with a key ring seals what is appended to a trace. It is that of
// the trace's entries so far; or with fresh one that the ring is to be asked for, by the request's namespace
// and subject. Without either nothing is sealed under a key of the trace.
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
		return 0, false, nil, nil // beside no trace
	case request == nil:
		request = b.Artifacts[0].Artifact
	}
	return 0, true, request, nil
}

// SubjectOf returns whose call a request is: its namespace, and its subject or "".
func SubjectOf(request *tga.Artifact) (namespace, subject string) {
	namespace = cmp.Or(request.Meta.String(tga.MetaNamespace), tga.DefaultNamespace)
	return namespace, request.Meta.String(tga.MetaSubject)
}

// Gone reports whether nothing of a trace's entries is left to be erased.
func Gone(entries []chain.Entry) bool {
	for i := range entries {
		if e := &entries[i]; e.Artifact != nil || e.Key != 0 {
			return false
		}
	}
	return true
}

// Bare returns what is left of entries that are erased: all but what they carried.
func Bare(entries []chain.Entry) []chain.Entry {
	bare := make([]chain.Entry, 0, len(entries))
	for _, e := range entries {
		bare = append(bare, chain.Entry{LogEntry: e.LogEntry, Preimage: e.Preimage, Committed: e.Committed, Epoch: e.Epoch})
	}
	return bare
}

// ErasedNote is the note that says who erased what so many entries of a trace carried, and why.
func ErasedNote(who, reason string, entries int) (chain.NewNote, error) {
	body, err := json.Marshal(map[string]any{"entries": entries, "reason": reason})
	if err != nil {
		return chain.NewNote{}, tga.Errorf(tga.GenericStateError, "erase: %w", err)
	}
	return chain.NewNote{Kind: tga.NoteErased, Who: who, Body: body}, nil
}

// Beside returns what lies beside a trace and has to do with what it carried: what it asks people, and the
// evidence that its notes name. Their values are nil: appended, they are deletions.
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
			continue // another kind of note has another kind of member
		}
		if d, err := tga.ParseDigest(body.Evidence); err == nil && !d.IsZero() {
			add(chain.AttachBlob, keyspace.EvidenceKey(d, id))
			add(chain.AttachBlob, keyspace.DigestKey(d)) // where a store of format 2 has it
		}
	}
	return list
}

// Erasable refuses a trace of which something is still to come: which has not ended, of which a new attempt is due,
// or that somebody is at.
func Erasable(id tga.ID, last tga.State, timed, held bool) error {
	switch {
	case !last.Terminal():
		return tga.Errorf(tga.StateInvalidTransition, "erase trace %s: it is %s. End it first: let it run, or tgad resolve or tgad abandon it", id, last).In(id)
	case timed:
		return tga.Errorf(tga.StateInvalidTransition, "erase trace %s: a new attempt of it is due. Erase it after that", id).In(id)
	case held:
		return tga.Errorf(tga.StateLockAcquireFailed, "erase trace %s: somebody is at it", id).In(id)
	}
	return nil
}

// IsOf reports whether a trace is a subject's, by what its request says, or by the keys that are the subject's own.
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
