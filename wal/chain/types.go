package chain

import "github.com/tgad/tgad/schemas/tga"

// Epoch fences writers: it grows with every lease that a store grants and with every open of
// the store. The store's incarnation is in the upper 32 bits, a counter in the lower.
type Epoch uint64

// Incarnation returns the store incarnation that granted the epoch.
func (e Epoch) Incarnation() uint32 { return uint32(e >> 32) }

// Lease is the right to append to one trace. It is a plain value: whoever has a copy has the
// right. A store refuses a lease that is not the trace's newest.
type Lease struct {
	TraceID tga.ID
	Epoch   Epoch
}

// Head is the last entry of a trace. The zero Head is that of an empty trace.
type Head struct {
	Seq    uint64
	Digest tga.Digest
	State  tga.State
}

// Entry is one link of a trace's log with everything that was stored with it.
type Entry struct {
	tga.LogEntry
	Preimage  []byte        // the canonical entry bytes that were hashed: without entry_digest
	Artifact  *tga.Artifact // nil when erased
	Documents []Document    // bound by the artifact's document_hashes, in their order; none when it is erased
	Committed tga.Millis    // the store's clock at the commit; not hashed
	Epoch     Epoch         // lease under which it was appended; not hashed
	Key       KeyID         // key that its parts are sealed under, 0 for none; not hashed. Artifact is nil where it was destroyed

	proof *proof // what [DecodeFrame] verified of it; nil for an entry from elsewhere
}

// Document is a byte string bound to an effect by a digest in document_hashes: the
// tool's whole answer, state changes, evidence. It need not be JSON.
type Document struct {
	Pointer string // tga.PointerResult, …
	Data    []byte
	Erased  bool // Data was destroyed; the digest in the effect remains
}

// NewArtifact is one artifact to append.
type NewArtifact struct {
	Artifact  *tga.Artifact
	Documents []Document
	// Entry is the caller's complete entry, checked and stored as given. Nil means
	// the store makes it.
	Entry *tga.LogEntry
}

// NewNote is one note to append. The store fills in number, links, ts and digest.
type NewNote struct {
	Kind tga.NoteKind
	Who  string
	Body []byte // JSON object
}

// AttachmentKind names a family of attachments. Each has its own key prefix.
type AttachmentKind byte

// Kinds of attachments.
const (
	AttachApproval AttachmentKind = 'a' // key: trace id; value: pending approval
	AttachBeginID  AttachmentKind = 'i' // key: digest; value: trace of a begin id
	AttachTimer    AttachmentKind = 'q' // key: due millis, trace id
	AttachStream   AttachmentKind = 't' // key: stream id, seq
	AttachBlob     AttachmentKind = 'w' // key: evidence of a trace, node of a working state
)

// AttachmentKinds lists all kinds, for code that copies or compares a whole store.
var AttachmentKinds = []AttachmentKind{AttachApproval, AttachBeginID, AttachTimer, AttachStream, AttachBlob}

// Attachment is an opaque value that commits in the same batch as the entries of its Batch. A
// nil Value deletes the key.
type Attachment struct {
	Kind  AttachmentKind
	Key   []byte
	Value []byte
	// Owner is the stream whose data key seals the value, for a stream's item or a blob. Everything
	// that is erased together has one owner. The store remembers the owner's key until the owner is
	// erased. Zero means the item's own stream.
	Owner tga.ID
}

// Batch is what one append commits: all of it durable, or none.
type Batch struct {
	// Expect, if not nil, is the head that the caller expects the trace to have.
	Expect      *Head
	Artifacts   []NewArtifact
	Notes       []NewNote // linked after the artifacts
	Attachments []Attachment
	// Also, if not nil, adds notes to a second trace in the same commit. So a call and the call
	// that it undoes are settled together.
	Also *Also
}

// Also is the part of a batch that goes to another trace.
type Also struct {
	Lease Lease
	Notes []NewNote
}

// Appended says what an append did.
type Appended struct {
	Head     Head
	Entries  []tga.LogEntry
	Notes    []tga.Note
	Replayed bool // the log already had the batch; nothing was written
	// Trace is the trace after the append: what a Load right after it returns. The store keeps
	// the same value, so callers must not advance it.
	Trace *Trace
}

// OpenTrace is an entry of the in-flight index: a trace that is not terminal.
type OpenTrace struct {
	TraceID   tga.ID
	Namespace string
	State     tga.State
	Since     tga.Millis
	Deadline  tga.Millis // 0 = none
}

// Leaf is one position of the global order of a store: what one append committed.
type Leaf struct {
	Index     uint64 // from 1; also the cursor to follow on from
	TraceID   tga.ID
	FirstSeq  uint64 // of the entries appended; 0 when there are none
	Entries   uint16
	FirstNote uint32 // of the notes appended; 0 when there are none
	Notes     uint16
	// HeadDigest and NoteDigest are of the trace's last entry and last note after the
	// append; NoteDigest is zero for a trace without notes.
	HeadDigest, NoteDigest tga.Digest
	// Committed and NewestTS are the newest commit time and the newest ts of any append
	// up to this one.
	Committed, NewestTS tga.Millis
}
