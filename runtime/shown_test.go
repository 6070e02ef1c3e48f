package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// about is an approval of the question that its voter was shown.
func about(who string, question tga.Digest) runtime.Vote {
	v := vote(who, true)
	v.About = question
	return v
}

// TestVoteIsForTheQuestionThatWasShown: ann and bob are shown a question, it changes, and after ann's
// vote it is asked again. Bob's approval was meant for the first question, and does not count, with or
// without its digest. A voter who saw the new question names its digest. A denial needs no digest.
func TestVoteIsForTheQuestionThatWasShown(t *testing.T) {
	for _, restart := range []bool{false, true} {
		definition := tga.Digest{1}
		b := setup(t, park, func(b *bench) {
			b.sup = ruleOf(tga.NeedsApproval, 1, 0)
			b.opts.Trust.Schema = func(context.Context, string, string) (tga.Digest, error) { return definition, nil }
		})
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EscalationRequired)
		shown, err := b.rt.Approvals(t.Context())
		if err != nil || len(shown) != 1 || shown[0].About() != definition || shown[0].Changed {
			t.Fatalf("%+v, %v", shown, err)
		}
		definition = tga.Digest{2}
		_, err = b.rt.Decide(t.Context(), res.TraceID, about("ann", shown[0].About()))
		wantCode(t, err, tga.ToolSchemaChanged)
		if restart {
			b.reopen()
		}
		for _, v := range []runtime.Vote{about("bob", shown[0].About()), vote("bob", true), about("bob", tga.Digest{3})} {
			_, err = b.rt.Decide(t.Context(), res.TraceID, v)
			wantCode(t, err, tga.ToolSchemaChanged)
		}
		b.wantSends(0)
		now, err := b.rt.Approvals(t.Context())
		if err != nil || len(now) != 1 || now[0].About() != definition || !now[0].Changed || len(now[0].Votes) != 0 {
			t.Fatalf("%+v, %v", now, err)
		}
		if _, err := b.rt.Decide(t.Context(), res.TraceID, about("bob", now[0].About())); err != nil {
			t.Fatal(err)
		}
		b.wantState(res.TraceID, tga.Completed)
		b.wantSends(1)
	}
}

// TestConfirmationIsOfTheMismatchThatWasShown: the same for a record: by the time of the answer, other
// changes no longer stand than those that the person was shown.
func TestConfirmationIsOfTheMismatchThatWasShown(t *testing.T) {
	p := park
	p.Replay = runtime.ReplayHuman
	b, w := changing(t, p)
	first := b.mustCall(charge("k"))
	w.set("a", runtime.Changed)
	_, err := b.call(replay("k"))
	wantCode(t, err, tga.ConfirmationRequired)
	shown, err := b.rt.Approvals(t.Context())
	if err != nil || len(shown) != 1 || shown[0].About() != shown[0].Mismatch || shown[0].About().IsZero() || shown[0].Changed {
		t.Fatalf("%+v, %v", shown, err)
	}
	w.set("a", runtime.Gone)
	_, err = b.call(replay("k"))
	wantCode(t, err, tga.ConfirmationRequired)
	for _, v := range []runtime.Vote{about("ann", shown[0].About()), vote("ann", true)} {
		_, err = b.rt.Decide(t.Context(), first.TraceID, v)
		wantCode(t, err, tga.ConfirmationRequired)
	}
	now, err := b.rt.Approvals(t.Context())
	if err != nil || len(now) != 1 || !now[0].Changed || now[0].About() == shown[0].About() {
		t.Fatalf("%+v, %v", now, err)
	}
	if _, err := b.rt.Decide(t.Context(), first.TraceID, about("ann", now[0].About())); err != nil {
		t.Fatal(err)
	}
	b.mustCall(replay("k"))
	b.wantSends(1)
}

// TestNotRunIsOfTheAttemptsThatWereSeen: a person who checked whether the call ran says how many attempts
// there were. If there are more by now, a statement that frees the key is refused, and "it ran" is accepted.
func TestNotRunIsOfTheAttemptsThatWereSeen(t *testing.T) {
	for _, c := range []struct {
		seen  uint32
		reply runtime.Reply
		code  tga.Code
	}{
		{2, didNotRun, tga.StateConcurrentExecution}, {4, didNotRun, tga.StateConcurrentExecution},
		{3, didNotRun, ""}, {0, didNotRun, ""}, {2, ok(`"seen"`), ""},
	} {
		b := setup(t, licence(ledger.DedupeKey), func(b *bench) { b.tool.answer = unknown })
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		if res.Attempts != 3 {
			t.Fatalf("%d attempts, want 3", res.Attempts)
		}
		word := evidence(c.reply)
		word.Attempts = c.seen
		_, err = b.rt.Resolve(t.Context(), res.TraceID, word)
		if tga.CodeOf(err) != c.code {
			t.Errorf("%s after %d attempts were seen: %v, want %q", c.reply.Status, c.seen, err, c.code)
		}
		if c.code == "" {
			continue
		}
		// The refusal holds no lease and writes nothing: the next statement is accepted.
		word.Attempts = 3
		if _, err := b.rt.Resolve(t.Context(), res.TraceID, word); err != nil {
			t.Error(err)
		}
	}
}

// TestPermitIsNotHandedOutAgainstTheRulesOfNow: an executor lost the answer that had its permit. By the
// time that it asks again, a restart has brought a rule that forbids the call, or wants more people.
func TestPermitIsNotHandedOutAgainstTheRulesOfNow(t *testing.T) {
	for name, c := range map[string]struct {
		now  runtime.Supervisor
		code tga.Code
	}{
		"denied":             {ruleOf(tga.Deny, 0, 0), tga.PolicyViolation},
		"one approval":       {ruleOf(tga.NeedsApproval, 1, 0), tga.PolicyViolation},
		"allowed as before":  {runtime.AllowAll, ""},
		"another rule alike": {ruleOf(tga.Approve, 0, 0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, park)
			first := b.begin("k", "one")
			b.wantStanding(first, runtime.BeginSend)
			b.sup = c.now
			b.reopen()
			again, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "one"})
			if tga.CodeOf(err) != c.code {
				t.Errorf("%v, want %q", err, c.code)
			}
			if c.code == "" && again.Permit != first.Permit || c.code != "" && again.Standing == runtime.BeginSend {
				t.Errorf("%s, the same permit: %v", again.Standing, again.Permit == first.Permit)
			}
			// The executor may still have the permit: its report about its send is accepted.
			if _, err := b.finish(first, ok(`{}`)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCallUnderAFreshPermitIsNotInDoubt: while an executor may still send, a person cannot find out what
// happened. The call is in doubt only when no executor is assumed to be executing it.
func TestCallUnderAFreshPermitIsNotInDoubt(t *testing.T) {
	serial.Test(t)
	const permit = time.Minute
	for _, x := range []struct {
		after   time.Duration
		gives   bool
		inDoubt int
	}{{0, false, 0}, {permit - time.Millisecond, false, 0}, {permit, false, 1}, {0, true, 1}} {
		b := setup(t, runtime.Policy{PermitTime: permit})
		begun := b.begin("order-1", "begin-1")
		b.advance(x.after)
		if x.gives {
			if err := b.rt.GiveUp(t.Context(), begun.Result.TraceID, begun.Permit, "", 0); err != nil {
				t.Fatal(err)
			}
		}
		list, err := b.rt.InDoubt(t.Context())
		if err != nil || len(list) != x.inDoubt {
			t.Errorf("after %v, given up %v: %d calls in doubt, want %d (%v)", x.after, x.gives, len(list), x.inDoubt, err)
		}
	}
}

// TestVoidVotesDoNotCount: the definition of the tool changes and changes back while people are asked. After two
// people have approved, the rules require three. The votes from before the changes are void, and none of them is the
// third.
func TestVoidVotesDoNotCount(t *testing.T) {
	was, is := tga.Digest{1}, tga.Digest{1}
	b := setup(t, park, func(b *bench) {
		b.sup = ruleOf(tga.NeedsApproval, 2, 0)
		b.opts.Trust.Schema = func(context.Context, string, string) (tga.Digest, error) { return is, nil }
	})
	begun := b.begin("k", "one")
	b.wantStanding(begun, runtime.BeginNeedsApproval)
	decide := func(v runtime.Vote, want tga.Code) {
		t.Helper()
		_, err := b.rt.Decide(t.Context(), begun.Result.TraceID, v)
		if tga.CodeOf(err) != want {
			t.Fatalf("%s: %v, want %s", v.Who, err, want)
		}
	}
	decide(vote("ann", true), tga.EscalationRequired)
	for _, is = range []tga.Digest{{2}, was} {
		decide(vote("bob", true), tga.ToolSchemaChanged)
	}
	decide(about("ann", was), tga.EscalationRequired)
	decide(about("bob", was), "")
	b.sup = ruleOf(tga.NeedsApproval, 3, 0)
	b.start()
	_, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "one"})
	wantCode(t, err, tga.PolicyViolation)
	b.wantState(begun.Result.TraceID, tga.Failed)
}
