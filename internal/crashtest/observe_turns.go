package crashtest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// SeenTurn is what a store shows of one turn.
type SeenTurn struct {
	Records []turn.Record
	Err     error // its journal could not be read
	turnBodies
}

// turnBodies are the parts of a turn's records that the properties need, read without the
// code under test.
type turnBodies struct {
	Agent    string    `json:"agent_name"`
	Session  string    `json:"session_id"`
	Number   uint32    `json:"turn_number"`
	Scope    string    `json:"state_scope"`
	Lent     bool      `json:"lent"`
	Parent   *struct{} `json:"parent"`
	Previous *tga.ID   `json:"previous"`

	asked  map[string]bool // keys of the questions
	calls  []askedCall     // what the model asked for
	change []state.Change  // of PERSIST
	next   *tga.ID
	ended  bool
	waits  bool
}

// askedCall is a tool call that a model asked for.
type askedCall struct {
	Name string `json:"name"`
	Args string `json:"arguments"`
}

// turnsSeen is what a store shows of turns.
type turnsSeen struct {
	Turns    map[tga.ID]*SeenTurn
	Open     []turn.OpenTurn // the index
	Outcomes map[tga.ID]string
	States   map[string]map[string]json.RawMessage // by scope
	Wanted   *Ends
	Finished bool // every caller has asked to the end
}

// Ends are the outcomes and states at the end of a scenario.
type Ends struct {
	Outcomes map[tga.ID]string
	States   map[string]map[string]json.RawMessage
}

// observeTurns reads every turn that the journal or the index names, and those that
// follow them.
func (p *Process) observeTurns(ctx context.Context) (*turnsSeen, error) {
	s := &turnsSeen{Turns: map[tga.ID]*SeenTurn{}, Outcomes: map[tga.ID]string{}, States: map[string]map[string]json.RawMessage{}, Wanted: p.undisturbed}
	var err error
	if s.Open, err = turn.ListOpen(ctx, p.DB); err != nil {
		return nil, err
	}
	var ids []tga.ID
	for _, e := range p.World.Journal() {
		if e.Kind == Journaled {
			ids = append(ids, e.Trace)
		}
	}
	for _, o := range s.Open {
		ids = append(ids, o.InteractionID)
	}
	for len(ids) > 0 {
		id := ids[0]
		ids = ids[1:]
		if s.Turns[id] != nil {
			continue
		}
		t := &SeenTurn{turnBodies: turnBodies{asked: map[string]bool{}}}
		if t.Records, t.Err = turn.Records(ctx, p.DB, id); tga.CodeOf(t.Err) == tga.NotFound {
			continue
		}
		s.Turns[id] = t
		if t.Err == nil {
			t.Err = t.readBodies()
		}
		if t.next != nil {
			ids = append(ids, *t.next)
		}
	}
	for id, t := range s.Turns {
		if t.Err == nil && t.Previous == nil && t.Parent == nil && s.over(id) {
			// The invocation has ended, so Resume only reads journals and runs nothing.
			res, err := p.Turns.Resume(ctx, id)
			if err != nil {
				return nil, err
			}
			s.Outcomes[id] = outcomeOf(res)
		}
		if _, read := s.States[t.Scope]; t.Scope != "" && !read {
			if s.States[t.Scope], err = p.scopeState(ctx, state.Scope{Mode: state.Session, ID: t.Scope}); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// waitsForNothing reports whether a turn waits for a call that has ended since. Then the next
// recovery continues the turn.
func (s *turnsSeen) waitsForNothing(o *Observed) bool {
	return slices.ContainsFunc(s.Open, func(t turn.OpenTurn) bool {
		call := o.Traces[t.TraceID]
		return call != nil && call.state().Terminal()
	})
}

// over reports whether all turns from one on have ended.
func (s *turnsSeen) over(id tga.ID) bool {
	for {
		t := s.Turns[id]
		if t == nil || t.Err != nil || !t.ended {
			return false
		}
		if t.next == nil {
			return true
		}
		id = *t.next
	}
}

// readBodies reads what the properties need from the records.
func (t *SeenTurn) readBodies() error {
	for _, r := range t.Records {
		var err error
		switch {
		case r.Kind == turn.Asked:
			var b struct {
				Question struct {
					Key string `json:"key"`
				} `json:"question"`
			}
			err = json.Unmarshal(r.Body, &b)
			t.asked[b.Question.Key] = true
		case r.Kind == turn.Parked, r.Kind == turn.Decided:
			t.waits = r.Kind == turn.Parked
		case r.Kind == turn.Failed, r.Kind == turn.Resumed:
			t.waits = false
		default:
			t.waits = false
			err = t.readDone(r)
		}
		if err != nil {
			return tga.Errorf(tga.StateChecksumMismatch, "record %d: %w", r.Number, err)
		}
	}
	return nil
}

func (t *SeenTurn) readDone(r turn.Record) error {
	switch r.Phase {
	case turn.Init:
		return json.Unmarshal(r.Body, &t.turnBodies)
	case turn.Infer:
		var b struct {
			Answer struct {
				Message struct {
					Calls []askedCall `json:"tool_calls"`
				} `json:"message"`
			} `json:"answer"`
		}
		err := json.Unmarshal(r.Body, &b)
		t.calls = b.Answer.Message.Calls
		return err
	case turn.Persist:
		var b struct {
			Transaction state.Transaction `json:"transaction"`
		}
		err := json.Unmarshal(r.Body, &b)
		t.change = b.Transaction.Changes
		return err
	case turn.Emit:
		var b struct {
			Next *tga.ID `json:"next"`
		}
		t.ended = true
		err := json.Unmarshal(r.Body, &b)
		t.next = b.Next
		return err
	}
	return nil
}

// ends returns the outcomes and states, for comparison with a run that crashes.
func (p *Process) ends() (*Ends, error) {
	s, err := p.observeTurns(context.Background())
	if err != nil {
		return nil, err
	}
	return &Ends{Outcomes: s.Outcomes, States: s.States}, nil
}

// sameValue compares values of the state. The order of elements that were added at once does
// not count.
func sameValue(key string, a, b json.RawMessage) bool {
	if key != "at once" {
		return string(a) == string(b)
	}
	return slices.Equal(elements(a), elements(b))
}

func elements(list json.RawMessage) []string {
	var all []json.RawMessage
	if json.Unmarshal(list, &all) != nil {
		return []string{string(list)}
	}
	var out []string
	for _, v := range all {
		out = append(out, string(v))
	}
	slices.Sort(out)
	return out
}

// keyParts parses the key of a question or a tool call: its turn, its kind ("tool" for a
// call), and its number.
func keyParts(key string) (id tga.ID, what, n string, ok bool) {
	rest, mine := strings.CutPrefix(key, "turn/")
	parts := strings.Split(rest, "/")
	if !mine || len(parts) != 3 {
		return id, "", "", false
	}
	id, err := tga.ParseID(parts[0])
	return id, parts[1], parts[2], err == nil
}

// sameTurns says what a second recovery changed about turns.
func sameTurns(a, b *turnsSeen, differ func(id tga.ID, what string)) {
	for id, s := range a.Turns {
		t := b.Turns[id]
		if t == nil || len(s.Records) != len(t.Records) {
			differ(id, "the number of its turn's records")
			continue
		}
		for i := range s.Records {
			if s.Records[i].Digest != t.Records[i].Digest {
				differ(id, "a record of its turn")
			}
		}
	}
	if len(a.Turns) != len(b.Turns) {
		differ(tga.ID{}, "the number of turns")
	}
	for scope, values := range a.States {
		if !maps.EqualFunc(values, b.States[scope], func(x, y json.RawMessage) bool { return string(x) == string(y) }) {
			differ(tga.ID{}, "the state of "+scope)
		}
	}
}

// recordPlace is a record of a turn in an append.
type recordPlace struct {
	turn   tga.ID
	number uint64
	digest tga.Digest
}

// recordsOf are the records of turns in an append: items of a stream that begin with a
// digest of what follows it. Items of sessions, the index and the state do not.
func recordsOf(e Event) (out []recordPlace) {
	for _, a := range e.Batch.Attachments {
		p := recordPlace{}
		if a.Kind != chain.AttachStream || len(a.Value) <= len(p.digest) {
			continue
		}
		var err error
		if p.turn, p.number, err = keyspace.ParseStream(a.Key); err != nil {
			continue // the store refuses it
		}
		copy(p.digest[:], a.Value)
		if p.digest == tga.Sum(a.Value[len(p.digest):]) && p.number > 0 {
			out = append(out, p)
		}
	}
	return out
}
