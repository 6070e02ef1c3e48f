package turn

import (
	"context"
	"errors"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// A call of a tool that may have run (a time-out, HTTP 429 where no rule says that it means
// "not executed", a reset) is tried again as OSSA's table says, where the tool's licence lets
// the same call be sent again. When the tries are spent, the model is told, if a call of its
// own could do no harm either: under read_only and dedupe_args. Under any other licence the
// turn waits for a person. dedupe_key is among those: the licence is about this call's key,
// and what a model asks for again has another.

// again decides about a call without an end. try counts those that were made, from 1. It
// returns true where the same call is to be made once more after [outcome].plan.wait.
func (c *toolCall) again(ctx context.Context, err error, try int) bool {
	licence := c.licence()
	if ctx.Err() != nil || tga.CodeOf(err) != tga.EffectInDoubt || !licence.resends() || c.t.agent.handles(tga.EffectInDoubt) {
		c.unended(ctx, err)
		return false
	}
	f := doubtOf(err)
	p := c.planFor(f, try)
	if p.strategy == Retry && c.r.fits(c.t, p.wait) {
		c.fail(f)
		c.plan = p
		return true
	}
	if p.strategy == Retry {
		p = plan{strategy: Skip}
	}
	if licence.Kind == ledger.DedupeKey && p.strategy != Abort {
		c.unended(ctx, err)
		return false
	}
	c.fail(f)
	c.plan = p
	return false
}

// licenceOf is what the operator attests about a tool, as the ledger reads it.
type licenceOf struct{ ledger.Licence }

// resends says that the licence lets a call be sent again without asking anybody.
func (l licenceOf) resends() bool {
	return l.Kind == ledger.ReadOnly || l.Kind == ledger.DedupeArgs || l.Kind == ledger.DedupeKey
}

func (c *toolCall) licence() licenceOf {
	var p runtime.Policy
	if c.r.opts.Runtime.Policy != nil {
		p = c.r.opts.Runtime.Policy(c.tool.Server, c.tool.Remote)
	}
	class := tga.ClassWrite
	if p.Class == tga.ClassRead && (c.tool.Risk == "" || c.tool.Risk == tga.RiskRead) {
		class = tga.ClassRead
	}
	return licenceOf{ledger.Effective(p.Licence, p.LicenceSet, class, c.r.opts.Runtime.Profile)}
}

// doubtOf names a doubt by its cause, in the codes of OSSA.
func doubtOf(err error) *Failure {
	f := &Failure{Code: tga.ToolError, Message: strings.TrimPrefix(err.Error(), string(tga.EffectInDoubt)+": "), Err: err}
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tga.ToolTimeout):
		f.Code = tga.ToolTimeout
	case errors.Is(err, tga.RateLimited):
		f.Code = tga.RateLimited
	}
	f.RetryAfter = tga.RetryAfterOf(err)
	return f
}
