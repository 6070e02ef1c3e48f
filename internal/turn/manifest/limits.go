package manifest

import (
	"github.com/tgad/tgad/internal/turn"
)

func (r *reader) model(a *turn.Agent, root *node) {
	m := &a.Model
	set(r, &m.Provider, "Model.Provider", text, root)
	if !set(r, &m.Model, "Model.Model", text, root) {
		r.warn(root, "there is no spec.llm.model: whoever runs the agent must name one")
	}
	if list, ok := take(r, "Model.Fallback", entries, root); ok {
		for _, n := range list.items {
			r.fallback(m, n)
		}
	}
	set(r, &m.Timeout, "Model.Timeout", limit, root)
	r.parameters(&m.Parameters, root)
	if p := r.retryPolicy("Model.Retry", root); p != nil {
		m.Retry = *p
	}
}

// fallback reads a model that is asked when the model before it fails for good.
func (r *reader) fallback(m *turn.ModelSpec, n *node) {
	var ref turn.ModelRef
	switch n.kind {
	case isText:
		n.used = true
		ref.Model, _ = text(r, place{n, "fallback_models"})
	case isObject:
		set(r, &ref.Model, "Fallback[].Model", text, n)
		set(r, &ref.Provider, "Fallback[].Provider", text, n)
	}
	if ref.Model == "" {
		r.warn(n, "the fallback names no model, and is left out")
		return
	}
	m.Fallback = append(m.Fallback, ref)
}

func (r *reader) parameters(p *turn.Parameters, root *node) {
	setNew(r, &p.MaxTokens, "Model.Parameters.MaxTokens", whole(1), root)
	setNew(r, &p.Temperature, "Model.Parameters.Temperature", real(0, 2), root)
	setNew(r, &p.TopP, "Model.Parameters.TopP", real(0, 1), root)
	set(r, &p.Stop, "Model.Parameters.Stop", texts, root)
	setNew(r, &p.Seed, "Model.Parameters.Seed", whole(-1<<53), root)
	if most, ok := least(r, "Model.MaxRequestTokens", whole(1), root); ok && (p.MaxTokens == nil || *p.MaxTokens > most) {
		p.MaxTokens = &most
	}
}

// setNew is set for fields whose absence has a meaning.
func setNew[T any](r *reader, to **T, name string, parse func(*reader, place) (T, bool), bases ...*node) {
	if v, ok := take(r, name, parse, bases...); ok {
		*to = &v
	}
}

// retries reads how often something is tried again, -1 for never. A number of attempts includes
// the first try.
func retries(r *reader, p place) (int, bool) {
	least, first := 0, 0
	if p.name == "max_attempts" {
		least, first = 1, 1
	}
	n, ok := count(least)(r, p)
	if n -= first; n == 0 {
		n = -1
	}
	return n, ok
}

func (r *reader) constraints(a *turn.Agent, root *node) {
	c := &a.Constraints
	setLeast(r, &c.MaxTurns, "Constraints.MaxTurns", count(1), root)
	setLeast(r, &c.Timeout, "Constraints.Timeout", limit, root)
	setLeast(r, &c.MaxTokens, "Constraints.MaxTokens", whole(1), root)
	setLeast(r, &c.MaxToolCalls, "Constraints.MaxToolCalls", count(1), root)
	setLeast(r, &c.MaxExecution, "Constraints.MaxExecution", limit, root)
}

func (r *reader) reliability(a *turn.Agent, root *node) {
	if p := r.retryPolicy("Retry", root); p != nil {
		a.Retry = *p
	}
	if b := r.breaker("Breaker", root); b != nil {
		a.Breaker = *b
	}
}

// mostMultiplier bounds how fast delays grow.
const mostMultiplier = 1000

// retryPolicy reads a retry policy, nil if there is none.
func (r *reader) retryPolicy(name string, bases ...*node) *turn.RetryPolicy {
	n, ok := take(r, name, object, bases...)
	if !ok {
		return nil
	}
	p := &turn.RetryPolicy{}
	set(r, &p.MaxRetries, "Retry.Retries", retries, n)
	set(r, &p.InitialDelay, "Retry.InitialDelay", span, n)
	set(r, &p.MaxDelay, "Retry.MaxDelay", span, n)
	if p.MaxDelay > 0 && p.MaxDelay < p.InitialDelay {
		r.wrong(places("Retry.MaxDelay", n)[0].node, "the longest delay, %v, is less than the first, %v", p.MaxDelay, p.InitialDelay)
	}
	strategy, named := take(r, "Retry.Strategy", word, n)
	if named {
		p.Multiplier = r.multiplier(n, strategy)
	}
	set(r, &p.Multiplier, "Retry.Multiplier", real(1, mostMultiplier), n)
	if list, ok := take(r, "Retry.Codes", codes, n); ok {
		if p.Codes = list; len(list) == 0 {
			// An empty list would mean all codes, the opposite of what the manifest says.
			p.Codes, p.MaxRetries = nil, -1
		}
	}
	return p
}

func (r *reader) multiplier(n *node, strategy string) float64 {
	switch strategy {
	case "exponential":
		return 2
	case "fixed", "constant":
		return 1
	}
	r.warn(places("Retry.Strategy", n)[0].node, "delays that grow by %q are read as exponential", strategy)
	return 2
}

// breaker reads a circuit breaker, nil if there is none.
func (r *reader) breaker(name string, bases ...*node) *turn.BreakerSpec {
	n, ok := take(r, name, object, bases...)
	if !ok {
		return nil
	}
	b := &turn.BreakerSpec{}
	if on, ok := take(r, "Breaker.Enabled", truth, n); ok {
		b.Disabled = !on
	}
	set(r, &b.Failures, "Breaker.Failures", count(1), n)
	set(r, &b.HalfOpen, "Breaker.HalfOpen", count(1), n)
	if open, ok := take(r, "Breaker.Open", span, n); ok {
		if b.Open = open; open <= 0 {
			r.warn(places("Breaker.Open", n)[0].node, "a breaker that refuses for no time is off")
			b.Disabled = true
		}
	}
	return b
}

func (r *reader) handlers(a *turn.Agent, root *node) {
	list, ok := take(r, "Handlers", entries, root)
	if !ok {
		return
	}
	for _, n := range list.items {
		if h, ok := r.handler(n); ok {
			a.Handlers = append(a.Handlers, h)
		}
	}
}

var strategies = map[string]turn.Strategy{
	"retry": turn.Retry, "fallback": turn.Fallback, "skip": turn.Skip, "escalate": turn.Escalate, "abort": turn.Abort,
}

func (r *reader) handler(n *node) (h turn.Handler, ok bool) {
	name, ok := take(r, "Handlers[].Strategy", word, n)
	if !ok {
		r.wrong(n, "the error handler has no strategy")
		return h, false
	}
	if h.Strategy, ok = strategies[name]; !ok {
		r.wrong(places("Handlers[].Strategy", n)[0].node, "the strategy is %q, and must be retry, fallback, skip, escalate or abort", name)
		return h, false
	}
	set(r, &h.Codes, "Handlers[].Codes", codes, n)
	if again, ok := take(r, "Handlers[].MaxRetries", count(0), n); ok {
		if h.MaxRetries = again; again == 0 && h.Strategy == turn.Retry {
			h.Strategy = turn.Abort
		}
	}
	if raw, ok := take(r, "Handlers[].Fallback", value, n); ok {
		h.Fallback = raw
	}
	set(r, &h.Target, "Handlers[].Target", text, n)
	if len(h.Codes) == 0 {
		r.warn(n, "the error handler names no code that there is, and is left out")
		return h, false
	}
	return h, true
}
