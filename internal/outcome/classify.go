package outcome

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// rule is a Rule ready for use.
type rule struct {
	at      pointer // nil = no condition on a value
	matches func(v *value, absent bool) bool
	status  []int
	isError *bool
	class   ledger.Class
}

func (t *tool) compileRule(c *Rule, at string) (rule, error) {
	u := rule{status: c.Status, isError: c.IsError}
	var err error
	if u.class, err = ledger.ParseClass(c.Class); err != nil {
		return rule{}, wrong(at, "class", "%w", err)
	}
	if u.class == ledger.ClassCompensated {
		return rule{}, wrong(at, "class", "%v is not for an answer to say: a compensation makes it so", u.class)
	}
	tests := 0
	for _, set := range [...]bool{c.Equals != nil, c.Matches != "", c.Exists, c.Absent} {
		if set {
			tests++
		}
	}
	switch {
	case c.Pointer != "" && tests != 1:
		return rule{}, wrong(at, "pointer", "goes with one of equals, matches, exists and absent, not with %d", tests)
	case c.Pointer == "" && tests != 0:
		return rule{}, wrong(at, "pointer", "is missing beside equals, matches, exists or absent")
	case c.Pointer == "" && len(c.Status) == 0 && c.IsError == nil:
		return rule{}, wrong(at, "pointer", "a rule without pointer, status and is_error would match every answer")
	case len(c.Status) > MaxStatuses:
		return rule{}, wrong(at, "status", "%d, at most %d", len(c.Status), MaxStatuses)
	case len(c.Status) > 0 && t.form == FormMCP:
		return rule{}, wrong(at, "status", "an MCP answer has none")
	}
	for _, s := range c.Status {
		if s < 100 || s > 599 {
			return rule{}, wrong(at, "status", "%d is no status of HTTP", s)
		}
	}
	if c.Pointer != "" {
		if u.at, err = parseIn(c.Pointer, t.documents()); err != nil {
			return rule{}, wrong(at, "pointer", "%w", err)
		}
		if u.matches, err = c.condition(at); err != nil {
			return rule{}, err
		}
	}
	// An answer proves that nothing was done only by a value in it, or by a status with that
	// meaning. It proves nothing that the call failed, that a member is missing, or that an
	// argument of the call has some value.
	definite := (c.Equals != nil || c.Matches != "") && u.at[0] != docArgs
	if len(c.Status) > 0 {
		definite = !slices.ContainsFunc(c.Status, doubtful)
	}
	if err := t.licence.ValidateOutcome(u.class, !definite); err != nil {
		return rule{}, wrong(at, "class", "%w", err)
	}
	return u, nil
}

// condition returns the test of the value at a rule's pointer.
func (c *Rule) condition(at string) (func(v *value, absent bool) bool, error) {
	switch {
	case c.Equals != nil:
		want, err := canonical(c.Equals)
		if err != nil {
			return nil, wrong(at, "equals", "%w", err)
		}
		return func(v *value, _ bool) bool {
			if v == nil {
				return false
			}
			// Comparing canonical forms compares values: 1.0 is 1. A value without a canonical
			// form equals nothing.
			got, err := tga.Canonicalize(v.raw, tga.Limits{})
			return err == nil && bytes.Equal(got, want)
		}, nil
	case c.Matches != "":
		if len(c.Matches) > maxPointer {
			return nil, wrong(at, "matches", "has %d bytes, at most %d", len(c.Matches), maxPointer)
		}
		// Compile it alone first: "a)|(b" is no expression, but would be one inside the group below.
		if _, err := regexp.Compile(c.Matches); err != nil {
			return nil, wrong(at, "matches", "%w", err)
		}
		// The whole string: "declined" must not match "not declined".
		expr, err := regexp.Compile(`^(?:` + c.Matches + `)$`)
		if err != nil {
			return nil, wrong(at, "matches", "%w", err)
		}
		return func(v *value, _ bool) bool {
			if v == nil || v.kind() != '"' {
				return false
			}
			s, err := v.text()
			return err == nil && expr.MatchString(s)
		}, nil
	case c.Exists:
		return func(v *value, _ bool) bool { return v != nil }, nil
	}
	return func(_ *value, absent bool) bool { return absent }, nil
}

// canonical returns the canonical form of a scalar of the configuration.
func canonical(v any) ([]byte, error) {
	switch v.(type) {
	case string, bool, int, int64, float64, json.Number:
	default:
		return nil, fmt.Errorf("is a %T, want a string, boolean or number", v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return tga.Canonicalize(raw, tga.Limits{})
}

// doubtful reports whether an HTTP status by itself leaves open whether the call ran.
func doubtful(status int) bool { return status < 400 || status > 499 || status == 408 }

// Outcome sets the class of reply, and what the call changed, by the tool's rules. It
// is [runtime.Trust.Outcome]. A reply without rules, or that no rule matches, keeps its
// class; a reply with changes keeps them. A rule with the class of a failure turns a
// SUCCESS into a FAILURE. A reply with status ERROR is no answer of a tool and
// stays as it is.
//
// An error (SCHEMA_VIOLATION, VALIDATION_ERROR, LIMIT_EXCEEDED) says what could not be
// read, or which class was refused. Everything else is set, and the effect can be recorded.
func (r *Rules) Outcome(call runtime.Call, reply *runtime.Reply) error {
	t := r.find(call.Server, call.Tool)
	switch {
	case t == nil || len(t.rules)+len(t.changes) == 0:
		return nil
	case reply.Truncated:
		return tga.Errorf(tga.LimitExceeded, "the answer of %d bytes was not kept: no rule was tried", reply.ResultBytes).In(call.TraceID)
	case reply.Status == tga.StatusError:
		return nil
	}
	d := documentsOf(t.form, call.Args, reply.Result)
	err := t.classify(d, reply)
	changed := reply.Class == ledger.ClassCommitted || reply.Class == ledger.ClassCompensatable ||
		reply.Class == ledger.ClassNone && reply.Status == tga.StatusSuccess
	if changed && len(reply.Changes) == 0 {
		var wrong error
		reply.Changes, wrong = t.changesOf(d)
		err = join(err, wrong)
	}
	if err != nil {
		return tga.Errorf(codeOr(err), "%s on %s: %w", call.Tool, call.Server, err).In(call.TraceID)
	}
	return nil
}

// classify gives reply the class of the first rule that matches.
func (t *tool) classify(d documents, reply *runtime.Reply) error {
	status := statusOf(t.form, reply)
	for i := range t.rules {
		u := &t.rules[i]
		if !u.match(d, status, reply) {
			continue
		}
		refuse := func(format string, args ...any) error {
			return fmt.Errorf("outcome %d, %v: "+format, append([]any{i, u.class}, args...)...)
		}
		// HTTP 200 with {"ok":false}: the operator's rule says that this is a failure.
		failed := reply.Status == tga.StatusSuccess && u.class.Agree(tga.StatusFailure)
		if !failed && !u.class.Agree(reply.Status) {
			return refuse("no class for an answer with status %s", reply.Status)
		}
		if u.class == ledger.ClassRetryable {
			// A rule without a status may match an answer whose status leaves doubt.
			if err := t.licence.ValidateOutcome(u.class, status != 0 && doubtful(status)); err != nil {
				return refuse("HTTP status %d: %w", status, err)
			}
		}
		reply.Class = u.class
		if failed {
			reply.Status = tga.StatusFailure
			if reply.ErrorCode == "" {
				reply.ErrorCode, reply.ErrorMessage = string(tga.ToolError), fmt.Sprintf("outcome rule %d calls the answer a %v", i, u.class)
			}
		}
		return nil
	}
	return nil
}

func (u *rule) match(d documents, status int, reply *runtime.Reply) bool {
	return (u.isError == nil || *u.isError == (reply.Status != tga.StatusSuccess)) &&
		(len(u.status) == 0 || slices.Contains(u.status, status)) &&
		(u.at == nil || u.matches(d.find(u.at)))
}

// statusOf returns the HTTP status that package httpcall writes at the beginning of the
// summary or error message of an answer, 0 if there is none. It does not look at the words of
// an MCP tool, because the tool itself wrote them.
func statusOf(form string, reply *runtime.Reply) int {
	if form == FormMCP {
		return 0
	}
	said := reply.ErrorMessage
	if reply.Status == tga.StatusSuccess {
		said = reply.Summary
	}
	digits, ok := strings.CutPrefix(said, "HTTP ")
	if !ok || len(digits) < 3 || len(digits) > 3 && digits[3] != ' ' {
		return 0
	}
	status, err := strconv.Atoi(digits[:3])
	if err != nil || status < 100 {
		return 0
	}
	return status
}
