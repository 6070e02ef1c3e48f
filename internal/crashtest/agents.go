package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Behaviours of tools that work on the state of their turn.
const (
	Adds  = "adds"  // acts, adds its amount to a number of the state, and itself to a list
	Lists = "lists" // acts, and adds itself to a list alone: several at once lose nothing
)

// The agents of a world. The isolation of each agent's state is serializable.
const (
	clerk   = "clerk"   // has every tool, and hands over
	expert  = "expert"  // is handed over to, on the clerk's state
	careful = "careful" // goes on after tools when a person says so
)

// generate is the tool name of every question to a model.
const generate = "generate"

// agents makes a runner of turns on a store.
func (w *World) agents(db runtime.Store, ro runtime.Options, generation int) (*turn.Runner, error) {
	spec := turn.ModelSpec{Provider: "local", Model: "m"}
	ids := seeded(w.Seed<<8 + uint64(generation))
	ro.NewID = func() tga.ID { return newID(ids, w.Clock) }
	ro.Policy = func(server, tool string) runtime.Policy {
		p := policy(server, tool)
		p.Retry = runtime.Backoff{} // it is the turn that tries again
		return p
	}
	tools := toolsOfAgents{w}
	asking := runtime.Rules{Rules: append([]runtime.Rule{{Server: turn.ModelServer(spec.Provider), Decision: tga.Approve}}, rules.Rules...)}
	return turn.New(turnRecorder{recorder{db, w}}, tools, asking, turn.Options{
		Runtime: ro, Resolver: tools, Models: map[string]turn.Model{spec.Provider: modelServer{w}},
		Agents: []*turn.Agent{
			{Name: clerk, Model: spec},
			{Name: expert, Model: spec},
			{Name: careful, Model: spec, Chain: turn.ChainSpec{Confirm: true}},
		},
		Instance: "instance",
		Sleep:    func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
}

// turnRecorder tells the journal which records of turns were appended.
type turnRecorder struct{ recorder }

func (r turnRecorder) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	if len(b.Artifacts)+len(b.Notes) > 0 {
		return r.recorder.Append(ctx, l, b)
	}
	r.w.log(Event{Kind: Journaled, Trace: l.TraceID, Batch: b})
	done, err := r.Store.Append(ctx, l, b)
	if err == nil {
		r.w.log(Event{Kind: Kept, Trace: l.TraceID, Batch: b})
	}
	return done, err
}

// modelServer is the model. It does what the last message of the user says, round by round.
// A line "--" separates rounds. In a round, each line "call TOOL ARGS" is a tool call, and
// a line "down" fails the first question of a turn.
type modelServer struct{ w *World }

func (m modelServer) Generate(_ context.Context, q turn.Question) (turn.Answer, error) {
	m.w.mu.Lock()
	m.w.point("question", q.Key)
	m.w.events = append(m.w.events, Event{Kind: Questioned, Key: q.Key})
	m.w.point("answer to a question", q.Key)
	m.w.mu.Unlock()

	asked := len(q.Messages) - 1
	for asked > 0 && q.Messages[asked].Role != message.User {
		asked--
	}
	if asked < 0 {
		return turn.Answer{}, errors.New("nobody asks anything")
	}
	round := 0
	var said []string
	for _, msg := range q.Messages[asked+1:] {
		switch {
		case msg.Role == message.Assistant:
			round, said = round+1, nil
		case msg.Role == message.Tool:
			said = append(said, withoutIDs(msg.Plain()))
		}
	}
	a := turn.Answer{ID: "answer", Model: q.Model, Finish: turn.FinishStop, Usage: turn.Usage{Input: 2, Output: 1, Total: 3}}
	rounds := strings.Split(q.Messages[asked].Plain(), "\n--\n")
	if round >= len(rounds) {
		a.Said = message.TextMessage(message.Assistant, "tools said "+strings.Join(said, ", "), message.FromModel, 0)
		return a, nil
	}
	a.Said = message.TextMessage(message.Assistant, "", message.FromModel, 0)
	for i, line := range strings.Split(rounds[round], "\n") {
		switch rest, isCall := strings.CutPrefix(line, "call "); {
		case isCall:
			name, args, _ := strings.Cut(rest, " ")
			a.Said.ToolCalls = append(a.Said.ToolCalls, message.ToolCall{ID: fmt.Sprintf("c%d-%d", round, i), Name: name, Arguments: args})
			a.Finish = turn.FinishToolUse
		case line == "down" && strings.HasSuffix(q.Key, "/1"):
			return turn.Answer{}, &turn.Failure{Code: tga.LLMError, Message: "down"}
		case line != "down":
			a.Said.Content[0].Text += line
		}
	}
	return a, nil
}

// withoutIDs returns the part of a tool's answer that does not depend on ids.
func withoutIDs(text string) string {
	var a struct {
		Args json.RawMessage `json:"args"`
	}
	if json.Unmarshal([]byte(text), &a) == nil && a.Args != nil {
		return string(a.Args)
	}
	first, _, _ := strings.Cut(text, "\n") // of a failure; the rest is the answer that came with it
	return first
}

// toolsOfAgents are the tools of every agent: those of the world, by licence and
// behaviour, and the other agent. The name of a tool at another server begins with that
// server and a slash.
type toolsOfAgents struct{ w *World }

func (t toolsOfAgents) Resolve(context.Context, *turn.Agent) (all []turn.Tool, _ []turn.Warning, _ error) {
	add := func(server, licence, behaviour string) {
		name := licence + "." + behaviour
		d := turn.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Server: server, Remote: name, Transport: turn.OverFunction, Parallel: behaviour == Lists}
		if server != Allowed {
			d.Name = server + "/" + name
		}
		all = append(all, d)
	}
	for _, licence := range turnLicences {
		for _, behaviour := range []string{Answers, Adds, Lists, Fails, Busy, LosesReply, LosesCall} {
			add(Allowed, licence, behaviour)
		}
		add(People, licence, Answers)
		add(Denied, licence, Answers)
	}
	all = append(all, turn.Tool{
		Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`),
		Source:     turn.ToolSource{Type: turn.FromDelegation, AgentID: expert},
		Delegation: &turn.Delegation{Type: turn.Supervisor, Target: expert, WithState: true},
	})
	return all, nil, nil
}

func (t toolsOfAgents) Validate(*turn.Tool, []byte) error { return nil }

// Dispatch sends a call to its server, and then changes the state as its tool does. A crash
// in between leaves the effect without the change.
func (t toolsOfAgents) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	reply, err := t.w.Dispatch(ctx, call)
	_, behaviour := licenceOf(call.Tool)
	if err != nil || behaviour != Adds && behaviour != Lists {
		return reply, err
	}
	if err := change(ctx, behaviour, call.Args); err != nil {
		return runtime.Reply{Status: tga.StatusFailure, ErrorCode: string(tga.ToolError), ErrorMessage: err.Error()}, nil
	}
	return reply, nil
}

// change changes the state of a turn as a tool does. A call that is made outside of its
// turn has no state.
func change(ctx context.Context, behaviour string, args []byte) error {
	v, ok := turn.StateFrom(ctx)
	if !ok {
		return nil
	}
	if behaviour == Lists {
		return v.Append("at once", args)
	}
	var a struct {
		Amount int `json:"amount"`
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return err
	}
	raw, err := v.Get("sum")
	if err != nil {
		return err
	}
	sum := 0
	if raw != nil {
		if err := json.Unmarshal(raw, &sum); err != nil {
			return err
		}
	}
	if err := v.Set("sum", fmt.Appendf(nil, "%d", sum+a.Amount), 0); err != nil {
		return err
	}
	return v.Append("log", fmt.Appendf(nil, "%d", a.Amount))
}

// turnLicences are the licences of the tools that turns call.
var turnLicences = []string{"park", "dedupe_args", "read_only", "dedupe_key"}

// TurnSteps are conversations with agents whose tools have a licence: calls in sequence and
// at once, work that is handed over with the state, permanent and retryable failures,
// questions to people, doubt, and turns that are left waiting.
func TurnSteps(licence string) []Step {
	lines := func(ls ...string) string {
		return strings.ReplaceAll(strings.Join(ls, "\n"), "L.", licence+".")
	}
	say := func(agent, text string, decide bool) func(*Process, string) {
		return func(p *Process, key string) { p.say(agent, key, text, decide) }
	}
	return []Step{
		{"two rounds", say(clerk, lines(`call L.adds {"amount":1}`, `call L.answers {"amount":2}`, "--", `call L.adds {"amount":3}`), true)},
		{"at once", say(clerk, lines(`call L.lists {"amount":4}`, `call L.lists {"amount":5}`, `call L.lists {"amount":6}`, `call L.adds {"amount":7}`), true)},
		{"handed over", say(clerk, lines(`call L.adds {"amount":8}`, `call ask {"message":"call L.adds {\"amount\":9}"}`, `call L.adds {"amount":10}`), true)},
		{"fails", say(clerk, lines("down", `call L.adds {"amount":11}`, `call L.fails {"amount":12}`, `call denied/L.answers {"amount":13}`, `call L.busy {"amount":14}`), true)},
		{"people", say(clerk, lines(`call L.adds {"amount":15}`, `call people/L.answers {"amount":16}`, `call L.adds {"amount":17}`), true)},
		{"confirmed", say(careful, lines(`call L.adds {"amount":18}`, "--", `call L.adds {"amount":19}`), true)},
		{"lost reply", say(clerk, lines(`call L.adds {"amount":20}`, `call L.loses_reply {"amount":21}`, `call L.adds {"amount":22}`), true)},
		{"lost call", say(clerk, lines(`call L.loses_call {"amount":23}`, `call L.adds {"amount":24}`), true)},
		{"left waiting", say(clerk, lines(`call L.adds {"amount":25}`, `call people/L.answers {"amount":26}`), false)},
	}
}

// say is a caller with a message and, with decide, the person who answers what its turns
// wait for. The final answer to the caller goes into the journal.
func (p *Process) say(agent, key, text string, decide bool) {
	ctx := context.Background()
	res, err := p.Turns.Run(ctx, turn.Request{Agent: agent, InteractionID: turnID(key), SessionID: sessionOf(key), Message: []byte(text)})
	doubted := map[tga.ID]bool{}
	for n := 0; decide && n < 8 && err == nil && res.Status == turn.Waiting; n++ {
		if call := res.Waiting.TraceID; res.Waiting.Code != tga.EffectInDoubt || doubted[call] {
			p.decide(res)
		} else {
			doubted[call] = true // if its licence permits, it is sent again when the turn goes on
		}
		res, err = p.Turns.Resume(ctx, res.InvocationID)
	}
	if err == nil && (res.Status == turn.Completed || res.Status == turn.Unsuccessful) {
		p.World.log(Event{Kind: Told, Trace: res.InvocationID, Value: []byte(outcomeOf(res))})
	}
}

// decide answers what a turn waits for. For a call in doubt it answers what the journal
// says about the server.
func (p *Process) decide(res turn.Result) {
	ctx, w := context.Background(), res.Waiting
	switch {
	case w.TraceID.IsZero():
		// An error is the store's: the turn then waits as it did.
		_ = p.Turns.Decide(ctx, w.InteractionID, turn.Decision{Who: "ada", Action: turn.Retry})
	case w.Code == tga.EscalationRequired:
		p.vote(w.TraceID)
	case w.Code == tga.EffectInDoubt:
		p.settleDoubt(w, res.InvocationID)
	}
}

// settleDoubt settles a call in doubt: it resolves the call if its server acted, and
// abandons it otherwise. A resolved call did not change the state, and an abandoned one has
// no answer. So the journal notes that the invocation ends differently from one without a
// crash.
func (p *Process) settleDoubt(wait *turn.Wait, invocation tga.ID) {
	ctx, trace := context.Background(), wait.TraceID
	var acted *Event
	for _, e := range p.World.Journal() {
		if e.Trace == trace && e.Kind == Acted {
			acted = &e
		}
	}
	if acted == nil {
		p.World.log(Event{Kind: Settled, Trace: invocation})
		ignore(p.RT.Abandon(ctx, trace, "ada", "the server's books do not have it"))
		// It waits on until somebody says that the model is to be told; an error as above.
		_ = p.Turns.Decide(ctx, wait.InteractionID, turn.Decision{Who: "ada", Action: turn.Skip})
		return
	}
	_, behaviour := licenceOf(acted.Tool)
	if behaviour == Adds || behaviour == Lists {
		p.World.log(Event{Kind: Settled, Trace: invocation})
	}
	ignore(p.RT.Resolve(ctx, trace, runtime.Resolution{
		Reply: answer(behaviour, acted.Call), Who: "ada", Evidence: []byte("the server's books"),
	}))
}

// outcomeOf returns the part of a result that does not depend on ids or times.
func outcomeOf(res turn.Result) string {
	out := string(res.Status) + ": " + res.Text
	if res.Failure != nil {
		out += " " + string(res.Failure.Code)
	}
	return out
}

// turnID is the id of the first turn of a message. Its time is the start of the world's
// clock, which derived ids have too.
func turnID(key string) tga.ID {
	id := idOf("turn " + key)
	for i := range 6 {
		id[i] = byte(uint64(start) >> (40 - 8*i))
	}
	return id
}

// sessionOf returns the session for a step's key: one for each licence and its place in the list.
func sessionOf(key string) string { return key[:strings.LastIndex(key, "-")] }

// scopeState reads the committed values of a scope.
func (p *Process) scopeState(ctx context.Context, scope state.Scope) (values map[string]json.RawMessage, err error) {
	space := state.Open(p.DB, state.Options{Clock: p.World.Clock, NewID: func() tga.ID { return idOf("a reader") }})
	tx, err := space.Begin(ctx, scope, state.Serializable)
	if err != nil {
		return nil, err
	}
	defer tx.Discard()
	keys, err := tx.Keys()
	if err != nil {
		return nil, err
	}
	return tx.GetMany(slices.Clone(keys))
}
