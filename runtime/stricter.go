package runtime

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A question may wait for days, and an approved call for its key. The rules of now are asked
// as well: before a vote counts, when a waiting request is looked at, and before the first
// byte of a call that was decided in an earlier run. The stricter of then and now holds; a
// laxer rule changes nothing for what was asked before.

// rules asks the supervisor about a request, when it is new and again before its call is sent.
type rules struct {
	store      Store
	supervisor Supervisor
}

// tighten brings a pending question up to the rules of now. It reports whether the question
// has changed, and whether they deny the request: then the denial is staged.
func (ap *approvals) tighten(ctx context.Context, l *loop, a *Approval) (changed, denied bool, err error) {
	v, err := ap.rules.supervise(ctx, l)
	if err != nil {
		return false, false, err
	}
	switch v.Decision {
	case tga.Deny:
		l.detachApproval()
		l.stopTimer()
		return false, true, ap.stageDecision(ctx, l, v, nil)
	case tga.NeedsApproval:
		if v.Required > a.Required {
			a.Required, a.Why, changed = v.Required, v.Rationale, true
		}
		if v.Within > 0 {
			if ends := a.Since + tga.Millis(v.Within.Milliseconds()); a.Expires == 0 || ends < a.Expires {
				a.Expires, changed = ends, true
				err = l.setTimer(a.Since, ends, timer{Kind: timerExpiry})
			}
		}
	}
	return changed, false, err
}

func (r *rules) supervise(ctx context.Context, l *loop) (Verdict, error) {
	v, err := r.supervisor.Decide(ctx, l.request)
	if err != nil {
		return v, tga.Errorf(codeOr(err, tga.GenericStateError), "supervisor: %w", err).In(l.lease.TraceID)
	}
	return v, nil
}

// forbidden says why the rules of now do not allow the first send of a call that was approved
// before, nil where they do. The error is a supervisor's that cannot be asked.
func (r *rules) forbidden(ctx context.Context, l *loop) (why, err error) {
	if l.supervised {
		return nil, nil
	}
	v, err := r.supervise(ctx, l)
	if err != nil {
		return nil, err
	}
	l.supervised = true
	switch {
	case v.Decision == tga.Deny:
		return errors.New("the rules of now deny it: " + v.Rationale), nil
	case v.Decision != tga.NeedsApproval || l.decider != "":
		return nil, nil // a configured remote supervisor stands for people
	}
	t, err := r.store.Load(ctx, l.lease.TraceID)
	if err != nil {
		return nil, err
	}
	if have, want := approvalsOf(t), max(v.Required, 1); have < want {
		return tga.Errorf(tga.PolicyViolation, "the rules of now want %d approval(s), and it has %d: %s", want, have, v.Rationale), nil
	}
	return nil, nil
}

// approvalsOf counts the approvals that led to a trace's decision: those of the definition of
// the tool that the decision names.
func approvalsOf(t *chain.Trace) (n int) {
	for i := range t.Notes {
		if t.Notes[i].Kind != tga.NoteVote {
			continue
		}
		var b struct {
			Approve bool   `json:"approve"`
			Schema  string `json:"tool_schema_digest"`
		}
		if json.Unmarshal(t.Notes[i].Body, &b) == nil && b.Approve && b.Schema == t.Decision.Meta.String(tga.MetaSchemaDigest) {
			n++
		}
	}
	return n
}

// askAgain voids the votes on a question whose tool is defined in another way by now. The
// question stands, about the new definition. It reports whether that was so; what it stages is
// durable when it returns.
func (ap *approvals) askAgain(ctx context.Context, l *loop, a *Approval) (bool, error) {
	g, err := ap.tokens.grant(ctx, l)
	if err != nil || g.SchemaDigest == a.Schema {
		return false, err
	}
	note, err := ap.mint.note(tga.NoteAskedAgain, whoRuntime, map[string]any{
		"tool_schema_digest": g.SchemaDigest.String(), "void": len(a.Votes), "was": a.Schema.String(),
	})
	if err != nil {
		return false, err
	}
	a.Schema, a.Votes, a.Changed = g.SchemaDigest, nil, true
	l.notes = append(l.notes, note)
	if err := l.attachApproval(*a); err != nil {
		return false, err
	}
	return true, l.commit(ctx)
}
