package chain

import "github.com/tgad/tgad/schemas/tga"

// Listing is what a list shows of a trace. State may be terminal; Since is the ts of the
// newest entry, so when the trace came to that state.
type Listing struct {
	OpenTrace
	Server, Tool string // "" where the request is erased
	Key          string // the idempotency key: of the call, before it of the request; "" where there is none
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

// Listed is a trace in a list of all. Where Err says why it cannot be read, nothing but its id
// is known.
type Listed struct {
	Listing
	Err error
}
