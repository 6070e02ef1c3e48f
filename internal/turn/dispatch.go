package turn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// dispatcher stands between the runtime and the tools. It sends questions to models, redacts the
// answers of tools before they are stored, and gives a tool access to its turn's state.
type dispatcher struct {
	r        *Runner
	next     runtime.Dispatcher
	breakers sync.Map // breakerOf → runtime.Dispatcher
}

// work says what a governed call is for. The context of the call's dispatch carries it.
type work struct {
	turn  *turn
	asked *askedBody  // the question; nil for a tool call
	left  func() bool // of a question: says that the turn's caller waits no longer
	tool  *Tool       // the tool of a tool call
	index int
	view  *View
	// giveBack ends the lease of a turn that was borrowed for the call.
	giveBack func()

	mu   sync.Mutex
	over bool // nobody waits for the call any more
	held bool // it holds the write lock of the turn's merges
}

// merging takes the write lock of the turn's merges, which [work.end] releases. It returns false
// if the call is over.
func (w *work) merging() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && !w.held {
		w.turn.merges.mu.Lock()
		w.held = true
	}
	return w.held
}

// end lets the next call merge its changes. The changes of this call are durable by now, or never
// will be.
func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held {
		w.turn.merges.mu.Unlock()
	}
	w.over, w.held = true, false
}

type workKey struct{}

const modelPrefix = "model/"

// ModelServer returns the tool_server of questions to a provider's models. Rules and audits name
// them by it.
func ModelServer(provider string) string { return modelPrefix + provider }

func provider(server string) (string, bool) { return strings.CutPrefix(server, modelPrefix) }

// questionArgs are the arguments of the governed call of a question. The question itself is in
// the turn's journal, so that a conversation is not stored a second and a third time.
type questionArgs struct {
	InteractionID  tga.ID     `json:"interaction_id"`
	Model          string     `json:"model"`
	QuestionDigest tga.Digest `json:"question_digest"`
}

// Dispatch sends one call.
func (d *dispatcher) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	if name, ok := provider(call.Server); ok {
		return d.ask(ctx, name, call)
	}
	w, own := ctx.Value(workKey{}).(*work)
	own = own && w.asked == nil && call.Key == toolKey(w.turn.id(), w.index)
	var err error
	if !own {
		w, err = d.borrow(ctx, call)
	} else if call.Attempt == 1 {
		err = w.turn.needs(w.index)
	}
	if err != nil {
		return runtime.Reply{}, fmt.Errorf("%w: %w", runtime.ErrNotSent, err)
	}
	if own {
		return d.send(ctx, w, call)
	}
	if w == nil {
		return d.next.Dispatch(ctx, call)
	}
	defer w.giveBack()
	if !d.r.overdue(w.turn) { // an overdue call is only sent again, to learn what became of it
		var cancel context.CancelFunc
		ctx, cancel = d.r.timed(ctx, w.turn)
		defer cancel()
	}
	return d.send(ctx, w, call)
}

// send sends a turn's call. The call's changes of the turn's state are stored with its effect.
func (d *dispatcher) send(ctx context.Context, w *work, call runtime.Call) (runtime.Reply, error) {
	if w.turn.tx != nil {
		w.view = newView(w.turn)
		ctx = context.WithValue(ctx, viewKey{}, w.view)
	}
	reply, err := d.breaker(w.tool).Dispatch(forAgent(ctx, w.turn), call)
	if err != nil {
		return reply, err
	}
	if reply, err = d.r.redact(w.turn.agent, reply); err != nil || w.view == nil {
		return reply, err
	}
	if d.failed(call, reply) || !w.merging() {
		w.view.drop() // a call that failed, or that nobody waits for, leaves nothing in the state
		return reply, nil
	}
	attachment, err := w.view.keep(w.turn, w.index)
	if err != nil {
		why, failed := d.r.redact(w.turn.agent, runtime.Reply{ErrorMessage: clip.Bytes(err.Error(), 200)})
		reply.Status, reply.ErrorCode, reply.ErrorMessage = tga.StatusFailure, string(codeOr(err, tga.GenericStateError)), why.ErrorMessage
		return reply, failed
	}
	if attachment != nil {
		reply.Attachments = append(reply.Attachments, *attachment)
	}
	return reply, nil
}

// failed says that a reply will be recorded as a failure: the tool says so, or a rule of the
// operator does. A rule that cannot be applied changes nothing.
func (d *dispatcher) failed(call runtime.Call, reply runtime.Reply) (failed bool) {
	rules, said := d.r.opts.Runtime.Trust.Outcome, reply.Status
	call.Args, reply.Result = bytes.Clone(call.Args), bytes.Clone(reply.Result) // a rule may write into them
	defer func() {
		if recover() != nil {
			failed = said != tga.StatusSuccess // the runtime applies the rule too, and reports the panic
		}
	}()
	if rules != nil && said == tga.StatusSuccess {
		_ = rules(call, &reply) // likewise the error
	}
	return reply.Status != tga.StatusSuccess
}

// Check implements [runtime.Checker].
func (d *dispatcher) Check(ctx context.Context, call runtime.Call) error {
	name, ok := provider(call.Server)
	switch {
	case !ok:
		return runtime.Check(ctx, d.next, call)
	case d.r.opts.Models[name] == nil && !call.Remote:
		return noModel(name)
	}
	return nil
}

func noModel(provider string) error {
	return tga.Errorf(tga.NotFound, "no model of provider %q", provider)
}

// Prepare implements [runtime.Preparer]: it lets the tools' own dispatcher store what it needs.
func (d *dispatcher) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	p, ok := d.next.(runtime.Preparer)
	if _, model := provider(call.Server); !ok || model {
		return nil, nil
	}
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		return p.Prepare(forAgent(ctx, w.turn), call)
	}
	if id, _, ok := callOf(call.Key); ok {
		t, err := d.r.fold(ctx, id)
		if err != nil && !errors.Is(err, tga.NotFound) {
			return nil, err
		}
		if err == nil {
			ctx = forAgent(ctx, t)
		}
	}
	return p.Prepare(ctx, call)
}

type agentKey struct{}

func forAgent(ctx context.Context, t *turn) context.Context {
	return context.WithValue(ctx, agentKey{}, t.init.AgentName)
}

// AgentFrom returns the name of the agent for which a tool is called, from the contexts of
// [runtime.Dispatcher] and [runtime.Preparer]. ok is false if it is not a call of a turn.
func AgentFrom(ctx context.Context) (name string, ok bool) {
	name, ok = ctx.Value(agentKey{}).(string)
	return name, ok
}

// breakerOf identifies a circuit breaker. Manifests that configure the same breaker for a tool share
// it; one with another configuration has its own.
type breakerOf struct {
	server, remote string
	spec           BreakerSpec
}

// breaker returns the dispatcher of a tool, with the tool's circuit breaker in front.
func (d *dispatcher) breaker(tool *Tool) runtime.Dispatcher {
	if tool == nil || tool.Breaker.Disabled {
		return d.next
	}
	of := breakerOf{tool.Server, tool.Remote, tool.Breaker}
	if b, ok := d.breakers.Load(of); ok {
		return b.(runtime.Dispatcher)
	}
	b, _ := d.breakers.LoadOrStore(of, dispatch.Breaker(d.next, dispatch.BreakerOptions{
		Failures: tool.Breaker.Failures, Open: tool.Breaker.Open, Trials: tool.Breaker.HalfOpen,
	}))
	return b.(runtime.Dispatcher)
}

// ask sends a question to a model. Every outcome is a reply, also a failure of the model: a
// question changes nothing in the world, so its failure is a fact that can be recorded. Only a
// question that is cut off because nobody waits any more stays open.
func (d *dispatcher) ask(ctx context.Context, name string, call runtime.Call) (runtime.Reply, error) {
	model := d.r.opts.Models[name]
	if model == nil {
		return runtime.Reply{}, fmt.Errorf("%w: %w", runtime.ErrNotSent, noModel(name))
	}
	q, left, err := d.question(ctx, call)
	if err != nil {
		return runtime.Reply{}, fmt.Errorf("%w: %w", runtime.ErrNotSent, err)
	}
	answer, err := generate(ctx, model, q)
	if err == nil {
		result, err := json.Marshal(answer)
		if err != nil {
			return runtime.Reply{}, err
		}
		return runtime.Reply{Status: tga.StatusSuccess, Result: result}, nil
	}
	if left() || errors.Is(ctx.Err(), context.Canceled) {
		return runtime.Reply{}, err
	}
	f := &Failure{Code: tga.LLMError, Message: err.Error()}
	if !errors.As(err, &f) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		f.Code = tga.LLMTimeout
	}
	result, merr := json.Marshal(f)
	if merr != nil {
		return runtime.Reply{}, errors.Join(err, merr)
	}
	return runtime.Reply{Status: tga.StatusFailure, ErrorCode: string(f.Code), ErrorMessage: clip.Bytes(f.Message, 200), Result: result}, nil
}

// generate asks a model. A panic in an adapter counts as a failure of the question.
func generate(ctx context.Context, m Model, q Question) (a Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Failure{Code: tga.LLMError, Message: fmt.Sprintf("the model's adapter panicked: %v", p), Permanent: true}
		}
	}()
	a, err = m.Generate(ctx, q.own())
	a.Usage = a.Usage.bounded()
	return a, err
}

// question finds the question that a governed call is about: in the turn that this process works
// on, or in the journal. left says that the turn's caller waits no longer.
func (d *dispatcher) question(ctx context.Context, call runtime.Call) (q Question, left func() bool, err error) {
	if w, ok := ctx.Value(workKey{}).(*work); ok && w.asked != nil && w.asked.Question.Key == call.Key {
		t, q := w.turn, w.asked.Question
		q.OnDelta = func(text string) { d.r.tell(t, Infer, "text", text) }
		return q, w.left, nil
	}
	var args questionArgs
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return q, nil, tga.Errorf(tga.ValidationError, "arguments of a question: %w", err)
	}
	t, err := d.r.fold(ctx, args.InteractionID)
	if err != nil {
		return q, nil, err
	}
	for i := range t.asked {
		if t.asked[i].Digest != args.QuestionDigest || t.asked[i].Question.Key != call.Key {
			continue
		}
		if call.Attempt == 1 {
			err = d.r.wanted(ctx, t, Infer)
		}
		return t.asked[i].Question, func() bool { return false }, err
	}
	return q, nil, tga.Errorf(tga.NotFound, "turn %s asked no question with digest %s", args.InteractionID, args.QuestionDigest)
}
