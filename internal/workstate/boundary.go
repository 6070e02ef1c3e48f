package workstate

import (
	"cmp"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Kinds of boundary.
const (
	boundaryCall       = "call"       // a tool call
	boundaryUpdate     = "update"     // [State.Update]
	boundaryRestore    = "restore"    // [State.Restore] and [Plan.Do]
	boundaryCheckpoint = "checkpoint" // [State.Checkpoint], or what recovery found
)

// boundary is a transaction with the state before and after it. Its record is kept in the
// store. A transaction whose record is open counts as not happened.
type boundary struct {
	record    boundaryRecord
	pre, post *Node // nil where there is none, or it is not loaded
}

// boundaryRecord is the stored form, JSON.
type boundaryRecord struct {
	Version   int       `json:"version"`
	Number    uint64    `json:"number"`
	Kind      string    `json:"kind"`
	ID        string    `json:"id"` // tool_call_id of a call
	TraceID   string    `json:"trace_id,omitempty"`
	Server    string    `json:"server,omitempty"`
	Tool      string    `json:"tool,omitempty"`
	Tag       string    `json:"tag,omitempty"`
	Parent    string    `json:"parent,omitempty"` // id of the enclosing transaction
	Open      bool      `json:"open,omitempty"`
	Success   bool      `json:"success,omitempty"`
	Code      string    `json:"code,omitempty"`
	Summary   string    `json:"summary,omitempty"`
	Pre       string    `json:"pre"`
	Post      string    `json:"post,omitempty"`
	Began     int64     `json:"began"` // UTC, nanoseconds since 1970
	ElapsedNs int64     `json:"elapsed_ns,omitempty"`
	Bytes     int64     `json:"bytes,omitempty"` // that it added to the store
	Held      []string  `json:"held,omitempty"`
	Seed      [2]uint64 `json:"seed"`
	Times     []int64   `json:"times,omitempty"`
}

// maxSummary bounds the summary that a boundary keeps, in bytes.
const maxSummary = 500

// Checkpoint is a boundary as [State.List] shows it.
type Checkpoint struct {
	ID       string // tool_call_id of a call
	Kind     string // call, update, restore or checkpoint
	TraceID  string
	Server   string
	Name     string // of the tool; the tag of anything else
	Parent   string // ID of the transaction it ran inside of; "" = none
	Open     bool   // it has not ended
	Success  bool
	Code     tga.Code
	Summary  string
	Elapsed  time.Duration
	Recorded time.Time
	Bytes    int64 // that it added to the store
}

func (b *boundary) checkpoint() Checkpoint {
	r := b.record
	name := cmp.Or(r.Tool, r.Tag)
	return Checkpoint{
		ID: r.ID, Kind: r.Kind, TraceID: r.TraceID, Server: r.Server, Name: name, Parent: r.Parent,
		Open: r.Open, Success: r.Success, Code: tga.Code(r.Code), Summary: r.Summary,
		Elapsed: time.Duration(r.ElapsedNs), Recorded: time.Unix(0, r.Began).UTC(), Bytes: r.Bytes,
	}
}

func (b *boundary) setPre(n *Node)  { b.pre, b.record.Pre = n, n.digest.String() }
func (b *boundary) setPost(n *Node) { b.post, b.record.Post = n, n.digest.String() }

// Recording is what a call saw of the clock and of the random source.
type Recording struct {
	Seed  [2]uint64
	Times []time.Time
}

func (b *boundary) recording() Recording {
	r := Recording{Seed: b.record.Seed}
	for _, ns := range b.record.Times {
		r.Times = append(r.Times, time.Unix(0, ns).UTC())
	}
	return r
}
