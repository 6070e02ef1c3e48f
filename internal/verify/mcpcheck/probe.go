package mcpcheck

import (
	"context"
	"fmt"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
)

// ProberConfig describes a prober; see the package's comment.
type ProberConfig struct {
	AskServer string            `toml:"ask_server"`
	AskTool   string            `toml:"ask_tool"`
	Answer    string            `toml:"answer"`
	Arguments map[string]string `toml:"arguments"`
	Fences    bool              `toml:"fences"`
	Ran       []Rule            `toml:"ran"`
	NotRan    []Rule            `toml:"not_ran"`
	Reply     Reply             `toml:"reply"`
	verify.Patience
}

// Reply says what is recorded of a call that ran.
type Reply struct {
	Result  string `toml:"result"`  // JSON Pointer; "" = the whole answer
	Summary string `toml:"summary"` // JSON Pointer; "" = none
	Failure []Rule `toml:"failure"` // one holds: the tool had reported an error
}

type inquiry struct {
	ProberConfig
	question
}

// NewProber makes a prober that asks through caller, VALIDATION_ERROR where the
// configuration is wrong. It contacts nobody.
func NewProber(c ProberConfig, caller runtime.Dispatcher) (runtime.Prober, error) {
	q := &inquiry{ProberConfig: c}
	if c.AskTool == "" {
		return nil, verify.Invalid("ask_tool", "want the name of a tool that only reads")
	}
	if len(c.Ran) == 0 && len(c.NotRan) == 0 {
		return nil, verify.Invalid("ran", "without a rule every answer is unknown")
	}
	for _, list := range [...]struct {
		key   string
		rules []Rule
	}{{"ran", c.Ran}, {"not_ran", c.NotRan}, {"reply.failure", c.Reply.Failure}} {
		if err := validate(list.key, list.rules, verify.CallNames); err != nil {
			return nil, err
		}
	}
	if err := verify.CheckPointers(c.Reply.Result, c.Reply.Summary); err != nil {
		return nil, err
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	if q.question, err = newQuestion(caller, c.AskServer, c.AskTool, c.Answer, c.Arguments, verify.CallNames); err != nil {
		return nil, err
	}
	if !verify.NamesCall(q.arguments.Names()) {
		return nil, verify.Invalid("arguments", "none is key, trace_id, tool_call_id or an argument of the call")
	}
	return verify.NewProber(q.inquire, patience), nil
}

func (q *inquiry) inquire(ctx context.Context, call runtime.Call) (runtime.Probed, error) {
	subject := verify.OfCall(call)
	a, source, err := q.ask(ctx, call.TraceID, subject)
	if err != nil {
		return runtime.Probed{Evidence: a.evidence(source, "no answer")}, err
	}
	p, why := q.judge(&a, subject)
	p.Evidence = a.evidence(source, why)
	return p, nil
}

// judge says what an answer means and why.
func (q *inquiry) judge(a *answer, s verify.Subject) (runtime.Probed, string) {
	if a.doc == nil {
		return runtime.Probed{}, a.why
	}
	ran, err := a.one(q.Ran, s)
	if err != nil {
		return runtime.Probed{}, "ran: " + err.Error()
	}
	notRan, err := a.one(q.NotRan, s)
	if err != nil {
		return runtime.Probed{}, "not_ran: " + err.Error()
	}
	return verify.Answered(ran, notRan, q.Fences, func() (runtime.Reply, error) {
		failed, err := a.one(q.Reply.Failure, s)
		if err != nil {
			return runtime.Reply{}, fmt.Errorf("reply.failure: %w", err)
		}
		said := verify.Said{Result: q.Reply.Result, Summary: q.Reply.Summary, Failed: failed}
		return said.Reply(a.doc, func(s string) string { return s })
	})
}
