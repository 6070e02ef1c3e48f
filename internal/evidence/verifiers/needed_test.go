package verifiers_test

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/serial"
)

// checkLine is a line with one check in it: sound, there, form and must refuse if their first argument is
// false.
var checkLine = regexp.MustCompile(`^\s+(?:(?:if|for|else)[^;]*[ )])?(sound|there|form|must)\(`)

// needed are the checks that the test takes out, by a part of their text. A check that is backed by another
// one is not among them, such as that of a link whose end a leaf names: without it the verdict stays.
var needed = []string{
	"entry_digest is not that of the entry\"", "has another digest\"", "is not in the tree of the checkpoint", "did not grow from", "had another head in the old checkpoint",
	"an append of the trace is missing", "and came after the checkpoint of", "came after the checkpoint, the receipt says", "stands as that of index", "is none of trace",
}

// TestEveryCheckIsNeeded takes one check after the other out of each program. The grid must notice each.
func TestEveryCheckIsNeeded(t *testing.T) {
	cases, want := allCases(t)
	// A few whole files are enough. Without a check nothing more is refused.
	var whole []tried
	var verdicts []verdict
	for i := range cases {
		if cases[i].at < 0 && want[i].Verdict == refused {
			whole, verdicts = append(whole, cases[i]), append(verdicts, want[i])
		}
	}
	in := input(t, whole, verdicts)
	for _, p := range programs {
		yes := "True or "
		if p.interpreter == "node" {
			yes = "true || "
		}
		for i, says := range needed {
			t.Run(p.name+" "+says, func(t *testing.T) {
				if i > 1 {
					serial.Long(t)
				}
				t.Parallel()
				lines := bytes.SplitAfter(p.source, []byte("\n"))
				n := slices.IndexFunc(lines, func(line []byte) bool { return checkLine.Match(line) && bytes.Contains(line, []byte(says)) })
				if n < 0 {
					t.Fatal("there is no such check")
				}
				at := checkLine.FindSubmatchIndex(lines[n])[3] + 1
				lines[n] = slices.Concat(lines[n][:at], []byte(yes), lines[n][at:])
				// The driver names the first case with a different verdict.
				if got, err := p.run(t, bytes.Join(lines, nil), in); err == nil && len(got) == 0 {
					t.Error("without it every verdict is the same")
				}
			})
		}
	}
}
