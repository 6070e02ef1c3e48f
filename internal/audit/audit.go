// Package audit writes what the log of a store says in the forms that audit systems read: CloudEvents
// 1.0, OCSF 1.3 and CEF.
//
// # Invariants
//
//	each     one record for each entry and note, in the order of the log     [Reader.Records]  TestOneRecordForEachStep
//	same     a record has the same id each time: a repeat can be told        [Record].ID       TestOneRecordForEachStep
//	private  no argument, answer, reason or message is in a record           [Record]          TestRecordsHaveNoContent
//	whole    nothing that a caller wrote ends a record or makes a field      [Write]           TestHostileNamesStayInTheirFields
package audit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Record is one step of a governed call, and who made it.
type Record struct {
	ID      string     `json:"id"`     // trace:sequence of an entry, trace:nNUMBER of a note
	Cursor  string     `json:"cursor"` // of the log, after the append that it is of
	Time    tga.Millis `json:"time"`
	TraceID tga.ID     `json:"trace_id"`
	Action  string     `json:"action"`          // request, decision, call, effect, or note. and the note's kind
	State   string     `json:"state,omitempty"` // of the trace after it; none of a note
	Digest  tga.Digest `json:"digest"`          // of the entry or note in the log

	// By is who made the step, where the log names somebody: who handed the request in, who voted, who
	// resolved. Caller, Agent and Subject are those of the call's request: the peer as the daemon knows it,
	// the agent as the caller names it, and whose call it is of the clients of one caller.
	By      string `json:"by,omitempty"`
	Caller  string `json:"caller,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Subject string `json:"subject,omitempty"`

	Namespace string `json:"namespace"`
	Server    string `json:"tool_server,omitempty"` // empty where the request is erased
	Tool      string `json:"tool_name,omitempty"`

	Outcome string `json:"outcome,omitempty"`       // APPROVE, DENY; SUCCESS, FAILURE, ERROR, DENIED
	Class   string `json:"outcome_class,omitempty"` // of an effect
	Code    string `json:"code,omitempty"`          // of an effect that is no success
	// ServedFrom is the trace whose recorded effect this one was served.
	ServedFrom string `json:"served_from,omitempty"`

	Traceparent string `json:"-"` // of the run that made the call, where it was traced
}

// request is what every record of a trace says of its request.
type request struct{ caller, agent, subject, namespace, server, tool, traceparent string }

// mostKnown bounds the requests that are remembered; one that was forgotten is asked for again.
const mostKnown = 4096

// Reader makes records of the lines of a log. It is used by one goroutine.
type Reader struct {
	trace func(context.Context, tga.ID) (wire.Timeline, error)
	known map[tga.ID]request
}

// NewReader makes a reader. trace is asked for traces whose request is not among the lines, because it
// came before the first of them: [client.Client.Trace].
func NewReader(trace func(context.Context, tga.ID) (wire.Timeline, error)) *Reader {
	return &Reader{trace: trace, known: map[tga.ID]request{}}
}

// artifact is what a record needs of one.
type artifact struct {
	Meta     map[string]any `json:"meta"`
	Agent    string         `json:"agent_id"`
	Proposal struct {
		Server string `json:"tool_server"`
		Tool   string `json:"tool_name"`
	} `json:"proposal"`
	Decision string `json:"decision"`
	Outcome  struct {
		Status string `json:"status"`
		Error  struct {
			Code string `json:"code"`
		} `json:"error"`
	} `json:"outcome"`
}

func (a *artifact) meta(name string) string {
	s, _ := a.Meta[name].(string)
	return s
}

func requestOf(a *artifact) request {
	q := request{
		caller: a.meta(tga.MetaSubmitter), agent: a.Agent, subject: a.meta(tga.MetaSubject), namespace: a.meta(tga.MetaNamespace),
		server: a.Proposal.Server, tool: a.Proposal.Tool, traceparent: a.meta(tga.MetaSpanContext),
	}
	if q.namespace == "" {
		q.namespace = tga.DefaultNamespace
	}
	return q
}

// parse reads an artifact; one that was erased has nothing.
func parse(raw []byte) (a artifact, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return a, nil
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, tga.Errorf(tga.StoreUnavailable, "an artifact of the log is not understood: %w", err)
	}
	return a, nil
}

// Records are those of a line. A line of a working state or of a turn has none.
func (r *Reader) Records(ctx context.Context, line wire.LogLine) (all []Record, err error) {
	for _, e := range line.Entries {
		le, err := tga.DecodeLogEntry(e.Entry)
		if err != nil {
			return nil, err
		}
		a, err := parse(e.Artifact)
		if err != nil {
			return nil, err
		}
		if le.Type == tga.RequestType {
			r.remember(le.TraceID, requestOf(&a))
		}
		rec, err := r.record(ctx, line.Cursor, le.TraceID)
		if err != nil {
			return nil, err
		}
		rec.ID, rec.Time, rec.Digest, rec.State = fmt.Sprintf("%s:%d", le.TraceID, le.Seq), le.TS, le.Digest, le.To.String()
		rec.step(le.Type, &a)
		all = append(all, rec)
		if le.To.Terminal() {
			delete(r.known, le.TraceID)
		}
	}
	for _, raw := range line.Notes {
		n, err := tga.DecodeNote(raw)
		if err != nil {
			return nil, err
		}
		rec, err := r.record(ctx, line.Cursor, n.TraceID)
		if err != nil {
			return nil, err
		}
		rec.ID, rec.Time, rec.Digest = fmt.Sprintf("%s:n%d", n.TraceID, n.Number), n.TS, n.Digest
		rec.Action, rec.By = "note."+string(n.Kind), n.Who
		all = append(all, rec)
	}
	return all, nil
}

// step says what an entry is.
func (r *Record) step(kind tga.ArtifactType, a *artifact) {
	switch kind {
	case tga.RequestType:
		r.Action, r.By = "request", r.Caller
	case tga.DecisionType:
		r.Action, r.Outcome, r.By = "decision", a.Decision, a.meta(runtime.MetaApprovers)
	case tga.CallType:
		r.Action = "call"
	case tga.EffectType:
		r.Action, r.Outcome, r.Class, r.Code = "effect", a.Outcome.Status, a.meta(tga.MetaOutcomeClass), a.Outcome.Error.Code
		r.ServedFrom = a.meta(tga.MetaReplayedFrom)
		if r.By = a.meta(tga.MetaResolver); r.By == "" {
			r.By = a.meta(tga.MetaFinishedBy)
		}
	}
}

// record is a record with what is known of its trace's request.
func (r *Reader) record(ctx context.Context, cursor string, trace tga.ID) (Record, error) {
	q, ok := r.known[trace]
	if !ok {
		t, err := r.trace(ctx, trace)
		if err != nil {
			return Record{}, err
		}
		var a artifact
		if len(t.Entries) > 0 {
			if a, err = parse(t.Entries[0].Artifact); err != nil {
				return Record{}, err
			}
		}
		q = requestOf(&a)
		q.namespace = t.Namespace
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
