package turn

import (
	"regexp"
	"slices"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// add adds one turn to the result.
func (res *Result) add(t *turn) {
	res.InvocationID, res.InteractionID, res.SessionID = t.init.InvocationID, t.id(), t.init.SessionID
	res.InstanceID, res.TurnNumber = t.init.InstanceID, t.init.TurnNumber
	res.Turns++
	u := t.usage()
	res.Usage.Input, res.Usage.Output, res.Usage.Total = res.Usage.Input+u.Input, res.Usage.Output+u.Output, res.Usage.Total+u.Total
	res.Status = Open
	if t.ended != nil {
		res.Status = Completed
	}
	if t.resolved != nil {
		res.Warnings = t.resolved.Warnings
	}
	if t.inferred != nil {
		res.say(t.inferred.Answer.Said)
	}
	if t.executed != nil {
		res.Effects = append(res.Effects, t.executed.Executions...)
		if t.executed.Handoff != nil {
			res.say(*t.executed.Handoff)
		}
	}
	if t.persisted != nil && len(t.persisted.Transaction.Changes) > 0 {
		res.Transactions = append(res.Transactions, t.persisted.Transaction)
	}
	if t.failed != nil {
		f := t.failed.Failure
		res.Status, res.Failure, res.Message, res.Text = Unsuccessful, &f, nil, ""
		if t.executed == nil {
			res.Effects = append(res.Effects, t.failed.Effects...)
		}
	}
}

func (res *Result) say(m message.Message) { res.Message, res.Text = &m, m.Plain() }

var agentName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// check refuses an agent that cannot be run.
func (a *Agent) check(o Options) error {
	bad := func(format string, args ...any) error {
		return tga.Errorf(tga.ValidationError, "agent %q: "+format, append([]any{a.Name}, args...)...)
	}
	if len(a.Name) > 253 || !agentName.MatchString(a.Name) {
		return bad("a name has 1 to 253 of a-z, 0-9 and inner hyphens")
	}
	if o.Models[a.Model.Provider] == nil {
		return bad("there is no model of provider %q", a.Model.Provider)
	}
	for _, m := range a.Model.Fallback {
		if m.Provider != "" && o.Models[m.Provider] == nil {
			return bad("there is no model of provider %q", m.Provider)
		}
	}
	switch a.State.Mode {
	case "", state.None, state.Session, state.Persistent:
	default:
		return bad("state mode %q: not one of none, session, persistent", a.State.Mode)
	}
	switch a.State.Isolation {
	case "", state.ReadUncommitted, state.ReadCommitted, state.RepeatableRead, state.Serializable:
	default:
		return bad("isolation level %q: not one of read_uncommitted, read_committed, repeatable_read, serializable", a.State.Isolation)
	}
	for _, h := range a.Handlers {
		switch h.Strategy {
		case Retry, Fallback, Skip, Escalate, Abort:
		default:
			return bad("strategy %q: not one of retry, fallback, skip, escalate, abort", h.Strategy)
		}
		if h.Strategy == Retry && slices.Contains(h.Codes, tga.EffectInDoubt) {
			return bad("a call in doubt is never retried: it may have run")
		}
	}
	for _, t := range a.Tools {
		if d := t.Delegation; d != nil && d.WithState && a.State.Isolation == state.ReadUncommitted {
			return bad("tool %q: state is not lent under read_uncommitted, which takes nothing back where the other fails", t.Name)
		}
	}
	for what, f := range map[string]message.Filter{"content filter": a.Filter, "output filter": a.Redact} {
		if _, err := f.Compile(); err != nil {
			return bad("%s: %w", what, err)
		}
	}
	return nil
}
