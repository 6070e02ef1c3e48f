package httpcall

import (
	"net/http"
	"strconv"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Outcome is what a status code says about the call.
type Outcome uint8

// Outcomes of a status code.
const (
	// InDoubt: the call may have run, or may still run.
	InDoubt Outcome = 1 + iota
	// Succeeded: the answer is the result.
	Succeeded
	// Failed: the tool ran, or refused for good, and says so.
	Failed
	// NotExecuted: the operator attests that this status means that nothing was done.
	NotExecuted
)

var outcomeNames = [...]string{InDoubt: "in_doubt", Succeeded: "success", Failed: "failure", NotExecuted: "not_executed"}

// String returns the text form of o, "" for an unknown value.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return ""
}

// ParseOutcome reads a text form, VALIDATION_ERROR for any other.
func ParseOutcome(s string) (Outcome, error) {
	for i, n := range outcomeNames {
		if n != "" && n == s {
			return Outcome(i), nil
		}
	}
	return 0, tga.Errorf(tga.ValidationError, "outcome %.80q: want one of %q", s, outcomeNames[1:])
}

// Class returns the outcome class that o records, ClassNone if the class follows from the
// reply's status.
func (o Outcome) Class() ledger.Class {
	switch o {
	case Failed:
		return ledger.ClassPermanent
	case NotExecuted:
		return ledger.ClassRetryable
	}
	return ledger.ClassNone
}

// defaults says what a status means without a rule of the operator: first on attempt 1,
// again on a later attempt. The first matching row counts.
//
// A server may refuse a re-send before it looks at the call (authorization, an occupied key, a
// limit, a route that is gone). Such an answer says nothing about the earlier attempt, which stays
// in doubt.
var defaults = [...]struct {
	from, to     int
	first, again Outcome
}{
	{200, 299, Succeeded, Succeeded},
	{401, 401, Failed, InDoubt},
	{403, 403, Failed, InDoubt},
	{404, 405, Failed, InDoubt}, // the route was removed since, or attempt 1 deleted what it names
	{407, 407, Failed, InDoubt},
	{408, 408, InDoubt, InDoubt}, // the server gave up waiting, and does not say for what
	{409, 409, Failed, InDoubt},  // a server that honours keys answers it for a key that is in use
	{410, 410, Failed, InDoubt},  // as 404
	{421, 421, Failed, InDoubt},
	{425, 425, Failed, InDoubt},
	{429, 429, InDoubt, InDoubt}, // see Config.Statuses
	{431, 431, Failed, InDoubt},
	{400, 499, Failed, Failed},
	{0, 999, InDoubt, InDoubt}, // redirects, which may have run; 5xx; unknown codes
}

// Doubtful reports whether a status by itself leaves open whether the call ran.
// ledger.Licence.ValidateOutcome says which outcome a licence permits for such a status.
func Doubtful(status int) bool {
	for _, d := range defaults {
		if status >= d.from && status <= d.to {
			return d.first == InDoubt && status != http.StatusTooManyRequests
		}
	}
	return true
}

// outcome returns what a status says about an attempt, under the operator's rules.
func outcome(rules map[int]Outcome, status int, attempt uint32) Outcome {
	if o, ok := rules[status]; ok {
		return o
	}
	for _, d := range defaults {
		if status >= d.from && status <= d.to {
			if attempt > 1 {
				return d.again
			}
			return d.first
		}
	}
	return InDoubt
}

// statusText returns a text like "402 Payment Required".
func statusText(status int) string {
	s := strconv.Itoa(status)
	if t := http.StatusText(status); t != "" {
		s += " " + t
	}
	return s
}
