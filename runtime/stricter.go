package runtime

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A question may wait for days, and an approved call may wait for its key. So the current rules
// are asked too: before a vote counts, when somebody looks at a waiting request, and before the
// first byte of a call that was decided in an earlier run. The stricter of the old and the current
// rules holds; a laxer rule changes nothing for earlier requests.

// rules asks the supervisor about a request, when it is new and again before its call is sent.
type rules struct {
	store      Store
	supervisor Supervisor
}

// tighten applies the current rules to a pending question. It reports whether the question has
// changed, and whether the rules deny the request: then the denial is staged.
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
		if v.Within != 0 {
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

// forbidden returns why the current rules do not allow the first send of a call that was approved
// before; nil if they allow it. It returns an error if the supervisor fails.
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
		return errors.New("the current rules deny it: " + v.Rationale), nil
	case v.Decision != tga.NeedsApproval || l.decider != "":
		return nil, nil // the approval of a configured remote supervisor counts as that of people
	}
	t, err := r.store.Load(ctx, l.lease.TraceID)
	if err != nil {
		return nil, err
	}
	if have, want := approvalsOf(t), max(v.Required, 1); have < want {
		return tga.Errorf(tga.PolicyViolation, "the current rules require %d approval(s), and the call has %d: %s", want, have, v.Rationale), nil
	}
	return nil, nil
}

// approvalsOf counts the approvals that led to a trace's decision: only those about the definition
// of the tool that the decision names. The votes before a question that was asked again are void.
func approvalsOf(t *chain.Trace) (n int) {
	for i := range t.Notes {
		switch t.Notes[i].Kind {
		case tga.NoteVote:
		case tga.NoteAskedAgain:
			n = 0
			continue
		default:
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

// askAgain voids the votes on a question if the definition of the tool has changed. The question
// stays open, about the new definition. It reports whether the definition has changed; what it
// stages is durable when it returns.
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
