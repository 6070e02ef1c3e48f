package turn

import (
	"context"
	"errors"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// A call of a tool may have run after a time-out, after HTTP 429 if no rule says that 429 means
// "not executed", and after a reset. Such a call is tried again as OSSA's table says, if the
// tool's licence permits sending the same call again. After the last try the model is told, but
// only if another call by the model could do no harm either: under read_only and dedupe_args.
// Under any other licence the turn waits for a person. That includes dedupe_key: its licence
// covers this call's key, and a call that the model asks for again has another key.

// again decides about a call that did not end. try counts its tries, from 1. again returns true
// if the same call is to be made once more after [outcome].plan.wait.
func (c *toolCall) again(ctx context.Context, err error, try int) bool {
	licence := c.licence()
	if ctx.Err() != nil || tga.CodeOf(err) != tga.EffectInDoubt || !licence.resends() || c.t.agent.handles(tga.EffectInDoubt) {
		c.unended(ctx, err)
		return false
	}
	f := doubtOf(err)
	p := c.planFor(f, try)
	if p.strategy == Retry {
		c.fail(f)
		c.plan = p
		return true
	}
	if licence.Kind == ledger.DedupeKey && p.strategy != Abort {
		c.unended(ctx, err)
		return false
	}
	c.fail(f)
	c.plan = p
	return false
}

// licenceOf is the licence of a tool as the ledger applies it.
type licenceOf struct{ ledger.Licence }

// resends says that the licence permits sending a call again without asking anybody.
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

// doubtOf returns the cause of a doubt as a failure with one of OSSA's codes.
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
