package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// serve ends a call whose effect is already recorded.
func (a *Attempt) serve(r runtime.Result) {
	a.forget()
	a.Out = Outcome{Trace: r.TraceID, Own: r.TraceID, Digest: r.Digest, Redacted: r.Redacted}
	if !r.ServedFrom.IsZero() {
		a.Out.Trace = r.ServedFrom
	}
	switch {
	case r.State == tga.Denied:
		a.Out.Code, a.Out.Final = tga.PolicyViolation, true
		a.Out.Words = "The call was denied: " + r.Rationale + ". It was not sent. Do not repeat it unchanged."
	case r.ErrorCode == tga.EffectInDoubt:
		a.Out.Code = tga.EffectInDoubt
		a.Out.Words = fmt.Sprintf("OUTCOME UNKNOWN. The call of %s may have run: it was given up without anybody learning whether it ran. "+
			"It is not run again, because that could do it twice. The record: \"%s\". Trace %s.", a.q.Params.Tool, story.Verb(a.s.o.Find, "show", r.TraceID), r.TraceID)
	case r.Class == ledger.ClassNotSent:
		a.Out.Code = r.ErrorCode
		a.Out.Words = "The call was not sent: " + r.ErrorMessage + ". The same call may be repeated."
	case r.Value != nil:
		a.Out.Value, a.Out.Fault, a.Out.Final = say.Recorded(a.q.Params.Revision(), r.Value), isFault(r), true
	case r.ErrorCode == tga.LimitExceeded:
		a.Out.Final = true // the answer was too long: the log has only its length and digest
	case r.Status == tga.StatusSuccess:
		// Somebody settled the call as run, and had no answer of the tool to record.
		a.Out.Final = true
		a.Out.Value = say.Text(a.q.Params.Revision(), settledWords(r)+" Trace "+a.Out.Trace.String()+".")
	default:
		a.Out.Code, a.Out.Final = r.ErrorCode, true
		a.Out.Words = fmt.Sprintf("The call failed before, and it is recorded so: %s (%s).", cmp.Or(r.ErrorMessage, r.Summary, r.Status), r.ErrorCode)
	}
}

// settledWords says what is known of a call that somebody settled as run.
func settledWords(r runtime.Result) string {
	if r.ResolvedVia == runtime.ViaModel {
		return "It was NOT run again: a model has settled this call as run" + optional(": ", r.Summary) +
			". Nobody else has confirmed that. Only the user can have the same call run again."
	}
	return "The call has run. Whoever settled it recorded no answer of the tool's" + optional(": ", r.Summary) + "."
}

// optional returns before and text, or "" if text is empty.
func optional(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// StartsAnew prepares a new attempt if an operator settled the recorded call as not run, and
// reports whether it did: the client was told that the same call runs after that. An answer of
// the tool itself is served instead, even if it says that nothing was done.
func (a *Attempt) StartsAnew(r runtime.Result) bool {
	if a.anew || !a.q.Trace.IsZero() || r.Class != ledger.ClassRetryable || r.ResolvedBy != byPerson || r.ResolvedVia != "" {
		return false
	}
	a.anew = true
	a.forget()
	a.setTrace(NewID())
	return true
}

// byPerson is the value of ResolvedBy for a call that an operator settled.
const byPerson = "person"

// stale ends a call that may repeat one which ran long ago and whose answer was lost. The
// client is told so, with that answer. If it makes the same call again after that, the log
// takes that as a new call.
func (a *Attempt) stale(b runtime.Begun) {
	a.serve(b.Result)
	said := a.Out.Words
	if a.Out.Value != nil {
		said = "its recorded answer is " + string(a.Out.Value)
	}
	a.Out.Value, a.Out.Fault, a.Out.Final = nil, false, true
	a.Out.Code = tga.IdempotencyKeyInFlight
	a.Out.Words = fmt.Sprintf("This call of %s was NOT run. An identical one ran at %s, and its answer never reached its client: %s (trace %s). "+
		"If this is a repeat of that one, use this answer. If you mean another call, make it again now.",
		a.q.Params.Tool, b.Since, said, b.Result.TraceID)
}

// inDoubt ends a call that may have run.
func (a *Attempt) inDoubt(why string) {
	a.Out = Outcome{Code: tga.EffectInDoubt, Trace: a.Trace(), Words: a.doubtWords(a.Trace(), why)}
}

// doubtWords says what a model must know about a call in doubt: that a repeat may do it twice,
// that tgad does not repeat it, and who can find out what happened.
func (a *Attempt) doubtWords(trace tga.ID, why string) string {
	words := fmt.Sprintf("OUTCOME UNKNOWN. The call of %s may have run: %s. It is not run again, because that could do it twice. "+
		"Do not try to do the same thing in another way before it is known what happened. Find out with a read-only tool, or ask the user, "+
		"who can look at it, and settle it, with:\n", a.q.Params.Tool, why)
	for _, line := range a.s.doubtVerbs(trace) {
		words += "  " + line + "\n"
	}
	if a.s.o.Looks && !a.conn.Asks {
		words += "The tool " + say.DoubtTool + " of this server lists such calls with their arguments. "
	}
	if a.s.o.Settles {
		words += "If you know that it ran, or that this cannot be found out, say so with the tool " + say.SettleTool + " of this server. "
	}
	return words + "After that the same call gets the recorded answer, or runs if it did not. Trace " + trace.String() + "."
}

// doubtVerbs are the commands that look at a call in doubt and settle it.
func (s *Desk) doubtVerbs(trace tga.ID) []string {
	return story.DoubtVerbs(s.o.Find, trace, 0)
}

// ApprovalWords says which approval a call waits for, and who can give it.
func (a *Attempt) ApprovalWords() string {
	return fmt.Sprintf("The call waits for an approval, and was not sent: %v. Who may give it types:\n  %s\n"+
		"Repeat the same call after that; it goes on then.", a.needs, a.s.approveVerb(a.Trace()))
}

// approveVerb is the command that approves a call.
func (s *Desk) approveVerb(trace tga.ID) string {
	return story.ApprovalVerb(s.o.Find, trace, tga.Digest{})
}

// refused ends a call that the log does not accept.
func (a *Attempt) refused(err error) {
	code := tga.CodeOf(err)
	a.Out = Outcome{Code: code, Trace: a.Trace(), RPC: mcpraw.CodeInvalidParams, Words: err.Error()}
	if errors.Is(err, tga.StoreUnavailable) {
		a.Out.RPC = 0
		a.Out.Words = "The call was not sent: tgad cannot record it now (" + err.Error() + "). Nothing has happened. Repeat the same call later."
	}
}

// gone ends a call before it was sent, because no client waits for it any more.
func (a *Attempt) gone(code tga.Code, words string) {
	a.Out = Outcome{Code: code, Trace: a.Trace(), Words: words}
}

// late records an answer that came after its attempt was given up. Recording it ends the doubt.
func (a *Attempt) late(b runtime.Begun, f *frames.Frame) {
	a.q.By.Dropped()
	a.s.Work.Go(func() {
		defer f.Close()
		if f.Bad != "" {
			return
		}
		ans, err := ReadAnswer(f, b.Attempt, a.s.o.MaxKeepBytes)
		if err == nil && (ans.Meaning == mcpraw.IsEffect || ans.Meaning == mcpraw.IsRefusal && b.Attempt == 1) {
			if _, err = a.Finish(a.s.Life, b, ans.Reply); err == nil {
				a.q.By.Settled()
			}
		}
		if err != nil {
			a.s.Log.Warn("a late answer was not recorded", "trace", b.Result.TraceID, "error", err)
		}
	})
}

// remembered returns the trace of this call that was waiting for an approval before a crash,
// or a new id if there is none.
func (a *Attempt) remembered() tga.ID {
	if said := a.s.Shelf.Get(a.askName()); said != nil {
		if id, err := tga.ParseID(string(said)); err == nil {
			return id
		}
	}
	return NewID()
}

// askPrefix begins the names of pending approvals on the shelf.
const askPrefix = "asked "

// keptName names a shelf value about one call. It has a digest, because a key can be longer
// than the name of a shelf value may be.
func keptName(prefix, tool, key string) string {
	sum := tga.Sum([]byte(tool + "\x00" + key))
	return prefix + sum.String()
}

func (a *Attempt) askName() string {
	if a.conn.Subject != "" {
		return keptName(askPrefix, a.q.Params.Tool, a.conn.Subject+"\x00"+a.Key)
	}
	return keptName(askPrefix, a.q.Params.Tool, a.Key)
}

func (a *Attempt) remember(id tga.ID) {
	err := a.s.Shelf.Change(a.s.Life, a.askName(), func([]byte) []byte { return []byte(id.String()) })
	if err != nil {
		a.s.Log.Warn("a pending approval was not noted: after a crash people are asked again", "error", err)
	}
}

func (a *Attempt) forget() {
	if a.s.Shelf.Get(a.askName()) == nil {
		return
	}
	if err := a.s.Shelf.Change(a.s.Life, a.askName(), func([]byte) []byte { return nil }); err != nil {
		a.s.Log.Warn("could not remove the note of an approval that has ended", "error", err)
	}
}

// NeedsKey reports whether the log has said that a tool's calls need a key.
func (s *Desk) NeedsKey(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classes[tool]
}

// SetNeedsKey notes that a tool's calls need a key.
func (s *Desk) SetNeedsKey(tool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.classes[tool] = true
}

// countUnsent counts an attempt of a trace whose permit was returned as not sent.
func (s *Desk) countUnsent(trace tga.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsent[trace]++
}

// turn is the number of an attempt among those that may have reached the tool server. This
// shim does not know which permits an earlier shim returned, so it counts those attempts as
// ones that may have reached it.
func (s *Desk) turn(b runtime.Begun) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.Attempt - min(s.unsent[b.Result.TraceID], b.Attempt-1)
}

// NotSent returns a permit, asserting that this attempt did not run. While the log is away,
// NotSent tries again for as long as [Attempt.Begin] does, even if no client waits any more:
// only this process knows it, and a call whose permit is not returned ends in doubt.
func (a *Attempt) NotSent(ctx context.Context, b runtime.Begun, cause error) {
	a.lookAgain(ctx, workspace.NotSent)
	if a.continues {
		// The tool server has an earlier message of this attempt, so its permit is not returned.
		a.unsent = true
		a.Out = Outcome{Code: tga.IdempotencyKeyInFlight, Trace: b.Result.TraceID,
			Words: "The input was not sent: " + cause.Error() + ". The call goes on, and the same message may be repeated."}
		return
	}
	reason := clip.Runes(cause.Error(), mcpanswer.MaxMessage)
	err := a.askWhile(ctx, func(d time.Duration) bool { return wait.Rest(ctx, d) }, func(ctx context.Context) error {
		return asklog.Patient(ctx, func(ctx context.Context) error {
			_, err := a.s.o.Log.NotSent(ctx, b.Result.TraceID, b.Permit, reason, a.after)
			return err
		})
	})
	// The log gave a permit for this attempt. So either no earlier attempt is in doubt, or the
	// licence allows a re-send. Either way the same call may be made again.
	a.Out = Outcome{Code: tga.ToolError, Trace: b.Result.TraceID, Words: "The call was not sent: " + cause.Error() + ". The same call may be repeated."}
	if a.s.turn(b) > 1 {
		a.Out.Code = tga.EffectInDoubt
		a.Out.Words = fmt.Sprintf("OUTCOME UNKNOWN. The call of %s may have run: an earlier send of it has no answer. Its repeat was not sent: %v. "+
			"The same call may be repeated. Trace %s.", a.q.Params.Tool, cause, b.Result.TraceID)
	}
	if err == nil {
		a.s.countUnsent(b.Result.TraceID)
	} else {
		// The log still counts the permit as in use: a repeat waits until it is stale.
		a.s.Log.Warn("a permit was not taken back", "trace", b.Result.TraceID, "error", err)
	}
}

// GiveUp tells the log that nobody executes this attempt any more. Then the licence decides
// about a repeat at once, instead of when the permit is stale. GiveUp licenses nothing by
// itself, so it may fail.
func (a *Attempt) GiveUp(ctx context.Context, b runtime.Begun, why string) {
	a.lookAgain(ctx, workspace.InDoubt)
	err := asklog.Patient(ctx, func(ctx context.Context) error {
		return a.s.o.Log.GiveUp(ctx, b.Result.TraceID, b.Permit, why, a.after)
	})
	if err != nil {
		a.s.Log.Debug("an attempt was not given up; a repeat waits until its permit is stale", "trace", b.Result.TraceID, "error", err)
	}
}
