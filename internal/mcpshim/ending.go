package mcpshim

import (
	"errors"
	"fmt"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// serve is the end of a call whose effect is recorded.
func (a *attempt) serve(r runtime.Result) {
	a.forget()
	a.out = outcome{trace: r.TraceID, digest: r.Digest}
	if !r.ServedFrom.IsZero() {
		a.out.trace = r.ServedFrom
	}
	switch {
	case r.State == tga.Denied:
		a.out.code, a.out.words = tga.PolicyViolation, "The call was denied: "+r.Rationale+". It was not sent. Do not repeat it unchanged."
	case r.ErrorCode == tga.EffectInDoubt:
		a.out.code = tga.EffectInDoubt
		a.out.words = doubtWords(a.q.params.tool, r.TraceID, "it was given up without anybody learning whether it ran")
	case r.Value != nil:
		a.out.value, a.out.fault, a.out.final = r.Value, isFault(r.Value), true
	case r.Status == tga.StatusSuccess || r.ErrorCode == tga.LimitExceeded:
		a.out.final = true // its value is not kept
	default:
		a.out.code, a.out.final = r.ErrorCode, true
		a.out.words = fmt.Sprintf("The call failed before, and it is recorded so: %s (%s).", firstOf(r.ErrorMessage, r.Summary, r.Status), r.ErrorCode)
	}
}

// inDoubt is the end of a call of which nobody knows whether it ran.
func (a *attempt) inDoubt(why string) {
	a.out = outcome{code: tga.EffectInDoubt, trace: a.trace(), words: doubtWords(a.q.params.tool, a.trace(), why)}
}

// doubtWords tells a model what it must know: that repeating may do it twice, that this
// call is not repeated for it, and who can say what happened.
func doubtWords(tool string, trace tga.ID, why string) string {
	return fmt.Sprintf("OUTCOME UNKNOWN. The call of %s may have run: %s. It is not run again, because that could do it twice. "+
		"Do not try to do the same thing in another way before it is known what happened. Find out with a read-only tool, or ask the user: "+
		"the operator can look at it with \"tgad show %s\" and settle it with \"tgad resolve %s\" or \"tgad abandon %s\". "+
		"After that the same call gets the recorded answer. Trace %s.", tool, why, trace, trace, trace, trace)
}

// refused is the end of a call that the log does not take.
func (a *attempt) refused(err error) {
	code := tga.CodeOf(err)
	a.out = outcome{code: code, trace: a.trace(), rpc: codeInvalidParams, words: err.Error()}
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
func (a *attempt) late(b runtime.Begun, f *frame) {
	a.q.conv.unregister(a.q.w)
	a.s.work.Go(func() {
		defer f.close()
		if f.bad != "" {
			return
		}
		ans, err := readAnswer(f, b.Attempt, a.s.opts.MaxKeepBytes)
		if err == nil && (ans.meaning == isEffect || ans.meaning == isRefusal && b.Attempt == 1) {
			_, err = a.finish(a.s.life, b, ans.reply)
		}
		if err != nil {
			a.s.log.Warn("a late answer was not recorded", "trace", b.Result.TraceID, "error", err)
		}
	})
}

// remembered is the trace that waits for an approval of this call, from before a crash.
func (a *attempt) remembered() tga.ID {
	said, err := a.s.book.get("asked " + a.q.params.tool + " " + a.key)
	if err == nil && said != "" {
		if id, err := tga.ParseID(said); err == nil {
			return id
		}
	}
	return newID()
}

func (a *attempt) remember(id tga.ID) {
	err := a.s.book.change("asked "+a.q.params.tool+" "+a.key, func(string) string { return id.String() })
	if err != nil {
		a.s.log.Warn("a pending approval was not noted: after a crash people are asked again", "error", err)
	}
}

func (a *attempt) forget() {
	name := "asked " + a.q.params.tool + " " + a.key
	if said, err := a.s.book.get(name); err != nil || said == "" {
		return
	}
	if err := a.s.book.change(name, func(string) string { return "" }); err != nil {
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

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}
