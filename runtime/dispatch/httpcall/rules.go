package httpcall

import (
	"net/http"
	"strconv"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Outcome is what a status code says of the call.
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

// Class returns the outcome class that o records, ClassNone where the reply's status
// says enough.
func (o Outcome) Class() ledger.Class {
	switch o {
	case Failed:
		return ledger.ClassPermanent
	case NotExecuted:
		return ledger.ClassRetryable
	}
	return ledger.ClassNone
}

// defaults says what a status means where no rule of the operator does: first on
// attempt 1, again on a later one. Rows are matched in order.
//
// A re-send is refused at the door (authorization, an occupied key, a limit) without
// a word about the attempt before it: such an answer leaves that one in doubt.
var defaults = [...]struct {
	from, to     int
	first, again Outcome
}{
	{200, 299, Succeeded, Succeeded},
	{401, 401, Failed, InDoubt},
	{403, 403, Failed, InDoubt},
	{407, 407, Failed, InDoubt},
	{408, 408, InDoubt, InDoubt}, // the server gave up waiting, for what it does not say
	{409, 409, Failed, InDoubt},  // a server that honours keys says it of one that is in use
	{421, 421, Failed, InDoubt},
	{425, 425, Failed, InDoubt},
	{429, 429, InDoubt, InDoubt}, // see Config.Statuses
	{431, 431, Failed, InDoubt},
	{400, 499, Failed, Failed},
	{0, 999, InDoubt, InDoubt}, // redirects, which may have run; 5xx; what nobody knows
}

// Doubtful reports whether a status by itself leaves open whether the call ran. What
// a licence permits for it, ledger.Licence.ValidateOutcome says.
func Doubtful(status int) bool {
	for _, d := range defaults {
		if status >= d.from && status <= d.to {
			return d.first == InDoubt && status != http.StatusTooManyRequests
		}
	}
	return true
}

// outcome returns what a status says of attempt n under the operator's rules.
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

// statusText is "402 Payment Required".
func statusText(status int) string {
	s := strconv.Itoa(status)
	if t := http.StatusText(status); t != "" {
		s += " " + t
	}
	return s
}
