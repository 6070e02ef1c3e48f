package turn

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Strategy says what is done about a failure (OSSA 0.2.9 §2).
type Strategy string

// The strategies.
const (
	Retry    Strategy = "retry"
	Fallback Strategy = "fallback"
	Skip     Strategy = "skip"
	Escalate Strategy = "escalate"
	Abort    Strategy = "abort"
)

// Handler says what is done about failures with one of its codes.
type Handler struct {
	Codes      []tga.Code
	Strategy   Strategy
	MaxRetries int // of Retry; 0 = the default table's
	// Fallback is the value that replaces the answer. Target is the person who is asked on
	// Escalate.
	Fallback json.RawMessage
	Target   string
}

// rule is a row of the default table.
type rule struct {
	strategy Strategy
	retries  int
	// recoverable says whether a later attempt may succeed without anybody changing
	// anything.
	recoverable bool
	// exhausted is the strategy when the retries are used up.
	exhausted Strategy
}

// defaults has the sixteen codes of OSSA 0.2.9 §2. The specification gives eight of them a
// strategy (marked "given"). The others have the strategy that loses and repeats the least: a
// failure that a caller or an operator must fix aborts, and one that a person must decide waits.
var defaults = map[tga.Code]rule{
	tga.ValidationError:    {Abort, 0, false, Abort},    // given
	tga.SchemaViolation:    {Abort, 0, false, Abort},    // the input stays as it is
	tga.ContentFiltered:    {Abort, 0, false, Abort},    // likewise
	tga.PolicyViolation:    {Abort, 0, false, Abort},    // likewise
	tga.ToolError:          {Retry, 3, true, Skip},      // given; then the model is told
	tga.ToolTimeout:        {Retry, 2, true, Skip},      // given; likewise
	tga.LLMError:           {Retry, 3, true, Fallback},  // given; then the next model
	tga.LLMTimeout:         {Retry, 2, true, Fallback},  // given; likewise
	tga.GenericStateError:  {Abort, 0, false, Abort},    // nothing of the turn may be kept
	tga.RateLimited:        {Retry, 3, true, Fallback},  // given
	tga.QuotaExceeded:      {Fallback, 0, false, Abort}, // another model may have some left
	tga.CircuitOpen:        {Fallback, 0, true, Skip},   // given; without a fallback the model is told
	tga.MaxTurnsExceeded:   {Escalate, 0, false, Abort}, // given
	tga.MaxTokensExceeded:  {Abort, 0, false, Abort},    // more of the same costs more
	tga.DelegationFailed:   {Escalate, 0, false, Abort}, // on_failure of the delegation wins
	tga.EscalationRequired: {Escalate, 0, false, Abort},
	// Not one of the sixteen: a call that may have run waits for evidence, never for a retry.
	tga.EffectInDoubt: {Escalate, 0, false, Escalate},
}

// Recoverable says whether a later attempt may succeed without anybody changing anything.
func (f *Failure) Recoverable() bool { return !f.Permanent && defaults[f.Code].recoverable }

// plan is what is done about a failure.
type plan struct {
	strategy Strategy
	wait     time.Duration // before a retry
	fallback json.RawMessage
	target   string
}

// plan decides about the failure of try number n, counted from 1. own is the retry policy of the
// tool or model that failed.
func (a *Agent) plan(f *Failure, n int, own RetryPolicy) plan {
	d, known := defaults[f.Code]
	if !known {
		d = rule{Abort, 0, false, Abort}
	}
	p, retries := plan{strategy: d.strategy}, d.retries
	if own.MaxRetries != 0 && d.strategy == Retry && (len(own.Codes) == 0 || slices.Contains(own.Codes, f.Code)) {
		retries = max(own.MaxRetries, 0)
	}
	for _, h := range a.Handlers {
		if slices.Contains(h.Codes, f.Code) {
			p.strategy, p.fallback, p.target = h.Strategy, h.Fallback, h.Target
			if h.MaxRetries > 0 {
				retries = h.MaxRetries
			} else if retries == 0 && h.Strategy == Retry {
				retries = max(d.retries, 1)
			}
			break
		}
	}
	if p.strategy == Retry && (f.Permanent || n > retries) {
		if p.strategy = d.exhausted; d.strategy != Retry {
			p.strategy = Abort
		}
	}
	if p.strategy == Retry {
		p.wait = max(own.wait(n), f.RetryAfter)
	}
	return p
}

// plan is [Agent.plan] within the time of a turn: if the turn's time ends during the wait before a
// retry, there is no retry. A turn whose time is over already fails, so its plan does not matter.
func (c clock) plan(t *turn, f *Failure, n int, own RetryPolicy) plan {
	p := t.agent.plan(f, n, own)
	if p.strategy == Retry && !c.fits(t, p.wait) && !c.overdue(t) {
		late := *f
		late.Permanent = true
		p = t.agent.plan(&late, n, own)
	}
	return p
}

// wait returns how long to wait after failed try n.
func (p RetryPolicy) wait(n int) time.Duration {
	first, most, by := p.InitialDelay, p.MaxDelay, p.Multiplier
	if first <= 0 {
		first = time.Second
	}
	if most <= 0 {
		most = 30 * time.Second
	}
	if by <= 0 {
		by = 2
	}
	d := float64(first)
	for i := 1; i < n && d < float64(most); i++ {
		d *= by
	}
	return min(time.Duration(d), most)
}
