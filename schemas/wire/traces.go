package wire

import "github.com/tgad/tgad/schemas/tga"

// TracesQuery narrows a list of traces; the zero value asks for all open ones that the peer
// may see.
type TracesQuery struct {
	State     string
	Namespace string
	Server    string
	Tool      string
	Key       string     // the idempotency key
	Class     string     // of the outcome, as the ledger has them
	Text      string     // in the arguments, as they are stored
	Since     tga.Millis // in its state since then or later
	Until     tga.Millis // in its state since before then
	All       bool       // finished and archived ones too
	After     tga.ID     // begins after this trace
	// Newest lists the newest first, by when a trace came into its state. It takes a store with
	// list_index. Before stands beside After then: since when that trace was in its state.
	Newest bool
	Before tga.Millis
}
