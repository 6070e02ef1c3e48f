package turn

import (
	"context"
	"errors"
	"strings"
	"time"

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
func (r *Runner) again(ctx context.Context, t *turn, tool *Tool, res runtime.Result, err error, try int, o *outcome) bool {
	licence := r.licence(tool)
	if ctx.Err() != nil || tga.CodeOf(err) != tga.EffectInDoubt || !licence.resends() || t.agent.handles(tga.EffectInDoubt) {
		r.unended(ctx, t, tool, res, err, o)
		return false
	}
	f := doubtOf(err)
	p := r.toolPlan(t, tool, f, try)
	if p.strategy == Retry && r.fits(t, p.wait) {
		o.fail(f)
		o.plan = p
		return true
	}
	if p.strategy == Retry {
		p = plan{strategy: Skip}
	}
	if licence.Kind == ledger.DedupeKey && p.strategy != Abort {
		r.unended(ctx, t, tool, res, err, o)
		return false
	}
	o.fail(f)
	o.plan = p
	return false
}

// fits says that a turn has time left after a wait.
func (r *Runner) fits(t *turn, wait time.Duration) bool {
	at := t.deadline(r.now())
	return at == 0 || tga.MillisOf(r.opts.Runtime.Clock().Add(wait)) < at
}

// licenceOf is what the operator attests about a tool, as the ledger reads it.
type licenceOf struct{ ledger.Licence }

// resends says that the licence lets a call be sent again without asking anybody.
func (l licenceOf) resends() bool {
	return l.Kind == ledger.ReadOnly || l.Kind == ledger.DedupeArgs || l.Kind == ledger.DedupeKey
}

func (r *Runner) licence(tool *Tool) licenceOf {
	var p runtime.Policy
	if r.opts.Runtime.Policy != nil {
		p = r.opts.Runtime.Policy(tool.Server, tool.Remote)
	}
	class := tga.ClassWrite
	if p.Class == tga.ClassRead && (tool.Risk == "" || tool.Risk == tga.RiskRead) {
		class = tga.ClassRead
	}
	return licenceOf{ledger.Effective(p.Licence, p.LicenceSet, class, r.opts.Runtime.Profile)}
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
