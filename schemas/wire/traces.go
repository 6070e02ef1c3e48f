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
	Class     string     // outcome class, as in the ledger
	Text      string     // that the stored arguments contain
	Since     tga.Millis // it came into its state at this time or later
	Until     tga.Millis // it came into its state before this time
	All       bool       // finished and archived traces too
	After     tga.ID     // begins after this trace
	// Newest lists the newest first, by the time at which a trace came into its state. It needs a
	// store with list_index. Then After needs Before: the time at which that trace came into its
	// state.
	Newest bool
	Before tga.Millis
}
