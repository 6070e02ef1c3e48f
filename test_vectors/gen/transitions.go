package main

import (
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
)

type transitionFile struct {
	Description string     `json:"description"`
	Sequences   []sequence `json:"sequences"`
	Recovery    []recovery `json:"recovery"`
}

// sequence is a list of entries for an empty trace. The entries before Refused.At are
// accepted, and the entry at Refused.At is refused.
type sequence struct {
	Name    string            `json:"name"`
	Entries []json.RawMessage `json:"entries"`
	State   string            `json:"state"` // after the entries that are accepted
	Refused *refusal          `json:"refused"`
}

type refusal struct {
	At   int    `json:"at"` // place in entries, from 1
	Code string `json:"code"`
}

type recovery struct {
	Name      string            `json:"name"`
	Artifacts []json.RawMessage `json:"artifacts"`
	Entries   []json.RawMessage `json:"entries"`
	Notes     []json.RawMessage `json:"notes"`
	Profile   string            `json:"profile"`
	Licence   *string           `json:"licence"` // null: the operator set none
	Attempts  int               `json:"attempts"`
	Expect    recovered         `json:"expect"`
}

type recovered struct {
	Action         string `json:"action"`
	Sends          int    `json:"sends"` // by this recovery
	ToolCallID     string `json:"tool_call_id"`
	IdempotencyKey string `json:"idempotency_key"`
	State          string `json:"state_before"`
}

// What a recovery does with a trace.
const (
	actionReplay     = "REPLAY_ONLY_NO_DISPATCH"
	actionRedispatch = "RE_DISPATCH_SAME_TOOL_CALL"
	actionDoubt      = "IN_DOUBT"
)

// link is one entry of a sequence. An entry is sealed after it was changed, so that it has
// only the named fault.
type link struct {
	kind     tga.ArtifactType
	from, to tga.State
	change   func(*tga.LogEntry)
	after    func(*tga.LogEntry) // change after sealing
}

var (
	genesis  = link{kind: tga.RequestType, from: tga.Pending, to: tga.Pending}
	approved = link{kind: tga.DecisionType, from: tga.Pending, to: tga.Authorized}
	refused  = link{kind: tga.DecisionType, from: tga.Pending, to: tga.Denied}
	called   = link{kind: tga.CallType, from: tga.Authorized, to: tga.Executing}
	done     = link{kind: tga.EffectType, from: tga.Executing, to: tga.Completed}
	failed   = link{kind: tga.EffectType, from: tga.Executing, to: tga.Failed}
)

func (l link) with(change func(*tga.LogEntry)) link {
	l.change = change
	return l
}

func chainOf(links []link) []tga.LogEntry {
	var entries []tga.LogEntry
	prev := tga.Digest{}
	for i, l := range links {
		e := tga.LogEntry{
			TraceID: id(idTrace, 9), Seq: uint64(i + 1), Prev: prev, TS: baseTS + tga.Millis(i), From: l.from, To: l.to,
			Type: l.kind, ArtifactID: id(idRequest, i+1), ArtifactDigest: tga.Sum([]byte{byte(i)}),
		}
		if l.kind == tga.CallType || l.kind == tga.EffectType {
			e.ToolCallID, e.IdempotencyKey = id(idCall, 9), "golden-9"
		}
		if l.change != nil {
			l.change(&e)
		}
		e.Seal()
		if l.after != nil {
			l.after(&e)
		}
		prev = e.Digest
		entries = append(entries, e)
	}
	return entries
}

func accepted(name string, links ...link) sequence {
	return sequence{Name: name, Entries: rawEntries(chainOf(links)), State: links[len(links)-1].to.String()}
}

// rejected is a sequence whose last entry is refused.
func rejected(name string, code tga.Code, links ...link) sequence {
	s := sequence{Name: name, Entries: rawEntries(chainOf(links)), Refused: &refusal{len(links), string(code)}}
	if n := len(links); n > 1 {
		s.State = links[n-2].to.String()
	}
	return s
}

func stateTransitions() transitionFile {
	skipToCall := link{kind: tga.CallType, from: tga.Pending, to: tga.Executing}
	skipToEnd := link{kind: tga.EffectType, from: tga.Pending, to: tga.Completed}
	noCallID := func(e *tga.LogEntry) { e.ToolCallID = tga.ID{} }
	return transitionFile{
		Description: "sequences: entries for an empty trace, complete and correctly digested but for the named fault; refused is null or says which entry is refused and why. " +
			"recovery: a log as a crash left it, and what recovery does with it. profile and licence are the operator's configuration, licence null where none is set; meta.licence of a call is the licence of its attempt, and where there is none the one of now decides; " +
			"attempts counts the sends made durable before the crash; sends are those that recovery makes.",
		Sequences: []sequence{
			accepted("success", genesis, approved, called, done),
			accepted("failure", genesis, approved, called, failed),
			accepted("denied", genesis, refused),
			accepted("pending", genesis),
			accepted("authorized", genesis, approved),
			accepted("executing", genesis, approved, called),

			rejected("skipped state: PENDING to EXECUTING", tga.StateInvalidTransition, genesis, skipToCall),
			rejected("skipped states: PENDING to COMPLETED", tga.StateInvalidTransition, genesis, skipToEnd),
			rejected("AUTHORIZED to COMPLETED", tga.StateInvalidTransition, genesis, approved, link{kind: tga.EffectType, from: tga.Authorized, to: tga.Completed}),
			rejected("backward edge: EXECUTING to AUTHORIZED", tga.StateInvalidTransition, genesis, approved, called, link{kind: tga.DecisionType, from: tga.Executing, to: tga.Authorized}),
			rejected("edge with the wrong artifact", tga.StateInvalidTransition, genesis, link{kind: tga.CallType, from: tga.Pending, to: tga.Authorized}),
			rejected("first entry is not a genesis", tga.StateInvalidTransition, approved),

			rejected("duplicate sequence", tga.StateSequenceGap, genesis, approved.with(func(e *tga.LogEntry) { e.Seq = 1 })),
			rejected("missing sequence", tga.StateSequenceGap, genesis, approved.with(func(e *tga.LogEntry) { e.Seq = 3 })),
			rejected("genesis with sequence 2", tga.StateSequenceGap, genesis.with(func(e *tga.LogEntry) { e.Seq = 2 })),

			rejected("tool_call without id", tga.MissingToolCallID, genesis, approved, called.with(noCallID)),
			rejected("tool_effect without id", tga.MissingToolCallID, genesis, approved, called, done.with(noCallID)),

			rejected("from_state disagrees: legal edge EXECUTING to COMPLETED in PENDING", tga.StateInvalidTransition, genesis, done),
			rejected("from_state disagrees: legal edge PENDING to DENIED in AUTHORIZED", tga.StateInvalidTransition, genesis, approved, refused),
			rejected("from_state disagrees: legal edge AUTHORIZED to EXECUTING in EXECUTING", tga.StateInvalidTransition, genesis, approved, called, called),

			rejected("genesis after the first entry", tga.StateInvalidTransition, genesis, genesis),
			rejected("genesis in AUTHORIZED", tga.StateInvalidTransition, genesis, approved, genesis),
			rejected("genesis after COMPLETED", tga.StateInvalidTransition, genesis, approved, called, done, genesis),
			rejected("effect after COMPLETED", tga.StateInvalidTransition, genesis, approved, called, done, failed),
			rejected("effect after FAILED", tga.StateInvalidTransition, genesis, approved, called, failed, done),
			rejected("decision after DENIED", tga.StateInvalidTransition, genesis, refused, approved),

			rejected("genesis with a previous digest", tga.StateChecksumMismatch, genesis.with(func(e *tga.LogEntry) { e.Prev[0] = 1 })),
			rejected("previous digest is another's", tga.StateChecksumMismatch, genesis, approved.with(func(e *tga.LogEntry) { e.Prev[31] ^= 1 })),
			rejected("entry digest is not the entry's", tga.StateChecksumMismatch, genesis, link{kind: tga.DecisionType, from: tga.Pending, to: tga.Authorized,
				after: func(e *tga.LogEntry) { e.TS++ }}),
		},
		Recovery: recoveries(),
	}
}

func recoveries() []recovery {
	const strict, spec = "strict", "spec-9.3"
	begin := func(attempt string) *trace {
		return newTrace(20).request(`{"amount":5}`).decide(tga.Approve).call(attempt)
	}
	under := func(licence string) *trace {
		return newTrace(20).request(`{"amount":5}`).decide(tga.Approve).callUnder("", licence)
	}
	marked := func(t *trace) *trace {
		return t.note(tga.NoteAttempt, `{"attempt":1,"epoch":"4294967297","executor":"runtime"}`)
	}
	settled := begin("").effect(tga.Outcome{Status: tga.StatusSuccess}, "side_effect_committed", `{}`)
	declined := begin("").effect(tga.Outcome{Status: tga.StatusError, Error: &tga.OutcomeError{Code: "TOOL_ERROR"}}, "permanent_failure", `{}`)

	row := func(name string, t *trace, profile, licence string, attempts int, action string, sends int) recovery {
		r := recovery{Name: name, Artifacts: rawArtifacts(t.artifacts), Entries: rawEntries(t.entries), Notes: rawNotes(t.notes),
			Profile: profile, Attempts: attempts, Expect: recovered{Action: action, Sends: sends, State: t.state().Current.String()}}
		if licence != "" {
			r.Licence = &licence
		}
		call := t.artifacts[2]
		r.Expect.ToolCallID, r.Expect.IdempotencyKey = call.ID.String(), call.Call.IdempotencyKey
		return r
	}
	return []recovery{
		row("crash after the call, before any attempt", begin(tga.AttemptApart), strict, "park", 0, actionRedispatch, 1),
		row("crash after the call, before any attempt, spec-9.3", begin(tga.AttemptApart), spec, "", 0, actionRedispatch, 1),
		row("crash after the call with its attempt, spec-9.3", begin(""), spec, "", 1, actionRedispatch, 1),
		row("crash after the call with its attempt, spec-9.3, explicit park", begin(""), spec, "park", 1, actionDoubt, 0),
		row("crash after the call with its attempt, no licence", begin(""), strict, "", 1, actionDoubt, 0),
		row("crash after the call with its attempt, park", begin(""), strict, "park", 1, actionDoubt, 0),
		row("crash after an attempt of its own, park", marked(begin(tga.AttemptApart)), strict, "park", 1, actionDoubt, 0),
		row("crash after the call with its attempt, dedupe_args", begin(""), strict, "dedupe_args", 1, actionRedispatch, 1),
		// A re-send needs both the licence of the attempt and the present licence.
		row("crash after the call with its attempt, dedupe_args then and now", under("dedupe_args"), strict, "dedupe_args", 1, actionRedispatch, 1),
		row("crash after the call with its attempt, dedupe_args was given later", under("park"), strict, "dedupe_args", 1, actionDoubt, 0),
		row("crash after the call with its attempt, dedupe_args was taken back", under("dedupe_args"), strict, "park", 1, actionDoubt, 0),
		row("crash after the call with its attempt, spec-9.3 was chosen later", under("park"), spec, "", 1, actionDoubt, 0),
		// The request says WRITE, so a licence for a read tool does not cover it.
		row("crash after the call with its attempt, read_only, call raised to write", begin(""), strict, "read_only", 1, actionDoubt, 0),
		row("crash after the effect", settled, strict, "park", 1, actionReplay, 0),
		row("crash after the effect, spec-9.3", settled, spec, "", 1, actionReplay, 0),
		row("crash after a failed effect, read_only", declined, strict, "read_only", 1, actionReplay, 0),
	}
}
