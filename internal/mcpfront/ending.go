package mcpfront

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

// serve is the end of a call whose effect is recorded.
func (a *attempt) serve(r runtime.Result) {
	a.forget()
	a.out = outcome{trace: r.TraceID, own: r.TraceID, digest: r.Digest, redacted: r.Redacted}
	if !r.ServedFrom.IsZero() {
		a.out.trace = r.ServedFrom
	}
	switch {
	case r.State == tga.Denied:
		a.out.code, a.out.final = tga.PolicyViolation, true
		a.out.words = "The call was denied: " + r.Rationale + ". It was not sent. Do not repeat it unchanged."
	case r.ErrorCode == tga.EffectInDoubt:
		a.out.code = tga.EffectInDoubt
		a.out.words = fmt.Sprintf("OUTCOME UNKNOWN. The call of %s may have run: it was given up without anybody learning whether it ran. "+
			"It is not run again, because that could do it twice. The record: \"%s\". Trace %s.", a.q.params.Tool, a.s.verb("show", r.TraceID), r.TraceID)
	case r.Class == ledger.ClassNotSent:
		a.out.code = r.ErrorCode
		a.out.words = "The call was not sent: " + r.ErrorMessage + ". The same call may be repeated."
	case r.Value != nil:
		a.out.value, a.out.fault, a.out.final = r.Value, isFault(r.Value), true
	case r.ErrorCode == tga.LimitExceeded:
		a.out.final = true // its value is not kept
	case r.Status == tga.StatusSuccess:
		// Somebody settled it, and knew no more than that it ran.
		a.out.final = true
		a.out.value = say.Text(a.q.version, settledWords(r)+" Trace "+a.out.trace.String()+".")
	default:
		a.out.code, a.out.final = r.ErrorCode, true
		a.out.words = fmt.Sprintf("The call failed before, and it is recorded so: %s (%s).", cmp.Or(r.ErrorMessage, r.Summary, r.Status), r.ErrorCode)
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

// startsAnew makes a new attempt of a call whose record says, by somebody's word, that it did
// not run: its client was told to make the same call again after that. What the tool itself
// answered is served, also where it says that nothing was done.
func (a *attempt) startsAnew(r runtime.Result) bool {
	if a.anew || !a.q.trace.IsZero() || r.Class != ledger.ClassRetryable || r.ResolvedBy != byPerson || r.ResolvedVia != "" {
		return false
	}
	a.anew = true
	a.forget()
	a.setTrace(newID())
	return true
}

// byPerson is who has settled a call where an operator did.
const byPerson = "person"

// stale is the end of a call that may be the repeat of one which ran long ago and whose
// answer was lost. The client is told, with that answer: if it means another call it makes
// that from now on.
func (a *attempt) stale(b runtime.Begun) {
	a.serve(b.Result)
	said := a.out.words
	if a.out.value != nil {
		said = "its recorded answer is " + string(a.out.value)
	}
	a.out.value, a.out.fault, a.out.final = nil, false, true
	a.out.code = tga.IdempotencyKeyInFlight
	a.out.words = fmt.Sprintf("This call of %s was NOT run. An identical one ran at %s, and its answer never reached its client: %s (trace %s). "+
		"If this is a repeat of that one, use this answer. If you mean another call, make it again now.",
		a.q.params.Tool, b.Since, said, b.Result.TraceID)
}

// inDoubt is the end of a call of which nobody knows whether it ran.
func (a *attempt) inDoubt(why string) {
	a.out = outcome{code: tga.EffectInDoubt, trace: a.trace(), words: a.doubtWords(a.trace(), why)}
}

// doubtWords tells a model what it must know: that repeating may do it twice, that this
// call is not repeated for it, and who can say what happened.
func (a *attempt) doubtWords(trace tga.ID, why string) string {
	words := fmt.Sprintf("OUTCOME UNKNOWN. The call of %s may have run: %s. It is not run again, because that could do it twice. "+
		"Do not try to do the same thing in another way before it is known what happened. Find out with a read-only tool, or ask the user, "+
		"who can look at it, and settle it, with:\n", a.q.params.Tool, why)
	for _, line := range a.s.doubtVerbs(trace) {
		words += "  " + line + "\n"
	}
	if a.s.opts.Look != nil && !a.conn.Asks {
		words += "The tool " + doubtTool + " of this server lists such calls with their arguments. "
	}
	if a.s.opts.Look != nil && a.s.opts.SettleTool {
		words += "If you know that it ran, or that this cannot be found out, say so with the tool " + settleTool + " of this server. "
	}
	return words + "After that the same call gets the recorded answer, or runs if it did not. Trace " + trace.String() + "."
}

// verb is a command about a trace as somebody types it.
func (s *Shim) verb(name string, trace tga.ID, rest ...string) string {
	return story.Verb(s.opts.Find, name, trace, rest...)
}

// doubtVerbs are the commands that look at a call in doubt and settle it.
func (s *Shim) doubtVerbs(trace tga.ID) []string {
	return story.DoubtVerbs(s.opts.Find, trace, 0)
}

// approvalWords says what a call waits for, and who may give it.
func (a *attempt) approvalWords() string {
	return fmt.Sprintf("The call waits for an approval, and was not sent: %v. Who may give it types:\n  %s\n"+
		"Repeat the same call after that; it goes on then.", a.needs, a.s.approveVerb(a.trace()))
}

// approveVerb is the command that approves a call.
func (s *Shim) approveVerb(trace tga.ID) string {
	return story.ApprovalVerb(s.opts.Find, trace, tga.Digest{})
}

// refused is the end of a call that the log does not take.
func (a *attempt) refused(err error) {
	code := tga.CodeOf(err)
	a.out = outcome{code: code, trace: a.trace(), rpc: mcpraw.CodeInvalidParams, words: err.Error()}
	if errors.Is(err, tga.StoreUnavailable) {
		a.out.rpc = 0
		a.out.words = "The call was not sent: tgad cannot record it now (" + err.Error() + "). Nothing has happened. Repeat the same call later."
	}
}

// gone is the end of a call that nobody waits for any more, before it was sent.
func (a *attempt) gone(code tga.Code, words string) {
	a.out = outcome{code: code, trace: a.trace(), words: words}
}

// late records an answer that came after its call was given up: it ends the doubt.
func (a *attempt) late(b runtime.Begun, f *frames.Frame) {
	a.q.conv.unregister(a.q.w)
	a.s.work.Go(func() {
		defer f.Close()
		if f.Bad != "" {
			return
		}
		ans, err := readAnswer(f, b.Attempt, a.s.opts.MaxKeepBytes)
		if err == nil && (ans.Meaning == mcpraw.IsEffect || ans.Meaning == mcpraw.IsRefusal && b.Attempt == 1) {
			if _, err = a.finish(a.s.life, b, ans.Reply); err == nil {
				a.q.conv.doubts.changed()
			}
		}
		if err != nil {
			a.s.log.Warn("a late answer was not recorded", "trace", b.Result.TraceID, "error", err)
		}
	})
}

// remembered is the trace that waits for an approval of this call, from before a crash.
func (a *attempt) remembered() tga.ID {
	if said := a.s.shelf.Get(a.askName()); said != nil {
		if id, err := tga.ParseID(string(said)); err == nil {
			return id
		}
	}
	return newID()
}

// askPrefix begins the names of pending approvals on the shelf.
const askPrefix = "asked "

// keptName names what is kept about one call: by a digest, for it could be longer than a name.
func keptName(prefix, tool, key string) string {
	sum := tga.Sum([]byte(tool + "\x00" + key))
	return prefix + sum.String()
}

func (a *attempt) askName() string {
	if a.conn.Subject != "" {
		return keptName(askPrefix, a.q.params.Tool, a.conn.Subject+"\x00"+a.key)
	}
	return keptName(askPrefix, a.q.params.Tool, a.key)
}

func (a *attempt) remember(id tga.ID) {
	err := a.s.shelf.Change(a.s.life, a.askName(), func([]byte) []byte { return []byte(id.String()) })
	if err != nil {
		a.s.log.Warn("a pending approval was not noted: after a crash people are asked again", "error", err)
	}
}

func (a *attempt) forget() {
	if a.s.shelf.Get(a.askName()) == nil {
		return
	}
	if err := a.s.shelf.Change(a.s.life, a.askName(), func([]byte) []byte { return nil }); err != nil {
		a.s.log.Warn("an approval that is over was not struck out", "error", err)
	}
}

func (s *Shim) needsKey(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classes[tool]
}

func (s *Shim) setNeedsKey(tool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.classes[tool] = true
}

// countUnsent remembers that an attempt of a trace was given back.
func (s *Shim) countUnsent(trace tga.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsent[trace]++
}

// turn is the number of an attempt among those that may have reached the tool server. What
// an earlier shim gave back is not known here, and counts as one that may have.
func (s *Shim) turn(b runtime.Begun) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.Attempt - min(s.unsent[b.Result.TraceID], b.Attempt-1)
}

// notSent gives a permit back: this attempt certainly did not run. While the log is away it
// is told again for a while, as it is asked for a permit, and also where nobody waits for the
// outcome any more: nobody else knows this, and a call of which it is not told ends in doubt.
func (a *attempt) notSent(ctx context.Context, b runtime.Begun, cause error) {
	a.lookAgain(ctx, workspace.NotSent)
	reason := clip.Runes(cause.Error(), mcpanswer.MaxMessage)
	err := a.askWhile(ctx, func(d time.Duration) bool { return wait.Rest(ctx, d) }, func(ctx context.Context) error {
		return asklog.Patient(ctx, func(ctx context.Context) error {
			_, err := a.s.opts.Log.NotSent(ctx, b.Result.TraceID, b.Permit, reason, a.after)
			return err
		})
	})
	// The log gave a permit, so it may be sent: none before it is in doubt, or a repeat is
	// harmless. Either way the same call may be made again.
	words := "The call was not sent: " + cause.Error() + ". The same call may be repeated."
	if err == nil {
		a.s.countUnsent(b.Result.TraceID)
	} else {
		// The permit is still out: until it is stale, a repeat waits.
		a.s.log.Warn("a permit was not taken back", "trace", b.Result.TraceID, "error", err)
	}
	a.out = outcome{code: tga.ToolError, trace: b.Result.TraceID, words: words}
}

// giveUp tells the log that nobody is at this attempt any more, so that a repeat is
// answered by licence and not told to wait until the permit is stale. It licenses
// nothing by itself, so it may fail.
func (a *attempt) giveUp(ctx context.Context, b runtime.Begun, why string) {
	a.lookAgain(ctx, workspace.InDoubt)
	err := asklog.Patient(ctx, func(ctx context.Context) error {
		return a.s.opts.Log.GiveUp(ctx, b.Result.TraceID, b.Permit, why, a.after)
	})
	if err != nil {
		a.s.log.Debug("an attempt was not given up; a repeat waits until its permit is stale", "trace", b.Result.TraceID, "error", err)
	}
}
