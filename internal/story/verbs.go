package story

import (
	"fmt"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Verb is a command about a trace as somebody types it. find are the flags by which it finds the log, "" where
// it needs none.
func Verb(find, name string, trace tga.ID, rest ...string) string {
	return strings.TrimSpace(strings.Join(append(append([]string{"tgad", name, trace.String()}, rest...), find), " "))
}

// DoubtVerbs are the commands that look at a call in doubt and settle it. attempts is how many there are as
// far as whoever is told knows, 0 where that is not known: with more by then, "it did not run" is refused.
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

// ApprovalVerb is the command that approves a call. about is what an approval has to name; zero where it need
// not.
func ApprovalVerb(find string, trace tga.ID, about tga.Digest) string {
	if about.IsZero() {
		return Verb(find, "approve", trace, "--rationale 'why it may run'")
	}
	return Verb(find, "approve", trace, "--about "+about.String(), "--rationale 'why it may run'")
}
