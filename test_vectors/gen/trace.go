package main

import (
	"encoding/json"
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
)

// Ids and times are counted from fixed values, so that every run writes the same files.
const baseTS = tga.Millis(1768503600000) // 2026-01-15T19:00:00.000Z

func id(kind, n int) tga.ID {
	return must(tga.ParseID(fmt.Sprintf("01936a8b-4c2d-7%03x-8000-%012x", kind, n)))
}

// Kinds of ids: the middle digits of an id say what it identifies.
const (
	idTrace = 1 + iota
	idPlan
	idRequest
	idDecision
	idCall
	idEffect
	idAgent
)

// trace builds one trace: artifacts, entries and notes, chained.
type trace struct {
	n         int
	ts        tga.Millis
	artifacts []*tga.Artifact
	entries   []tga.LogEntry
	notes     []tga.Note
}

func newTrace(n int) *trace { return &trace{n: n, ts: baseTS + tga.Millis(n)*60_000} }

func (t *trace) id() tga.ID { return id(idTrace, t.n) }

func (t *trace) tick() tga.Millis {
	t.ts += 250
	return t.ts
}

func (t *trace) nonce() string { return fmt.Sprintf("%032x", 0xabc000+t.n*16+len(t.artifacts)) }

func (t *trace) artifact(kind tga.ArtifactType, own tga.ID, meta tga.Meta) *tga.Artifact {
	if meta == nil {
		meta = tga.Meta{}
	}
	meta[tga.MetaNonce] = t.nonce()
	return &tga.Artifact{Type: kind, ID: own, TraceID: t.id(), PlanID: id(idPlan, t.n), TS: t.tick(), Meta: meta}
}

func (t *trace) last() *tga.Artifact { return t.artifacts[len(t.artifacts)-1] }

func (t *trace) add(a *tga.Artifact) {
	check(a.Seal())
	t.artifacts = append(t.artifacts, a)
	var from tga.State
	prev := tga.Digest{}
	if n := len(t.entries); n > 0 {
		from, prev = t.entries[n-1].To, t.entries[n-1].Digest
	}
	to, ok := tga.Next(from, a.Type, a.Verdict())
	if !ok {
		panic("no such edge")
	}
	if from == tga.None {
		from = tga.Pending
	}
	e := tga.LogEntry{
		TraceID: t.id(), Seq: uint64(len(t.entries) + 1), Prev: prev, TS: a.TS, From: from, To: to,
		Type: a.Type, ArtifactID: a.ID, ArtifactDigest: a.Digest,
	}
	switch a.Type {
	case tga.RequestType:
		e.IdempotencyKey = a.Request.IdempotencyKey
	case tga.CallType:
		e.ToolCallID, e.IdempotencyKey = a.ID, a.Call.IdempotencyKey
	case tga.EffectType:
		e.ToolCallID, e.IdempotencyKey = a.Effect.CallID, t.key()
	}
	e.Seal()
	t.entries = append(t.entries, e)
}

func (t *trace) key() string { return fmt.Sprintf("golden-%d", t.n) }

func (t *trace) request(args string) *trace {
	a := t.artifact(tga.RequestType, id(idRequest, t.n), tga.Meta{tga.MetaNamespace: "golden"})
	a.Request = &tga.ActionRequest{
		AgentID: id(idAgent, 1), RiskLevel: tga.RiskWrite, Intent: "Charge the customer for order 7.",
		Resources:      []tga.Resource{{Kind: "service", ID: "payments"}, {Kind: "db", ID: "orders/7"}},
		Proposal:       tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(args)},
		IdempotencyKey: t.key(),
	}
	t.add(a)
	return t
}

func (t *trace) decide(decision string) *trace {
	request := t.last()
	a := t.artifact(tga.DecisionType, id(idDecision, t.n), nil)
	a.Decision = &tga.SupervisorDecision{
		RequestID: request.ID, RequestDigest: request.Digest, Decision: decision,
		Rationale: "Rule 3 of the payments policy.", PolicyHash: tga.Sum([]byte("policy")),
	}
	t.add(a)
	return t
}

func (t *trace) call(attempt string) *trace { return t.callUnder(attempt, "") }

// callUnder is call with the licence under which attempt 1 is made.
func (t *trace) callUnder(attempt, licence string) *trace {
	decision := t.last()
	meta := tga.Meta{}
	if attempt != "" {
		meta[tga.MetaAttempt] = attempt
	}
	if licence != "" {
		meta[tga.MetaLicence] = licence
	}
	a := t.artifact(tga.CallType, id(idCall, t.n), meta)
	a.Call = &tga.ToolCall{
		DecisionID: decision.ID, DecisionDigest: decision.Digest,
		Call: t.artifacts[0].Request.Proposal, IdempotencyKey: t.key(), ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
	}
	t.add(a)
	return t
}

func (t *trace) effect(outcome tga.Outcome, class string, result string) *trace {
	call := t.last()
	a := t.artifact(tga.EffectType, id(idEffect, t.n), tga.Meta{tga.MetaOutcomeClass: class})
	a.Effect = &tga.ToolEffect{
		CallID: call.ID, CallDigest: call.Digest, Outcome: outcome, BatchTotalBytes: -1, ContentHashAlg: "sha256",
		DocumentHashes: []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: tga.Sum([]byte(result)), SizeBytes: int64(len(result))}},
	}
	t.add(a)
	return t
}

func (t *trace) note(kind tga.NoteKind, body string) *trace {
	n := tga.Note{
		TraceID: t.id(), Number: uint32(len(t.notes) + 1), HeadDigest: t.entries[len(t.entries)-1].Digest,
		TS: t.tick(), Kind: kind, Who: "runtime", Body: must(tga.Canonicalize([]byte(body), tga.Limits{})),
	}
	if len(t.notes) > 0 {
		n.Prev = t.notes[len(t.notes)-1].Digest
	}
	n.Seal()
	t.notes = append(t.notes, n)
	return t
}

func (t *trace) state() tga.ExecutionState {
	s := tga.ExecutionState{TraceID: t.id(), PlanID: id(idPlan, t.n)}
	if n := len(t.entries); n > 0 {
		last := t.entries[n-1]
		s.Current, s.LastSeq, s.LastDigest = last.To, last.Seq, last.Digest
	}
	s.Seal()
	return s
}

func (t *trace) checkpoint() tga.Checkpoint {
	s := t.state()
	c := tga.Checkpoint{TraceID: s.TraceID, Seq: s.LastSeq, TS: t.tick(),
		State: tga.CheckpointState{TraceID: s.TraceID, PlanID: s.PlanID, Current: s.Current, LastSeq: s.LastSeq, LastDigest: s.LastDigest}}
	c.Seal()
	return c
}

func rawEntries(entries []tga.LogEntry) []json.RawMessage {
	raw := make([]json.RawMessage, len(entries))
	for i := range entries {
		raw[i] = entries[i].AppendCanonical(nil)
	}
	return raw
}

func rawArtifacts(artifacts []*tga.Artifact) []json.RawMessage {
	raw := make([]json.RawMessage, len(artifacts))
	for i, a := range artifacts {
		raw[i] = a.Canonical
	}
	return raw
}

func rawNotes(notes []tga.Note) []json.RawMessage {
	raw := make([]json.RawMessage, len(notes))
	for i := range notes {
		raw[i] = notes[i].AppendCanonical(nil)
	}
	return raw
}
