package turn

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// turn is one turn at work, under the lease of its id. What it is follows from its
// records alone: [turn.apply] is the only place that changes it, for a record just staged
// and for one read back. So a turn that goes on after a crash is in the state it was in.
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

	waits    *parkedBody // the newest that was not decided
	decision map[string]decidedBody
	aborted  *Failure    // what a person ended the turn for
	paused   tga.Millis  // since when its time stands still; 0 = it does not, or has no end
	waited   int64       // how long it stood still before, ms
	ops      []storedOps // of the turn's tools, as they were stored

	// Of this process alone.
	entered tga.Millis   // when a turn that waits was taken up again
	tidies  bool         // begun by Run: its PERSIST collects what has expired
	orphan  bool         // who handed over is over: no turn follows
	caller  *turn        // that delegated to this one, where its state is lent
	tx      *state.Tx    // nil until the state is loaded
	redone  map[int]bool // indices of the calls whose stored operations are in ops, or repeated
	merges  merges
	seen    []Inference // what came of the questions, until INFER is recorded
	loaded  [2]time.Time
	saved   [2]time.Time
	next    *turn // the one that follows
}

func (t *turn) id() tga.ID { return t.j.id }

// stage adds a record and applies it. Nothing outside may depend on it until it is
// committed.
func (t *turn) stage(at tga.Millis, phase Phase, kind Kind, body any) error {
	if err := t.resumed(); err != nil {
		return err
	}
	r, err := t.j.stage(at, phase, kind, body)
	if errors.Is(err, tga.LimitExceeded) {
		// What is too large to be recorded is so again whenever the turn is resumed.
		return &Failure{Code: tga.LimitExceeded, Message: err.Error(), Err: err, Permanent: true}
	}
	if err != nil {
		return err
	}
	return t.apply(r)
}

// apply folds one record into the turn. STATE_INVALID_TRANSITION for a record that does not
// follow the ones before it.
func (t *turn) apply(r Record) error {
	first := r.Number == 1
	fold := folds[r.Kind]
	if fold == nil || t.ended != nil || (r.Phase == Init) != first || first && r.Kind != Done || t.failed != nil && r.Phase != Emit {
		return r.illegal()
	}
	return fold(t, r)
}

// folds has what a record of each kind does to the turn.
var folds = map[Kind]func(*turn, Record) error{
	Done:    (*turn).endPhase,
	Asked:   (*turn).ask,
	Failed:  (*turn).fail,
	Parked:  (*turn).park,
	Decided: (*turn).decide,
	Resumed: (*turn).resume,
}

// places has, for each phase, where the body of the record goes that ends it.
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
	return r.read(t.waits)
}

func (t *turn) decide(r Record) error {
	if t.waits == nil {
		return r.illegal()
	}
	var d decidedBody
	if err := r.read(&d); err != nil {
		return err
	}
	t.decision[subject(r.Phase, t.waits.Subject, t.waits.Failure.Code)] = d
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

// phase returns the phase that the turn is in: the first that has not ended. A turn that
// failed goes to EMIT. ok is false where it is over.
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

// messages are what the turn adds to its conversation, as far as it has come.
func (t *turn) messages() []message.Message {
	var out []message.Message
	if t.normalized != nil {
		out = append(out, t.normalized.Messages...)
	}
	if t.inferred != nil {
		out = append(out, t.inferred.Answer.Said)
	}
	return out
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

// item is the turn's place in its session.
func (t *turn) item(ended bool) chain.Attachment {
	return itemOf(sessionStream(t.init.AgentName, t.init.SessionID), t.init.TurnNumber, sessionItem{
		InteractionID: t.id(), TokensBefore: t.init.TokensBefore, Tokens: t.usage().Total,
		Ended: ended, Failed: t.failed != nil,
	})
}
