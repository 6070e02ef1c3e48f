package turn

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// turn is one turn that this process works on, under the lease of the turn's id. Its state
// follows from its records alone. Only [turn.apply] changes that state, both for a record that
// was just staged and for a record that was read back. So a turn that goes on after a crash has
// the state that it had before.
type turn struct {
	agent *Agent
	j     *journal

	init       *initBody
	normalized *normalizeBody
	resolved   *resolveBody
	asked      []askedBody
	inferred   *inferBody
	executed   *executeBody
	persisted  *persistBody
	failed     *failedBody
	ended      *emitBody

	waits    *parkedBody            // the newest Parked record without a decision
	decision map[string]decidedBody // the newest decision about each subject that has not waited since
	retries  map[string]int         // decisions to try again, by subject
	aborted  *Failure               // the failure for which a person aborted the turn
	paused   tga.Millis             // when the turn's time was paused; 0 = it is not paused, or the turn has no deadline
	waited   int64                  // total of earlier pauses, ms
	ops      []storedOps            // state operations of the turn's tools, as stored

	// These fields are not in the journal.
	entered tga.Millis   // when this process took up a turn that was parked
	tidies  bool         // begun by Run: after PERSIST it collects expired state
	orphan  bool         // the turn that delegated to it has ended: no turn follows
	caller  *turn        // the turn that delegated to this one and lends its state; else nil
	tx      *state.Tx    // nil until the state is loaded
	redone  map[int]bool // indices of the calls whose stored operations are in ops or were repeated
	// returned has the delegates on lent state that had succeeded when their operations were read.
	returned map[tga.ID]bool
	merges   merges
	seen     []Inference // outcomes of the questions, until INFER is recorded
	loaded   [2]time.Time
	saved    [2]time.Time
	next     *turn // the turn that follows in the chain
}

func (t *turn) id() tga.ID { return t.j.id }

// stage adds a record and applies it. Nothing outside the turn may depend on the record until it
// is committed.
func (t *turn) stage(at tga.Millis, phase Phase, kind Kind, body any) error {
	if err := t.resumed(); err != nil {
		return err
	}
	r, err := t.j.stage(at, phase, kind, body)
	if errors.Is(err, tga.LimitExceeded) || errors.Is(err, tga.ValidationError) {
		// A record that cannot be stored cannot be stored whenever the turn is resumed.
		return &Failure{Code: tga.CodeOf(err), Message: err.Error(), Err: err, Permanent: true}
	}
	if err != nil {
		return err
	}
	return t.apply(r)
}

// apply folds one record into the turn. It returns STATE_INVALID_TRANSITION for a record that
// cannot follow the records before it.
func (t *turn) apply(r Record) error {
	first := r.Number == 1
	fold := folds[r.Kind]
	if fold == nil || t.ended != nil || (r.Phase == Init) != first || first && r.Kind != Done || t.failed != nil && r.Phase != Emit {
		return r.illegal()
	}
	return fold(t, r)
}

// folds maps each kind of record to what it changes in the turn.
var folds = map[Kind]func(*turn, Record) error{
	Done:    (*turn).endPhase,
	Asked:   (*turn).ask,
	Failed:  (*turn).fail,
	Parked:  (*turn).park,
	Decided: (*turn).decide,
	Resumed: (*turn).resume,
}

// places maps each phase to the field for the body of the record that ends it.
var places = map[Phase]func(*turn) any{
	Init:      func(t *turn) any { t.init = &initBody{}; return t.init },
	Normalize: func(t *turn) any { t.normalized = &normalizeBody{}; return t.normalized },
	Resolve:   func(t *turn) any { t.resolved = &resolveBody{}; return t.resolved },
	Infer:     func(t *turn) any { t.inferred = &inferBody{}; return t.inferred },
	Execute:   func(t *turn) any { t.executed = &executeBody{}; return t.executed },
	Persist:   func(t *turn) any { t.persisted = &persistBody{}; return t.persisted },
	Emit:      func(t *turn) any { t.ended = &emitBody{}; return t.ended },
}

func (t *turn) endPhase(r Record) error {
	t.waits = nil
	if p, ok := t.phase(); !ok || p != r.Phase {
		return r.illegal()
	}
	return r.read(places[r.Phase](t))
}

func (t *turn) ask(r Record) error {
	var a askedBody
	if err := r.read(&a); err != nil {
		return err
	}
	t.asked = append(t.asked, a)
	return nil
}

func (t *turn) fail(r Record) error {
	t.failed, t.waits, t.paused = &failedBody{}, nil, 0
	return r.read(t.failed)
}

func (t *turn) park(r Record) error {
	if t.paused == 0 && t.init.Deadline != 0 {
		t.paused = r.TS
	}
	t.waits = &parkedBody{}
	err := r.read(t.waits)
	delete(t.decision, subject(r.Phase, t.waits.Subject, t.waits.Failure.Code)) // it was followed
	return err
}

func (t *turn) decide(r Record) error {
	if t.waits == nil {
		return r.illegal()
	}
	var d decidedBody
	if err := r.read(&d); err != nil {
		return err
	}
	of := subject(r.Phase, t.waits.Subject, t.waits.Failure.Code)
	t.decision[of] = d
	if d.Action == Retry {
		t.retries[of]++
	}
	if d.Action == Abort && r.Phase != Emit {
		t.aborted = &t.waits.Failure
	}
	t.waits = nil
	return nil
}

func (t *turn) resume(r Record) error {
	if t.paused == 0 {
		return r.illegal()
	}
	var b resumedBody
	if err := r.read(&b); err != nil {
		return err
	}
	t.paused, t.waited = 0, t.waited+max(b.WaitedMS, 0)
	return nil
}

// read decodes the body of a record.
func (r *Record) read(body any) error {
	if err := json.Unmarshal(r.Body, body); err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "record %d of turn %s: %w", r.Number, r.InteractionID, err)
	}
	return nil
}

func (r *Record) illegal() error {
	return tga.Errorf(tga.StateInvalidTransition, "record %d of turn %s: %s %s does not follow", r.Number, r.InteractionID, r.Phase, r.Kind)
}

// phase returns the phase that the turn is in: the first phase that has not ended. A turn that
// failed goes to EMIT. ok is false if the turn has ended.
func (t *turn) phase() (p Phase, ok bool) {
	switch {
	case t.ended != nil:
		return "", false
	case t.failed != nil:
		return Emit, true
	case t.init == nil:
		return Init, true
	case t.normalized == nil:
		return Normalize, true
	case t.resolved == nil:
		return Resolve, true
	case t.inferred == nil:
		return Infer, true
	case t.executed == nil:
		return Execute, true
	case t.persisted == nil:
		return Persist, true
	}
	return Emit, true
}

// subject names what a decision is about.
func subject(p Phase, of string, code tga.Code) string {
	return string(p) + "/" + of + "/" + string(code)
}

// messages returns the messages that the ended turn added to its conversation. A turn that failed
// added none, but the answers of tools that it was to read stay: their calls are in the turn
// before it. If no turn followed that would read the answers of its own tools, they are its too.
func (t *turn) messages() []message.Message {
	var out []message.Message
	if t.normalized != nil {
		out = append(out, t.normalized.Messages...)
	}
	if t.failed != nil {
		return slices.DeleteFunc(out, func(m message.Message) bool { return m.Role != message.Tool })
	}
	if t.inferred != nil {
		out = append(out, t.inferred.Answer.Said)
	}
	if t.executed == nil || t.ended == nil || t.ended.Next != nil || t.agent == nil {
		return out
	}
	filter, err := t.agent.Filter.Compile()
	if err != nil {
		return out
	}
	answers, _, err := filter.Apply(t.executed.Messages)
	if err != nil {
		return out // what a filter blocks is not part of a conversation, and neither is the call then
	}
	return append(out, answers...)
}

// usage sums the tokens of the turn's answered questions.
func (t *turn) usage() Usage {
	var u Usage
	for _, i := range t.inferences() {
		u.Input += i.Usage.Input
		u.Output += i.Usage.Output
		u.Total += i.Usage.Total
	}
	return u
}

func (t *turn) inferences() []Inference {
	if t.inferred != nil {
		return t.inferred.Inferences
	}
	return t.seen
}

// item returns the session item of the turn, which records its place in its session.
func (t *turn) item(ended bool) chain.Attachment {
	return itemOf(sessionStream(t.init.AgentName, t.init.SessionID), t.init.TurnNumber, sessionItem{
		InteractionID: t.id(), TokensBefore: t.init.TokensBefore, Tokens: t.usage().Total,
		Ended: ended, Failed: t.failed != nil,
	})
}
