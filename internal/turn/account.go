package turn

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Listed is a turn in a list of all turns.
type Listed struct {
	OpenTurn
	Ended, Failed bool
	// Err is why the turn's journal cannot be read. Then only the turn's id is known.
	Err error
}

// Account tells people what the journal of a turn says.
type Account struct {
	Listed
	AgentID, AgentVersion string
	Previous, Next        tga.ID  // turns of the chain before and after it; zero for none
	Parent                *Parent // the turn that delegated to it; nil for none
	Scope                 string  // of its state
	Isolation             state.Isolation
	Usage                 Usage // by INFER's record: zero for a turn that has none, also if it asked
	Steps                 []Step
}

// Step is a record of a journal, with the content of its body. Messages, and what tools were
// asked and answered, come from outside and are not to be trusted.
type Step struct {
	Record
	Said        []message.Message // the input, the model's answer, or the answers of tools
	Tools       []string
	Warnings    []Warning
	Findings    []message.Finding
	Asked       *Question
	Inferences  []Inference
	Executions  []ToolExecution // for a turn that failed: the calls whose effects stand
	Delegations []DelegationTiming
	Transaction *state.Transaction
	Failure     *Failure // the failure that ended the turn, or for which it waits for a person
	TraceID     tga.ID   // the call that it waits for
	Child       tga.ID   // the other agent's turn that it waits for
	Decided     *Decision
}

// Tell reads the journal of a turn, checked link by link. Errors are those of [Records].
func Tell(ctx context.Context, store runtime.AttachmentReader, interaction tga.ID) (*Account, error) {
	records, ops, err := readStream(ctx, store, interaction)
	if err == nil && len(records) == 0 {
		err = tga.Errorf(tga.NotFound, "no turn %s", interaction)
	}
	if err != nil {
		return nil, err
	}
	t, err := foldRecords(interaction, records, ops)
	if err != nil {
		return nil, err
	}
	a := &Account{
		Listed: t.toList(), AgentID: t.init.AgentID, AgentVersion: t.init.AgentVersion, Parent: t.init.Parent,
		Scope: t.init.ScopeID, Isolation: t.init.Isolation, Usage: t.usage(),
	}
	if p := t.init.Previous; p != nil {
		a.Previous = *p
	}
	if t.ended != nil && t.ended.Next != nil {
		a.Next = *t.ended.Next
	}
	for _, r := range records {
		s := Step{Record: r}
		if err := s.read(); err != nil {
			return nil, err
		}
		a.Steps = append(a.Steps, s)
	}
	return a, nil
}

// read decodes from the body what people are shown.
func (s *Step) read() error {
	var (
		asked   askedBody
		failed  failedBody
		parked  parkedBody
		decided decidedBody
	)
	switch s.Kind {
	case Asked:
		s.Asked = &asked.Question
		return s.Record.read(&asked)
	case Failed:
		err := s.Record.read(&failed)
		s.Failure, s.Executions = &failed.Failure, failed.Effects
		return err
	case Parked:
		err := s.Record.read(&parked)
		s.Failure = &parked.Failure
		if parked.TraceID != nil {
			s.TraceID = *parked.TraceID
		}
		if parked.Child != nil {
			s.Child = *parked.Child
		}
		return err
	case Decided:
		err := s.Record.read(&decided)
		s.Decided = &Decision{Who: decided.Who, Action: decided.Action, Value: decided.Value, Note: decided.Note}
		return err
	case Done:
		return s.readPhase()
	}
	return nil
}

// readPhase does the same for the record that ends a phase.
func (s *Step) readPhase() error {
	var (
		normalized normalizeBody
		resolved   resolveBody
		inferred   inferBody
		executed   executeBody
		persisted  persistBody
	)
	var err error
	switch s.Phase {
	case Normalize:
		err = s.Record.read(&normalized)
		s.Said, s.Findings = normalized.Messages, normalized.Findings
	case Resolve:
		err = s.Record.read(&resolved)
		for _, t := range resolved.Tools {
			s.Tools = append(s.Tools, t.Name)
		}
		s.Warnings = resolved.Warnings
	case Infer:
		err = s.Record.read(&inferred)
		s.Inferences, s.Said = inferred.Inferences, []message.Message{inferred.Answer.Said}
	case Execute:
		err = s.Record.read(&executed)
		s.Executions, s.Delegations, s.Said = executed.Executions, executed.Delegations, executed.Messages
		if executed.Handoff != nil {
			s.Said = append(s.Said, *executed.Handoff)
		}
	case Persist:
		err = s.Record.read(&persisted)
		if !persisted.Transaction.ID.IsZero() {
			s.Transaction = &persisted.Transaction
		}
	}
	return err
}

func (t *turn) toList() Listed {
	return Listed{OpenTurn: t.listed(), Ended: t.ended != nil, Failed: t.failed != nil}
}

// List returns the turns of a store, also those that have ended, oldest first. It reads every
// stream of the store. A turn whose journal does not verify is listed with the reason.
func List(ctx context.Context, store runtime.AttachmentReader) (all []Listed, err error) {
	var now journalSeen
	end := func() {
		if now.is {
			all = append(all, now.listed())
		}
	}
	for a, err := range store.Attachments(ctx, chain.AttachStream, nil) {
		if err != nil {
			return nil, err
		}
		stream, item, err := keyspace.ParseStream(a.Key)
		if err != nil {
			return nil, err
		}
		if stream != now.id {
			end()
			now = journalSeen{id: stream, is: item == 1 && isRecord(a.Value)}
		}
		now.take(item, a.Value)
	}
	end()
	return all, nil
}

// journalSeen is a stream that List reads, as far as it is a turn's journal.
type journalSeen struct {
	id      tga.ID
	is      bool
	records []Record
	err     error
}

// take reads the next item of the stream.
func (j *journalSeen) take(item uint64, value []byte) {
	if !j.is || j.err != nil || item >= keyspace.OpsItem {
		return
	}
	var prev tga.Digest
	if n := len(j.records); n > 0 {
		prev = j.records[n-1].Digest
	}
	r, err := readRecord(j.id, uint64(len(j.records))+1, prev, value)
	if err == nil && item != r.Number {
		err = tga.Errorf(tga.StateSequenceGap, "turn %s: record %d where %d follows", j.id, item, r.Number)
	}
	j.records, j.err = append(j.records, r), err
}

// listed is what a list shows of it.
func (j *journalSeen) listed() Listed {
	if j.err == nil {
		t, err := foldRecords(j.id, j.records, nil)
		if err == nil {
			return t.toList()
		}
		j.err = err
	}
	return Listed{OpenTurn: OpenTurn{InteractionID: j.id}, Err: j.err}
}

// isRecord distinguishes a record of a journal from values that other owners keep in their
// streams. A value that is JSON from its first byte on is not JSON without its first 32 bytes.
func isRecord(value []byte) bool {
	const digest = len(tga.Digest{})
	return len(value) > digest && bytes.Contains(value[digest:], []byte(`"schema_id":"`+RecordSchema+`"`)) && json.Valid(value[digest:])
}
