package verify

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Most characters of a reply's texts (docs/FORMAT.md).
const (
	maxSummary = 500
	maxMessage = 200
)

// Answered turns what the rules of a probe said into its answer, and says why. For a call
// that ran it needs a reply; if reply fails, the answer is unknown.
func Answered(ran, notRan, fences bool, reply func() (runtime.Reply, error)) (runtime.Probed, string) {
	switch {
	case ran && notRan:
		return runtime.Probed{}, "rules of ran and of not_ran hold"
	case notRan:
		return runtime.Probed{Answer: ledger.ProbeNotRan, Fenced: fences}, "a rule of not_ran holds"
	case !ran:
		return runtime.Probed{}, "no rule holds"
	}
	r, err := reply()
	if err != nil {
		return runtime.Probed{}, "it ran, and there is no reply to record: " + err.Error()
	}
	return runtime.Probed{Answer: ledger.ProbeRan, Reply: r}, "a rule of ran holds"
}

// CheckPointers refuses a text under the key reply that is no JSON Pointer.
func CheckPointers(result, summary string) error {
	for _, p := range [...]struct{ key, pointer string }{{"reply.result", result}, {"reply.summary", summary}} {
		if !ValidPointer(p.pointer) {
			return Invalid(p.key, "%.80q is no JSON Pointer", p.pointer)
		}
	}
	return nil
}

// NamesCall reports whether names identify a call. Server and tool alone do not: an answer
// about the tool in general says nothing about one call.
func NamesCall(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return n != "server" && n != "tool" })
}

// Said says how to make the reply of a call that ran from the answer to a probe.
type Said struct {
	Result  string // JSON Pointer; "" = the whole answer, byte for byte
	Summary string // JSON Pointer; "" = none
	Failed  bool   // the tool reported an error
}

// Reply makes the reply. It fails if the answer has no result, because an effect must not
// be invented. A summary may be missing. hide removes secrets from the texts for people.
func (a Said) Reply(answer []byte, hide func(string) string) (runtime.Reply, error) {
	r := runtime.Reply{Status: tga.StatusSuccess, Result: answer}
	doc := Doc(nil)
	if a.Result != "" || a.Summary != "" {
		var err error
		if doc, err = ParseDoc(answer); err != nil {
			return r, err
		}
	}
	if a.Result != "" {
		value, ok, err := doc.Lookup(a.Result)
		if err != nil || !ok {
			return r, errors.Join(fmt.Errorf("nothing stands at %s", a.Result), err)
		}
		r.Result = value
	}
	said := ""
	if a.Summary != "" {
		value, _, err := doc.Lookup(a.Summary)
		if err != nil {
			return r, err
		}
		text, _ := value.Text()
		said = hide(text)
	}
	r.Summary = firstRunes(said, maxSummary)
	if a.Failed {
		r.Status, r.ErrorCode = tga.StatusFailure, string(tga.ToolError)
		r.ErrorMessage = firstRunes(said, maxMessage)
	}
	r.ResultBytes, r.ResultDigest = int64(len(r.Result)), tga.Sum(r.Result)
	return r, nil
}

// firstRunes returns the first n characters of a text.
func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
