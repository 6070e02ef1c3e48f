package wire

import (
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Messages for clients that append artifacts of their own, and for readers of the log: appends,
// leases, lines, exports.

// AppendRequest appends artifacts to a trace: POST /v1/traces/{id}/entries.
type AppendRequest struct {
	// Lease is the token of a held lease. A repeat of an append that succeeded needs
	// none.
	Lease     string        `json:"lease,omitempty" wire:"filled"`
	Expect    *Expect       `json:"expect,omitempty"` // the head that the caller expects; absent = the current one
	Artifacts []NewArtifact `json:"artifacts"`
}

// NewArtifact is one artifact to append.
type NewArtifact struct {
	Artifact  json.RawMessage `json:"artifact"`
	Entry     json.RawMessage `json:"entry,omitempty"` // complete; checked and stored as given
	Documents []NewDocument   `json:"documents,omitempty"`
}

// NewDocument is a document that the artifact's document_hashes bind.
type NewDocument struct {
	Pointer    string          `json:"pointer"`
	Data       json.RawMessage `json:"data,omitempty"`        // the document if it is JSON, exact
	DataBase64 []byte          `json:"data_base64,omitempty"` // the bytes of any other document
}

// Expect names the head that an append is to follow.
type Expect struct {
	Seq    uint64     `json:"sequence_number"` // 0 with a digest of zeros: an empty trace
	Digest tga.Digest `json:"entry_digest"`
}

// Head is the last entry of a trace.
type Head struct {
	Seq    uint64     `json:"sequence_number"`
	Digest tga.Digest `json:"entry_digest"`
	State  string     `json:"state"`
}

// Appended says what an append did.
type Appended struct {
	Head     Head              `json:"head"`
	Entries  []json.RawMessage `json:"entries"` // canonical
	Replayed bool              `json:"replayed"`
}

// BatchRequest is many appends in one request: POST /v1/entries:batch.
type BatchRequest struct {
	Items []BatchItem `json:"items"`
}

// BatchItem is one append of a batch.
type BatchItem struct {
	TraceID tga.ID `json:"trace_id"`
	AppendRequest
}

// BatchAnswers are the answers to a batch, in the order of its items.
type BatchAnswers struct {
	Items []BatchAnswer `json:"items"`
}

// BatchAnswer is the answer to one item. Exactly one of its members is set.
type BatchAnswer struct {
	Appended *Appended `json:"appended,omitempty"`
	Problem  *Problem  `json:"problem,omitempty"`
}

// LogLine is one append in the global order of the store: a line of GET /v1/log.
type LogLine struct {
	Cursor  string            `json:"cursor"`             // after= to continue from here
	TraceID tga.ID            `json:"trace_id,omitempty"` // or the id of a working state or a turn, without entries and notes
	Entries []Entry           `json:"entries,omitempty"`
	Notes   []json.RawMessage `json:"notes,omitempty"`
}

// The dialects of an export: whose schemas each artifact must pass.
const (
	DialectTgad  = "tgad"
	DialectTalos = "talos"
)

// ExportRequest asks for traces as lines that anyone can check: POST /v1/export.
type ExportRequest struct {
	TraceIDs []tga.ID `json:"trace_ids,omitempty"`             // in this order; absent = all that the peer may see
	Dialect  string   `json:"dialect,omitempty" wire:"filled"` // absent = tgad
}

// LeaseRequest takes, renews or ends a lease.
type LeaseRequest struct {
	Lease string `json:"lease,omitempty" wire:"filled"` // the token; absent only when taking
	TTLMS int64  `json:"ttl_ms,omitempty"`              // absent = the daemon's default
}

// Lease is a held lease.
type Lease struct {
	Lease   string     `json:"lease"` // 32 hex digits; whoever has it may append
	TraceID tga.ID     `json:"trace_id"`
	Epoch   string     `json:"epoch"` // decimal
	Expires tga.Millis `json:"expires"`
}

// Released says whether a release found a lease to end.
type Released struct {
	Released bool `json:"released"`
}

// CheckpointRequest seals a trace's head: POST /v1/traces/{id}/checkpoint.
type CheckpointRequest struct {
	Lease string `json:"lease,omitempty" wire:"filled"` // absent: the daemon takes the lease for this request
}

// Newest is a cursor: the newest append at the time of the request.
const Newest = "newest"

// AttachmentKinds are the kinds that the daemon shows, by their names on the wire.
var AttachmentKinds = map[string]chain.AttachmentKind{"stream": chain.AttachStream, "blob": chain.AttachBlob}

// Attachment is a value that was written with an append: a line of GET /v1/attachments.
type Attachment struct {
	Key   []byte `json:"key_base64"`
	Value []byte `json:"value_base64"`
}
