// Package chaintest makes valid traces for tests: artifacts, entries and notes with correct
// links and digests. Ids and times are functions of a seed, so that a golden file made from
// them does not change.
package chaintest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Start is the ts of a trace's first artifact, 2026-01-15T19:00:00.000Z. Each later
// artifact is a second after the one before.
const Start tga.Millis = 1768503600000

// ID returns a UUIDv7 that depends on seed and n alone.
func ID(seed, n uint64) tga.ID {
	sum := tga.Sum(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, seed), n))
	var id tga.ID
	copy(id[:], sum[:16])
	id[6] = 0x70 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	return id
}

// Options describe the trace that [New] makes. The zero value is a finished trace of four
// entries without documents and notes.
type Options struct {
	Seed      uint64
	Server    string     // "" = payments
	Tool      string     // "" = charge
	At        tga.Millis // of the request; 0 = Start
	Verdict   string     // of the decision; "" = APPROVE; DENY ends the trace
	Status    string     // of the effect; "" = SUCCESS
	Calls     tga.Meta   // more of the call's meta
	Entries   int        // stop after so many; 0 = all
	Key       string     // idempotency_key of request and call; "" = the call's own
	Token     string     // minted capability, a compact JWS
	Meta      tga.Meta   // of the request
	Licence   string     // of the call's attempt; "" = the log does not say it
	Args      string     // canonical JSON object; "" = {"amount":12}
	Documents []chain.Document
	Notes     int
}

// Trace is a trace under test, as a store would hold it.
type Trace struct {
	ID      tga.ID
	Entries []chain.Entry
	Notes   []tga.Note
	State   *chain.Trace // the fold of entries and notes
}

// New makes a trace. Every combination of options gives a valid trace, so New panics on an
// error.
func New(o Options) *Trace {
	t := &Trace{ID: ID(o.Seed, 0)}
	t.State = chain.NewTrace(t.ID)
	for _, a := range Artifacts(o) {
		var documents []chain.Document
		if a.Type == tga.EffectType {
			documents = o.Documents
		}
		t.Append(a, documents)
	}
	for n := range o.Notes {
		t.Note(chain.NewNote{Kind: tga.NoteAttempt, Who: "tgad", Body: fmt.Appendf(nil, `{"attempt":%d}`, n+2)})
	}
	return t
}

// Append appends one artifact to the trace.
func (t *Trace) Append(a *tga.Artifact, documents []chain.Document) {
	e, err := t.State.Link(a, a.TS)
	must(err)
	entry := chain.Entry{
		LogEntry: e, Preimage: e.AppendPreimage(nil), Artifact: a, Documents: documents,
		Committed: a.TS + 3, Epoch: 1<<32 | 7,
	}
	must(t.State.Apply(&entry))
	t.Entries = append(t.Entries, entry)
}

// Note appends one note to the trace.
func (t *Trace) Note(n chain.NewNote) {
	note, err := t.State.LinkNote(n, Start+5000)
	must(err)
	must(t.State.ApplyNote(&note))
	t.Notes = append(t.Notes, note)
}

// AllEntries yields the trace's entries as a store does.
func (t *Trace) AllEntries() iter.Seq2[chain.Entry, error] { return Seq2(t.Entries) }

// AllNotes yields the trace's notes as a store does.
func (t *Trace) AllNotes() iter.Seq2[tga.Note, error] { return Seq2(t.Notes) }

// Seq2 yields the items without error.
func Seq2[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// Artifacts makes the sealed artifacts of a trace: request, decision, call, effect, or
// as many of them as o asks for.
func Artifacts(o Options) []*tga.Artifact {
	o.Args = cmp.Or(o.Args, `{"amount":12}`)
	proposal := tga.Proposal{ToolServer: orElse(o.Server, "payments"), ToolName: orElse(o.Tool, "charge"), Args: []byte(o.Args)}
	common := func(t tga.ArtifactType, n uint64) *tga.Artifact {
		return &tga.Artifact{
			Type: t, ID: ID(o.Seed, n), TraceID: ID(o.Seed, 0), PlanID: ID(o.Seed, 100),
			TS:   cmp.Or(o.At, Start) + tga.Millis(1000*(n-1)),
			Meta: tga.Meta{tga.MetaNonce: fmt.Sprintf("%032x", n)},
		}
	}
	request := common(tga.RequestType, 1)
	for name, value := range o.Meta {
		request.Meta[name] = value
	}
	request.Request = &tga.ActionRequest{
		AgentID: ID(o.Seed, 101), RiskLevel: tga.RiskWrite, Intent: "charge the customer once",
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, Proposal: proposal, IdempotencyKey: o.Key,
	}
	must(request.Seal())

	decision := common(tga.DecisionType, 2)
	decision.Decision = &tga.SupervisorDecision{
		RequestID: request.ID, RequestDigest: request.Digest, Decision: orElse(o.Verdict, tga.Approve),
		Rationale: "allowed by rule 1", MintedCapability: o.Token,
	}
	must(decision.Seal())

	call := common(tga.CallType, 3)
	call.Call = &tga.ToolCall{
		DecisionID: decision.ID, DecisionDigest: decision.Digest, Call: proposal,
		IdempotencyKey: orElse(o.Key, call.ID.String()), ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
	}
	for name, value := range o.Calls {
		call.Meta[name] = value
	}
	if o.Licence != "" {
		call.Meta[tga.MetaLicence] = o.Licence
	}
	if o.Token != "" {
		call.Call.CapabilityDigest = tga.Sum([]byte(o.Token))
	}
	must(call.Seal())

	effect := common(tga.EffectType, 4)
	effect.Effect = &tga.ToolEffect{
		CallID: call.ID, CallDigest: call.Digest, BatchTotalBytes: -1,
		Outcome:        tga.Outcome{Status: orElse(o.Status, tga.StatusSuccess), Summary: "done"},
		DocumentHashes: Hashes(o.Documents),
	}
	if effect.Effect.Outcome.Status != tga.StatusSuccess {
		effect.Effect.Outcome.Error = &tga.OutcomeError{Code: "TOOL_ERROR", Message: "it said no"}
	}
	must(effect.Seal())

	all := []*tga.Artifact{request, decision, call, effect}
	if decision.Decision.Decision != tga.Approve {
		all = all[:2]
	}
	if o.Entries > 0 {
		all = all[:min(o.Entries, len(all))]
	}
	return all
}

// Hashes returns the document_hashes that bind documents, nil for none.
func Hashes(documents []chain.Document) []tga.DocumentHash {
	var hashes []tga.DocumentHash
	for _, d := range documents {
		hashes = append(hashes, tga.DocumentHash{Pointer: d.Pointer, Hash: tga.Sum(d.Data), SizeBytes: int64(len(d.Data))})
	}
	return hashes
}

// Erase returns e without its artifact and documents, as an erasure leaves it in the
// store.
func Erase(e chain.Entry) chain.Entry {
	e.Artifact, e.Documents = nil, nil
	return e
}

func orElse(s, other string) string {
	return cmp.Or(s, other)
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("chaintest: %v", err))
	}
}
