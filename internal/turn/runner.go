package turn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Options configure a Runner.
type Options struct {
	// Runtime configures the runtime through which models and tools are asked. Its Policy is only
	// asked about tools.
	Runtime runtime.Options
	// Agents are the agents that may run, also those that others delegate to. Their names must
	// differ.
	Agents []*Agent
	// Models has the models by provider. ModelLicence says what happens to a question that a
	// crash cut off: with ledger.ReadOnly (the default) it is asked again with the same key, with
	// ledger.Park it waits for a person, with ledger.DedupeKey it is asked again within the
	// provider's window.
	Models       map[string]Model
	ModelLicence *ledger.Licence
	// Resolver finds tools; nil finds none.
	Resolver Resolver
	Emitters []Emitter
	// MaxDepth is how deep delegations may nest below an agent that a person asks; 0 =
	// [DefaultMaxDepth], negative = no delegation at all. A manifest may set less.
	MaxDepth int
	// MaxDelegations is how many delegations one message may lead to, over all depths; 0 =
	// [DefaultMaxDelegations].
	MaxDelegations int
	// EmitTimeout bounds the EMIT phase; 0 = 5 s.
	EmitTimeout time.Duration
	// Instance is the id of this process or pod. If it is "", the Runner makes a new id, or, for
	// an agent whose instance is its pod, an id that follows from the host name.
	Instance string
	// Tokens estimates the tokens of a message; nil = [message.EstimateTokens].
	Tokens func(message.Message) int
	// Observe is called with each progress event as it happens. It must not block.
	Observe func(Progress)
	Logger  *slog.Logger // nil discards

	// The clock and the maker of ids are those of Runtime. Sleep is for tests; nil waits.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Defaults of [Options]. The depth is that of OSSA 0.2.9.
const (
	DefaultMaxDepth       = 3
	DefaultMaxDelegations = 32
)

// Progress is an event of a turn, for a live view.
type Progress struct {
	InteractionID tga.ID
	Agent         string
	TurnNumber    uint32
	Phase         Phase
	// State is "started", "done", "resumed", "waiting", "failed", "retry", "text" (a piece
	// of an answer as it arrives), "tool" (a call begins) or "result".
	State  string
	Detail string
}

// Runner runs turns on a store. Its methods may be called from any number of goroutines.
type Runner struct {
	journals
	clock
	rt    *runtime.Runtime
	space *state.Space
	opts  Options
	pod   string
	// delegating is held while a delegation is counted and begun.
	delegating sync.Mutex
}

// New makes a Runner. next reaches the tools. New starts nothing: call [Runner.Recover] to go on
// with what a crash cut off.
func New(store runtime.Store, next runtime.Dispatcher, supervisor runtime.Supervisor, o Options) (*Runner, error) {
	if store == nil || next == nil || supervisor == nil {
		return nil, tga.Errorf(tga.ValidationError, "turn: store, dispatcher and supervisor are required")
	}
	r := &Runner{journals: journals{store: store, agents: map[string]*Agent{}}}
	for _, a := range o.Agents {
		if err := a.check(o); err != nil {
			return nil, err
		}
		if r.agents[a.Name] != nil {
			return nil, tga.Errorf(tga.ValidationError, "turn: two agents are called %q", a.Name)
		}
		r.agents[a.Name] = a
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Tokens == nil {
		o.Tokens = message.EstimateTokens
	}
	if o.Observe == nil {
		o.Observe = func(Progress) {}
	}
	o.MaxDepth = cmp.Or(o.MaxDepth, DefaultMaxDepth)
	if o.MaxDelegations <= 0 {
		o.MaxDelegations = DefaultMaxDelegations
	}
	if o.EmitTimeout <= 0 {
		o.EmitTimeout = 5 * time.Second
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Runtime.Clock == nil {
		o.Runtime.Clock = time.Now
	}
	if o.Runtime.NewID == nil {
		o.Runtime.NewID = func() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) } // fails only without randomness
	}
	if r.pod = o.Instance; r.pod == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, tga.Errorf(tga.GenericStateError, "the host's name: %w", err)
		}
		r.pod, o.Instance = keyspace.TurnStream("pod", host).String(), o.Runtime.NewID().String()
	}
	r.opts, r.clock = o, clock{o.Runtime.Clock, o.Sleep}
	r.space = state.Open(store, state.Options{Clock: o.Runtime.Clock, NewID: o.Runtime.NewID})
	var err error
	ro := o.Runtime
	ro.Policy = r.policy(o.Runtime.Policy)
	ro.Trust.Prober = r.probers(o.Runtime.Trust.Prober)
	r.rt, err = runtime.New(store, &dispatcher{r: r, next: next}, r.oversee(supervisor), ro)
	return r, err
}

// Runtime returns the runtime through which models and tools are asked: for approvals,
// resolutions and what else concerns single calls.
func (r *Runner) Runtime() *runtime.Runtime { return r.rt }

// policy returns the policy of questions to models, and passes questions about other tools on to
// the given function.
func (r *Runner) policy(tools func(server, tool string) runtime.Policy) func(server, tool string) runtime.Policy {
	model := runtime.Policy{Class: tga.ClassRead, Licence: ledger.Licence{Kind: ledger.ReadOnly}, LicenceSet: true, SendTimeout: time.Hour}
	if r.opts.ModelLicence != nil {
		model.Licence = *r.opts.ModelLicence
		if model.Licence.Kind != ledger.ReadOnly {
			model.Class = tga.ClassWrite
		}
	}
	return func(server, tool string) runtime.Policy {
		if _, ok := provider(server); ok {
			return model
		}
		var p runtime.Policy
		if tools != nil {
			p = tools(server, tool)
		}
		// A turn sends again, and makes new attempts, by its own table: see [toolCall.again]. A timer
		// of the runtime would make a call whose turn has gone on without it.
		p.Resends, p.Retry = -1, runtime.Backoff{}
		return p
	}
}

// Request asks for the turns that a message leads to.
type Request struct {
	Agent string // name; required
	// InteractionID names the first turn; zero means a new one. If the turn has begun, the same
	// request again goes on with it or returns its result. Another request with the same id is
	// refused with IDEMPOTENCY_KEY_CONFLICT.
	InteractionID tga.ID
	SessionID     string // 1..255 bytes, and at most 254 with the agent's name if the state is the session's; "" = a new session
	// Message is the input in one of package message's formats; "" detects it.
	Message []byte
	Format  string
	Source  message.Source // "" = user
	SpanContext
}

// Status says where an invocation stands.
type Status string

// The statuses. Waiting means that the invocation waits for a person: see [Result.Waiting].
const (
	Completed    Status = "completed"
	Unsuccessful Status = "failed"
	Waiting      Status = "waiting"
	Open         Status = "open"
)

// Result says where an invocation stands.
type Result struct {
	InvocationID  tga.ID // its first turn
	InteractionID tga.ID // its newest turn
	SessionID     string
	InstanceID    string
	TurnNumber    uint32 // of the newest turn
	Turns         int
	Status        Status
	// Message is the answer, Text its text.
	Message *message.Message
	Text    string
	Usage   Usage
	// Effects are the tool calls of all turns. After a failure the effects stand, although the
	// state was rolled back.
	Effects []ToolExecution
	// Transactions are what the turns did to the state.
	Transactions []state.Transaction
	Warnings     []Warning
	Failure      *Failure
	Waiting      *Wait
}

// Wait is what a parked turn waits for.
type Wait struct {
	InteractionID tga.ID // the turn to decide about; if a delegate waits, the delegate's turn
	Phase         Phase
	Code          tga.Code
	Reason        string
	Target        string // who is asked
	CallID        string // the model's id of the call at issue
	TraceID       tga.ID // the call that waits for an approval or is in doubt; zero for none
}

// Run runs the turns that a message leads to, until an answer needs no tools, a failure ends
// them, or a turn waits for a person.
//
// It returns a nil error with Status completed, failed or waiting. An error means that the turn
// could not go on for now and is unchanged: STORE_UNAVAILABLE, STATE_LOCK_ACQUIRE_FAILED (another
// process or goroutine runs it), the end of ctx, VALIDATION_ERROR (nothing was written).
// [Runner.Resume] goes on with it.
func (r *Runner) Run(ctx context.Context, q Request) (Result, error) {
	agent := r.agents[q.Agent]
	switch {
	case agent == nil:
		return Result{}, tga.Errorf(tga.NotFound, "no agent is called %q", q.Agent).At("/agent")
	case len(q.SessionID) > 255:
		return Result{}, tga.Errorf(tga.LimitExceeded, "a session id has at most 255 bytes, this one has %d", len(q.SessionID)).At("/session_id")
	}
	begin := beginning{
		agent: agent, id: q.InteractionID, session: q.SessionID, input: q.Message, format: q.Format,
		source: q.Source, span: q.SpanContext, chain: 1, tidies: true,
	}
	if begin.id.IsZero() {
		begin.id = r.opts.Runtime.NewID()
	} else if res, err := r.repeat(ctx, &begin); !errors.Is(err, tga.NotFound) {
		return res, err
	}
	t, err := r.begin(ctx, begin)
	if errors.Is(err, errBegun) {
		return r.repeat(ctx, &begin)
	}
	if err != nil {
		return Result{}, err
	}
	return r.drive(ctx, t)
}

// repeat goes on with a turn that has begun, if the request is the same as the one that began it.
// For another request it returns IDEMPOTENCY_KEY_CONFLICT: the result would answer a message that
// no model has read. NOT_FOUND if there is no such turn.
func (r *Runner) repeat(ctx context.Context, b *beginning) (Result, error) {
	t, err := r.fold(ctx, b.id)
	if err != nil {
		return Result{}, err
	}
	if differs := b.differs(t.init, r.store.Secret()); differs != "" {
		return Result{}, tga.Errorf(tga.IdempotencyKeyConflict, "turn %s was begun with another %s", b.id, differs[1:]).At(differs)
	}
	return r.Resume(ctx, b.id)
}

// Resume goes on with the invocation that a turn belongs to. If the invocation is over, Resume
// returns its result. NOT_FOUND if there is no such turn.
func (r *Runner) Resume(ctx context.Context, interaction tga.ID) (Result, error) {
	id := interaction
	for {
		t, err := r.fold(ctx, id)
		if err != nil {
			return Result{}, err
		}
		switch {
		case t.ended == nil:
			if t, err = r.open(ctx, id); err != nil {
				return Result{}, err
			}
			if t.ended == nil {
				return r.drive(ctx, t)
			}
			r.release(t) // it ended before this process had the lease: look again
		case t.ended.Next == nil:
			return t.result(ctx, r)
		default:
			id = *t.ended.Next
		}
	}
}

// drive runs a turn and the turns that follow it, and returns the result of the invocation.
func (r *Runner) drive(ctx context.Context, t *turn) (Result, error) {
	var res Result
	whole := t.init.Chain == 1 // else the chain's earlier turns ran before a crash: read their journals
	for {
		err := r.run(ctx, t)
		next := t.next
		r.release(t)
		if err != nil && !errors.Is(err, errParked) {
			return Result{InvocationID: t.init.InvocationID, InteractionID: t.id(), SessionID: t.init.SessionID, Status: Open}, err
		}
		res.add(t)
		switch {
		case next != nil:
			t = next
		case whole:
			return res, r.waiting(ctx, t, &res)
		default:
			return t.result(ctx, r)
		}
	}
}

// result returns the result of the turn's invocation as it is stored.
func (t *turn) result(ctx context.Context, r *Runner) (Result, error) {
	var res Result
	for id := t.init.InvocationID; ; {
		t, err := r.fold(ctx, id)
		if err == nil && t.inferred == nil { // no record has the outcomes of its questions yet, or will have them
			err = r.recall(ctx, t, nil)
		}
		if err != nil {
			return res, err
		}
		res.add(t)
		if t.ended == nil || t.ended.Next == nil {
			return res, r.waiting(ctx, t, &res)
		}
		id = *t.ended.Next
	}
}

// OpenTurns returns the ids of the turns that have not ended, oldest first.
func (r *Runner) OpenTurns(ctx context.Context) ([]tga.ID, error) { return openTurns(ctx, r.store) }

// Recover goes on with every turn of this runner's agents that has not ended, one after the
// other. Call [runtime.Runtime.RecoverAll] after it, for the calls that belong to no turn: of the
// calls of a turn, the turn knows best what is left to do. Recover returns the results of the
// turns, and the joined errors of the turns that could not go on.
func (r *Runner) Recover(ctx context.Context) ([]Result, error) {
	ids, err := r.OpenTurns(ctx)
	if err != nil {
		return nil, err
	}
	var out []Result
	var errs []error
	for _, id := range ids {
		t, err := r.fold(ctx, id)
		switch {
		case err != nil:
		case t.agent == nil:
			continue // the turn is of another runner's agent
		case t.init.Parent != nil:
			err = r.adopt(ctx, t) // if the parent has not ended, the parent goes on with it
		default:
			var res Result
			if res, err = r.Resume(ctx, id); err == nil {
				out = append(out, res)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// adopt ends a turn whose parent has ended. Nobody waits for its answer, so nothing more is done
// on its behalf.
func (r *Runner) adopt(ctx context.Context, t *turn) error {
	parent, err := r.fold(ctx, t.init.Parent.InteractionID)
	if err != nil || parent.ended == nil {
		return err
	}
	if t, err = r.open(ctx, t.id()); err != nil {
		return err
	}
	defer r.release(t)
	t.orphan = true
	phase, ok := t.phase()
	if ok && phase != Emit {
		f := &Failure{Code: tga.DelegationFailed, Message: "the turn that handed over is over"}
		if err := r.fail(ctx, t, phase, f); err != nil {
			return err
		}
	}
	return r.run(ctx, t)
}

// Records returns the journal of a turn, checked link by link. NOT_FOUND if there is none;
// STATE_CHECKSUM_MISMATCH or STATE_SEQUENCE_GAP if it is damaged.
func (r *Runner) Records(ctx context.Context, interaction tga.ID) ([]Record, error) {
	return Records(ctx, r.store, interaction)
}

// Records reads the journal of a turn from a store.
func Records(ctx context.Context, store runtime.AttachmentReader, interaction tga.ID) ([]Record, error) {
	records, _, err := readStream(ctx, store, interaction)
	if err == nil && len(records) == 0 {
		err = tga.Errorf(tga.NotFound, "no turn %s", interaction)
	}
	return records, err
}

func sortIDs(ids []tga.ID) {
	slices.SortFunc(ids, func(a, b tga.ID) int { return slices.Compare(a[:], b[:]) })
}
