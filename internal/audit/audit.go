// Package audit makes audit records of the log of a store, in the formats that audit systems read:
// CloudEvents 1.0, OCSF 1.3 and CEF.
//
// # Invariants
//
//	each     one record for each entry and note, in the order of the log     [Reader.Records]  TestOneRecordForEachStep
//	same     a record always has the same id, so repeats can be recognized   [Record].ID       TestOneRecordForEachStep
//	private  no argument, answer, reason or message is in a record           [Record]          TestRecordsHaveNoContent
//	whole    no text of a caller can end a record or add a field             [Write]           TestHostileNamesStayInTheirFields
package audit

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// Record is one step of a governed call, and who made it.
type Record struct {
	ID      string     `json:"id"`     // trace:sequence of an entry, trace:nNUMBER of a note
	Cursor  string     `json:"cursor"` // of the log, after the append of this step
	Time    tga.Millis `json:"time"`
	TraceID tga.ID     `json:"trace_id"`
	Action  string     `json:"action"`          // request, decision, call, effect, or "note." and the note's kind
	State   string     `json:"state,omitempty"` // of the trace after the step; empty for a note
	Digest  tga.Digest `json:"digest"`          // of the entry or note in the log

	// By is who made the step, if the log names somebody: the submitter, the voters, the resolver, the
	// peer that appended it. Caller, Agent and Subject are those of the call's request: the peer that the
	// daemon identified, the agent that the caller named, and the client of the caller whose call it is.
	By      string `json:"by,omitempty"`
	Caller  string `json:"caller,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Subject string `json:"subject,omitempty"`

	// Namespace, Server and Tool are empty where the request is erased: nothing else names them.
	Namespace string `json:"namespace"`
	Server    string `json:"tool_server,omitempty"`
	Tool      string `json:"tool_name,omitempty"`

	Outcome string `json:"outcome,omitempty"`       // APPROVE, DENY; SUCCESS, FAILURE, ERROR, DENIED
	Class   string `json:"outcome_class,omitempty"` // of an effect
	Code    string `json:"code,omitempty"`          // of an effect that is no success
	// ServedFrom is the trace whose recorded effect this trace got.
	ServedFrom string `json:"served_from,omitempty"`

	Traceparent string `json:"-"` // of the run that made the call; empty if it had no span
}

// request has the values of a request that are in every record of its trace.
type request struct{ caller, agent, subject, namespace, server, tool, traceparent string }

// mostKnown limits the requests in memory. If there are more, all are dropped and read again.
const mostKnown = 4096

// Append is one append of a log.
type Append struct {
	Cursor  string
	Entries []Entry
	Notes   []tga.Note
}

// Entry is an entry with its artifact; nil if that is erased.
type Entry struct {
	tga.LogEntry
	Artifact *tga.Artifact
}

// Call is what a record needs of a call: its namespace and its request, nil if that is erased. Appender is
// the peer that appended the request, "" if the daemon made it.
type Call struct {
	Namespace string
	Appender  string
	Request   *tga.Artifact
}

// Said makes an append of a line of GET /v1/log.
func Said(line wire.LogLine) (x Append, err error) {
	x.Cursor = line.Cursor
	for _, e := range line.Entries {
		said, err := entry(e)
		if err != nil {
			return x, err
		}
		x.Entries = append(x.Entries, said)
	}
	for _, raw := range line.Notes {
		n, err := tga.DecodeNote(raw)
		if err != nil {
			return x, err
		}
		x.Notes = append(x.Notes, *n)
	}
	return x, nil
}

func entry(e wire.Entry) (said Entry, err error) {
	le, err := tga.DecodeLogEntry(e.Entry)
	if err != nil {
		return said, err
	}
	said.LogEntry = *le
	if len(e.Artifact) == 0 || string(e.Artifact) == "null" {
		return said, nil // erased
	}
	said.Artifact, err = tga.DecodeStoredArtifact(e.Artifact)
	return said, err
}

// Reader makes records of a log. Only one goroutine uses it.
type Reader struct {
	call  func(context.Context, tga.ID) (Call, error)
	known map[tga.ID]request
}

// NewReader makes a reader of a daemon's lines. It calls trace, such as [client.Client.Trace], for a trace
// whose request came before the first line.
func NewReader(trace func(context.Context, tga.ID) (wire.Timeline, error)) *Reader {
	return NewLogReader(func(ctx context.Context, id tga.ID) (Call, error) {
		t, err := trace(ctx, id)
		if err != nil || len(t.Entries) == 0 {
			return Call{Namespace: t.Namespace}, err
		}
		first, err := entry(t.Entries[0])
		if err != nil {
			return Call{}, err
		}
		x, err := Said(wire.LogLine{Notes: t.Notes})
		return Call{t.Namespace, x.appender(id, 1), first.Artifact}, err
	})
}

// appender returns the peer that appended an entry, "" if the daemon made it. The note that says so is in
// the append of the entry.
func (x *Append) appender(trace tga.ID, seq uint64) string {
	t := chain.Trace{}
	for i := range x.Notes {
		if x.Notes[i].TraceID == trace {
			t.Notes = append(t.Notes, x.Notes[i])
		}
	}
	return runtime.Appender(&t, seq)
}

// NewLogReader makes a reader of a log in this process. It calls call for a trace whose request came before
// the first append.
func NewLogReader(call func(context.Context, tga.ID) (Call, error)) *Reader {
	return &Reader{call: call, known: map[tga.ID]request{}}
}

func requestOf(a *tga.Artifact, appender string) (q request) {
	if a != nil {
		q = request{
			caller: cmp.Or(appender, a.Meta.String(tga.MetaSubmitter)), agent: a.Request.AgentID.String(), subject: a.Meta.String(tga.MetaSubject), namespace: a.Meta.String(tga.MetaNamespace),
			server: a.Request.Proposal.ToolServer, tool: a.Request.Proposal.ToolName, traceparent: a.Meta.String(tga.MetaSpanContext),
		}
		q.namespace = cmp.Or(q.namespace, tga.DefaultNamespace)
	}
	return q
}

// Records returns the records of a line. A line of a working state or of a turn has none.
func (r *Reader) Records(ctx context.Context, line wire.LogLine) ([]Record, error) {
	x, err := Said(line)
	if err != nil {
		return nil, err
	}
	return r.Of(ctx, x)
}

// Of returns the records of an append.
func (r *Reader) Of(ctx context.Context, x Append) (all []Record, err error) {
	for i := range x.Entries {
		e := &x.Entries[i]
		by := x.appender(e.TraceID, e.Seq)
		if e.Type == tga.RequestType {
			r.remember(e.TraceID, requestOf(e.Artifact, by))
		}
		rec, err := r.record(ctx, x.Cursor, e.TraceID)
		if err != nil {
			return nil, err
		}
		rec.ID, rec.Time, rec.Digest, rec.State = fmt.Sprintf("%s:%d", e.TraceID, e.Seq), e.TS, e.Digest, e.To.String()
		rec.step(e.Type, e.Artifact)
		if e.Artifact != nil {
			rec.By = cmp.Or(rec.By, by)
		}
		all = append(all, rec)
		if e.To.Terminal() {
			delete(r.known, e.TraceID)
		}
	}
	for i := range x.Notes {
		n := &x.Notes[i]
		rec, err := r.record(ctx, x.Cursor, n.TraceID)
		if err != nil {
			return nil, err
		}
		rec.ID, rec.Time, rec.Digest = fmt.Sprintf("%s:n%d", n.TraceID, n.Number), n.TS, n.Digest
		rec.Action, rec.By = "note."+string(n.Kind), n.Who
		all = append(all, rec)
	}
	return all, nil
}

// step fills in the fields of an entry. If its artifact is erased, only the action is known.
func (r *Record) step(kind tga.ArtifactType, a *tga.Artifact) {
	switch kind {
	case tga.RequestType:
		r.Action, r.By = "request", r.Caller
	case tga.DecisionType:
		r.Action = "decision"
	case tga.CallType:
		r.Action = "call"
	case tga.EffectType:
		r.Action = "effect"
	}
	if a == nil {
		return
	}
	switch kind {
	case tga.DecisionType:
		r.Outcome, r.By = a.Decision.Decision, a.Meta.String(runtime.MetaApprovers)
	case tga.EffectType:
		o := a.Effect.Outcome
		r.Outcome, r.Class, r.ServedFrom = o.Status, a.Meta.String(tga.MetaOutcomeClass), a.Meta.String(tga.MetaReplayedFrom)
		if o.Error != nil {
			r.Code = o.Error.Code
		}
		r.By = cmp.Or(a.Meta.String(tga.MetaResolver), a.Meta.String(tga.MetaFinishedBy))
	}
}

// record makes a record with the values of its trace's request.
func (r *Reader) record(ctx context.Context, cursor string, trace tga.ID) (Record, error) {
	q, ok := r.known[trace]
	if !ok {
		c, err := r.call(ctx, trace)
		if err != nil {
			return Record{}, err
		}
		q = requestOf(c.Request, c.Appender)
		q.namespace = c.Namespace
		r.remember(trace, q)
	}
	return Record{
		Cursor: cursor, TraceID: trace, Caller: q.caller, Agent: q.agent, Subject: q.subject,
		Namespace: q.namespace, Server: q.server, Tool: q.tool, Traceparent: q.traceparent,
	}, nil
}

func (r *Reader) remember(trace tga.ID, q request) {
	if len(r.known) >= mostKnown {
		clear(r.known)
	}
	r.known[trace] = q
}
