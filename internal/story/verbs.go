package story

import (
	"fmt"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Verb returns a command about a trace, as a person types it. find has the flags by which the command finds the
// log, "" if it needs none.
func Verb(find, name string, trace tga.ID, rest ...string) string {
	return strings.TrimSpace(strings.Join(append(append([]string{"tgad", name, trace.String()}, rest...), find), " "))
}

// DoubtVerbs returns the commands that show a call in doubt and settle it. attempts is the number of attempts
// that the reader knows of, 0 if unknown. If there are more by then, the outcome not-run is refused.
func DoubtVerbs(find string, trace tga.ID, attempts uint32) []string {
	const known = "--evidence 'how you know'"
	notRun := "--outcome not-run"
	if attempts > 0 {
		notRun += fmt.Sprintf(" --attempts %d", attempts)
	}
	return []string{
		Verb(find, "show", trace),
		Verb(find, "resolve", trace, "--outcome ran", known),
		Verb(find, "resolve", trace, notRun, known),
		Verb(find, "abandon", trace, "--reason 'why'"),
	}
}

// ApprovalVerb returns the command that approves a call. about is the question that the approval must name,
// zero if it need not name one.
func ApprovalVerb(find string, trace tga.ID, about tga.Digest) string {
	if about.IsZero() {
		return Verb(find, "approve", trace, "--rationale 'why it may run'")
	}
	return Verb(find, "approve", trace, "--about "+about.String(), "--rationale 'why it may run'")
}
