package turn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// infer runs INFER (OSSA 0.2.9 §1 phase 4). It asks the agent's model, and asks again or asks
// another model if the table of strategies says so. Each question is durable before it is sent,
// and each is a governed call of its own: a question that was answered before a crash is not
// asked again.
func (r *Runner) infer(ctx context.Context, t *turn) error {
	started := r.wall()
	if err := r.recall(ctx, t, t.newest("infer")); err != nil {
		return err
	}
	answer, err := r.answer(ctx, t, "infer", func() (Question, error) { return r.question(ctx, t) })
	if err != nil {
		return err
	}
	// The answer is durable before a tool is called on its word.
	if err := t.stage(r.now(), Infer, Done, inferBody{Inferences: t.seen, Answer: *answer, Timing: r.timing(Infer, started)}); err != nil {
		return err
	}
	return t.j.commit(ctx)
}

// answer puts a question of a kind, and puts it again or to another model as the table of
// strategies says, until there is an answer. build makes the question if the turn has none of its
// kind yet.
func (r *Runner) answer(ctx context.Context, t *turn, what string, build func() (Question, error)) (*Answer, error) {
	for {
		asked := t.newest(what)
		if asked == nil {
			q, err := build()
			if err != nil {
				return nil, err
			}
			if asked, err = r.pose(ctx, t, what, 1, t.agent.Model.Provider, q); err != nil {
				return nil, err
			}
		}
		seen, answer, f, err := r.ask(ctx, t, asked)
		if errors.Is(err, errSkipped) {
			return standIn(nil, asked, r.now()), nil
		}
		if err != nil {
			return nil, err
		}
		t.note(seen)
		if f == nil {
			if f = r.check(t, answer); f == nil {
				return answer, nil
			}
		}
		again, answer, err := r.afterAsk(ctx, t, asked, f)
		if err != nil || !again {
			return answer, err
		}
	}
}

// newest returns the newest question of a kind.
func (t *turn) newest(what string) *askedBody {
	for i := len(t.asked) - 1; i >= 0; i-- {
		if t.asked[i].What == what {
			return &t.asked[i]
		}
	}
	return nil
}

// recall adds the outcomes of questions that this process does not know, whichever process asked
// them: their tokens are used. It leaves out one that is about to be asked.
func (r *Runner) recall(ctx context.Context, t *turn, but *askedBody) error {
	for i := range t.asked {
		a := &t.asked[i]
		if a == but || t.noted(derived(t.id(), a.What, a.Attempt)) {
			continue
		}
		res, err := r.rt.Result(ctx, derived(t.id(), a.What, a.Attempt))
		if errors.Is(err, tga.NotFound) || err == nil && !res.State.Terminal() {
			continue // the question was not asked yet, or has no answer
		}
		if err != nil {
			return err
		}
		seen, _, _ := answered(a.inference(t, r.wall()), res)
		t.note(seen)
	}
	return nil
}

// noted says that the outcome of a question is known.
func (t *turn) noted(trace tga.ID) bool {
	return slices.ContainsFunc(t.seen, func(i Inference) bool { return i.TraceID == trace })
}

// note keeps the outcome of a question, once per question.
func (t *turn) note(i Inference) {
	for n := range t.seen {
		if t.seen[n].TraceID == i.TraceID {
			t.seen[n] = i
			return
		}
	}
	t.seen = append(t.seen, i)
}

// question builds the question to the model: the role, then the examples, then as much of the
// conversation as fits, then the turn's own messages.
func (r *Runner) question(ctx context.Context, t *turn) (Question, error) {
	a := t.agent
	q := Question{Model: a.Model.Model, System: a.system(), Tools: []ToolDef{}, Parameters: a.Model.Parameters}
	for i := range t.resolved.Tools {
		tool := &t.resolved.Tools[i]
		q.Tools = append(q.Tools, ToolDef{tool.Name, tool.Description, tool.InputSchema})
	}
	for _, e := range a.Examples {
		in := e.Input
		if e.Context != "" {
			in = e.Context + "\n\n" + in
		}
		q.Messages = append(q.Messages,
			message.TextMessage(message.User, in, message.FromAPI, t.init.StartedAt),
			message.TextMessage(message.Assistant, e.Output, message.FromAPI, t.init.StartedAt))
	}
	history, err := r.history(ctx, t)
	if err != nil {
		return q, err
	}
	summarize := func(ctx context.Context, older []message.Message) (string, error) {
		return r.summarize(ctx, t, older)
	}
	fits, err := a.Memory.Fit(ctx, append(history, t.normalized.Messages...), r.opts.Tokens, summarize)
	if err != nil {
		return q, err
	}
	q.Messages = append(q.Messages, fits...)
	return q, r.budget(t, &q)
}

func (a *Agent) system() string {
	switch {
	case a.SystemPrompt == "":
		return a.Role
	case a.Role == "":
		return a.SystemPrompt
	}
	return a.Role + "\n\n" + a.SystemPrompt
}

// budget enforces the session's limit of tokens before a question is sent. It also limits the
// answer to the tokens that are left.
func (r *Runner) budget(t *turn, q *Question) error {
	most := t.agent.Constraints.MaxTokens
	if most <= 0 {
		return nil
	}
	need := int64(r.opts.Tokens(message.TextMessage(message.System, q.System, message.FromAPI, 0)))
	for _, m := range q.Messages {
		need += int64(r.opts.Tokens(m))
	}
	left := most - t.init.TokensBefore - t.usage().Total - need
	if left <= 0 {
		return &Failure{
			Code:    tga.MaxTokensExceeded,
			Message: "the session may use " + decimal64(most) + " tokens, has used " + decimal64(t.init.TokensBefore+t.usage().Total) + ", and the question has about " + decimal64(need),
		}
	}
	if q.Parameters.MaxTokens == nil || *q.Parameters.MaxTokens > left {
		q.Parameters.MaxTokens = &left
	}
	return nil
}

// summarize asks the model for a summary of the messages that no longer fit. This is a governed
// question like any other, so it is asked only once too, within the session's limit of tokens. If
// it fails for good and no handler of the agent is for that, the turn goes on without a summary.
func (r *Runner) summarize(ctx context.Context, t *turn, older []message.Message) (string, error) {
	answer, err := r.answer(ctx, t, "summarize", func() (Question, error) {
		q := Question{
			Model: t.agent.Model.Model, Tools: []ToolDef{}, Parameters: t.agent.Model.Parameters,
			System:   "Summarize the conversation so that it can go on: facts, decisions, open questions, names and numbers. No more than ten sentences.",
			Messages: append(older, message.TextMessage(message.User, "Summarize the conversation so far.", message.FromAPI, t.init.StartedAt)),
		}
		return q, r.budget(t, &q)
	})
	var f *Failure
	switch {
	case err == nil:
		return answer.Said.Plain(), nil
	case !errors.As(err, &f) || t.agent.handles(f.Code) || ctx.Err() != nil:
		return "", err
	}
	r.opts.Logger.WarnContext(ctx, "a conversation goes on without a summary of its older messages", "error", err, "interaction_id", t.id().String())
	return "", nil
}

// pose makes a question durable.
func (r *Runner) pose(ctx context.Context, t *turn, what string, attempt int, provider string, q Question) (*askedBody, error) {
	q.Key = questionKey(t.id(), what, attempt)
	raw, err := json.Marshal(q)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "question of turn %s: %w", t.id(), err)
	}
	body := askedBody{What: what, Attempt: attempt, Provider: provider, Question: q, Digest: tga.Sum(raw)}
	if err := t.stage(r.now(), Infer, Asked, body); err != nil {
		return nil, err
	}
	if err := t.j.commit(ctx); err != nil {
		return nil, err
	}
	return t.newest(what), nil
}

// ask makes the governed call of a durable question, or finds its outcome. The returned error is
// an error of the turn, the Failure one of the question.
func (r *Runner) ask(ctx context.Context, t *turn, a *askedBody) (Inference, *Answer, *Failure, error) {
	seen := a.inference(t, r.wall())
	args, err := json.Marshal(questionArgs{t.id(), a.Question.Model, a.Digest})
	if err != nil {
		return seen, nil, nil, err
	}
	callCtx := context.WithValue(r.place(ctx, t, Part{Question: seen.TraceID}), workKey{}, &work{turn: t, asked: a, left: func() bool { return patience(ctx) }})
	if t.agent.Model.Timeout > 0 {
		var cancel context.CancelFunc
		callCtx, cancel = context.WithTimeout(callCtx, t.agent.Model.Timeout)
		defer cancel()
	}
	res, err := r.rt.Call(untimed{callCtx}, runtime.Request{
		TraceID: seen.TraceID, Server: ModelServer(a.Provider), Tool: "generate", Args: args, Key: a.Question.Key,
		PlanID: t.init.InvocationID, Intent: "ask model " + clip.Bytes(a.Question.Model, 200) + " for turn " + t.id().String(),
		Submitter: t.init.AgentID,
	})
	seen.Ended = r.wall()
	if err != nil {
		f, err := r.unsettled(ctx, t, res, err, a.What)
		seen.Failure = f
		return seen, nil, f, err
	}
	seen, answer, f := answered(seen, res)
	return seen, answer, f, nil
}

// inference returns what is known of a question before it is answered.
func (a *askedBody) inference(t *turn, started time.Time) Inference {
	return Inference{
		TraceID: derived(t.id(), a.What, a.Attempt), Attempt: uint32(a.Attempt), Provider: a.Provider, Model: a.Question.Model,
		Parameters: a.Question.Parameters, Started: started, Ended: started,
	}
}

// answered reads the outcome of a question from its ended call. A call can end well without an answer:
// the answer was too long to keep, or the person who settled the call does not have it.
func answered(seen Inference, res runtime.Result) (Inference, *Answer, *Failure) {
	if res.State == tga.Completed {
		var answer Answer
		if err := json.Unmarshal(res.Value, &answer); err != nil {
			seen.Failure = &Failure{Code: tga.LLMError, Message: "the question was answered, and its record has no answer that can be read: " + err.Error(), Err: err, Permanent: true}
			return seen, nil, seen.Failure
		}
		seen.Answered, seen.ResponseID, seen.Finish, seen.Usage = answer.Model, answer.ID, answer.Finish, answer.Usage
		return seen, &answer, nil
	}
	f := &Failure{}
	if len(res.Value) == 0 || json.Unmarshal(res.Value, f) != nil || f.Code == "" {
		f = failureOf(res)
	}
	if f.Code == tga.EffectInDoubt { // a person gave the question up, so there is nobody left to ask
		f = &Failure{Code: tga.LLMError, Message: "the question was given up: " + f.Message, Err: f, Permanent: true}
	}
	seen.Failure = f
	return seen, nil, f
}

// unsettled handles a question's call that did not end. It returns errParked if the turn waits, a
// Failure if the question failed, and any other error if that says nothing about the question.
func (r *Runner) unsettled(ctx context.Context, t *turn, res runtime.Result, err error, of string) (*Failure, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx, tga.LLMTimeout, ctx.Err())
	}
	trace := res.TraceID
	switch code := tga.CodeOf(err); code {
	case tga.EffectInDoubt, tga.EscalationRequired:
		f := Failure{Code: code, Message: err.Error(), Err: err}
		p := t.agent.plan(&f, 1, noRetries)
		if p.strategy != Escalate {
			return &f, nil // a handler says what is done instead of waiting
		}
		d, err := r.settle(ctx, t, Infer, p, parkedBody{Failure: f, Subject: of, TraceID: &trace})
		if err != nil {
			return nil, err
		}
		if d.Action == Skip {
			return nil, errSkipped
		}
		return nil, errParked
	case tga.StoreUnavailable, tga.StateLockAcquireFailed, tga.StateConcurrentExecution, tga.StateRecoveryFailed, tga.IdempotencyKeyInFlight, "":
		return nil, err
	case tga.ToolTimeout: // the deadline passed before the question was sent
		return &Failure{Code: tga.LLMTimeout, Message: err.Error(), Err: err, Permanent: true}, nil
	default:
		return &Failure{Code: code, Message: err.Error(), Err: err, Permanent: true}, nil
	}
}

// check returns what is wrong with a complete answer, nil if nothing is.
func (r *Runner) check(t *turn, a *Answer) *Failure {
	if a.Finish == FinishContentFilter {
		return &Failure{Code: tga.ContentFiltered, Message: "the model's provider withheld the answer", Permanent: true}
	}
	if a.Said.Role != message.Assistant {
		return &Failure{Code: tga.LLMError, Message: "the answer is a message of " + strconv.Quote(string(a.Said.Role))}
	}
	ids := map[string]bool{}
	for _, c := range a.Said.ToolCalls {
		if c.ID == "" || ids[c.ID] {
			return &Failure{Code: tga.LLMError, Message: "the answer asks for two calls with the id " + strconv.Quote(c.ID)}
		}
		ids[c.ID] = true
	}
	if most := t.agent.Constraints.MaxTokens; most > 0 && t.init.TokensBefore+t.usage().Total > most {
		return &Failure{Code: tga.MaxTokensExceeded, Message: "the session may use " + decimal64(most) + " tokens and has used " + decimal64(t.init.TokensBefore+t.usage().Total)}
	}
	return nil
}

// afterAsk applies the strategy for a failed question. If again is true, it has posed another
// question. Otherwise answer stands in for the model's answer.
func (r *Runner) afterAsk(ctx context.Context, t *turn, a *askedBody, f *Failure) (again bool, answer *Answer, err error) {
	p := r.plan(t, f, t.tries(a), t.agent.Model.Retry)
	next, provider := a.Question, a.Provider
	switch p.strategy {
	case Retry:
		r.tell(t, Infer, "retry", f.Error())
		if err := r.sleep(ctx, p.wait); err != nil {
			return false, nil, ended(ctx, tga.LLMTimeout, err)
		}
	case Fallback:
		if p.fallback != nil {
			return false, standIn(p.fallback, a, r.now()), nil
		}
		ref, ok := t.agent.fallback(ModelRef{a.Provider, a.Question.Model})
		if !ok {
			return false, nil, f
		}
		provider, next.Model = ref.Provider, ref.Model
		r.tell(t, Infer, "retry", "model "+ref.Model+" after "+f.Error())
	case Skip:
		return false, standIn(nil, a, r.now()), nil
	default:
		d, err := r.settle(ctx, t, Infer, p, parkedBody{Failure: *f, Subject: a.subject()})
		if err != nil {
			return false, nil, err
		}
		switch d.Action {
		case Skip:
			return false, standIn(nil, a, r.now()), nil
		case Fallback:
			return false, standIn(d.Value, a, r.now()), nil
		}
	}
	if err := r.budget(t, &next); err != nil {
		return false, nil, err
	}
	_, err = r.pose(ctx, t, a.What, a.Attempt+1, provider, next)
	return true, nil, err
}

// subject names the question for a person who decides about it.
func (a *askedBody) subject() string {
	if a.What == "infer" {
		return strconv.Itoa(a.Attempt)
	}
	return a.What + "/" + strconv.Itoa(a.Attempt)
}

// tries counts the questions to the same model so far.
func (t *turn) tries(a *askedBody) (n int) {
	for i := range t.asked {
		b := &t.asked[i]
		if b.What == a.What && b.Provider == a.Provider && b.Question.Model == a.Question.Model {
			n++
		}
	}
	return n
}

// fallback returns the model to ask after another model failed for good.
func (a *Agent) fallback(after ModelRef) (ModelRef, bool) {
	chain := append([]ModelRef{{a.Model.Provider, a.Model.Model}}, a.Model.Fallback...)
	for i := range chain {
		chain[i].Provider = cmp.Or(chain[i].Provider, a.Model.Provider)
		if i > 0 && chain[i-1] == after {
			return chain[i], true
		}
	}
	return ModelRef{}, false
}

// standIn returns an answer that no model gave: the text of a fallback value, or an empty answer.
func standIn(value json.RawMessage, a *askedBody, at tga.Millis) *Answer {
	text := string(value)
	var s string
	if json.Unmarshal(value, &s) == nil {
		text = s
	}
	said := message.TextMessage(message.Assistant, text, message.FromAPI, at)
	if value == nil {
		said.Content = []message.Part{}
	}
	return &Answer{Model: a.Question.Model, Said: said, Finish: FinishError}
}

// errSkipped says that a person decided to go on without an answer.
var errSkipped = errors.New("the question is skipped")

func failureOf(res runtime.Result) *Failure {
	err := res.Err()
	f := &Failure{Code: codeOr(err, tga.ToolError), Message: cmp.Or(res.ErrorMessage, res.Summary), Err: err}
	if f.Message == "" && err != nil {
		f.Message = strings.TrimPrefix(err.Error(), string(f.Code)+": ")
	}
	return f
}

func decimal(n int) string     { return strconv.Itoa(n) }
func decimal64(n int64) string { return strconv.FormatInt(n, 10) }
