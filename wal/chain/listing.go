package chain

import "github.com/tgad/tgad/schemas/tga"

// Listing is what a list shows of a trace. State may be terminal. Since is the ts of the
// newest entry: the time at which the trace reached that state.
type Listing struct {
	OpenTrace
	Server, Tool string // "" if the request is erased
	Key          string // idempotency key of the call, or of the request before the call; "" if there is none
	ToolCallID   tga.ID // zero before the call
}

// Listing returns what a list shows of a trace that has an entry.
func (t *Trace) Listing() Listing {
	l := Listing{OpenTrace: OpenTrace{
		TraceID: t.ID, Namespace: t.Namespace, State: t.Head.State,
		Since: t.Entries[len(t.Entries)-1].TS, Deadline: t.Deadline,
	}}
	if t.Request != nil {
		p := t.Request.Request
		l.Server, l.Tool, l.Key = p.Proposal.ToolServer, p.Proposal.ToolName, p.IdempotencyKey
	}
	for _, e := range t.Entries {
		if !e.ToolCallID.IsZero() {
			l.ToolCallID = e.ToolCallID
		}
		if e.IdempotencyKey != "" {
			l.Key = e.IdempotencyKey
		}
	}
	return l
}

// Listed is a trace in a list of all traces. If Err is set, the trace cannot be read, and only
// its id is known.
type Listed struct {
	Listing
	Err error
}
