package wire

import "github.com/tgad/tgad/schemas/tga"

// SignedCheckpoint is the newest signed checkpoint of a store: GET /v1/checkpoint.
type SignedCheckpoint struct {
	Key        string   `json:"key"` // the public key that signed first
	HandOvers  []string `json:"hand_overs,omitempty"`
	Checkpoint string   `json:"checkpoint"` // signed note
}

// EvidenceRequest asks for a file that proves what happened: POST /v1/bundle.
type EvidenceRequest struct {
	TraceIDs []tga.ID   `json:"trace_ids,omitempty"` // absent = every trace since a time
	Since    tga.Millis `json:"since,omitempty"`     // absent = the beginning
	// After and Most choose appends by their index instead of a time: those with an index over
	// After, at most Most of them; Most 0 means all.
	After int64  `json:"after,omitempty"`
	Most  int64  `json:"most,omitempty"`
	Old   string `json:"old,omitempty"` // an older checkpoint: the file proves that the tree grew from it
}
