package clip

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCleanLeavesNoControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"order-17":           "order-17",
		"naïve ☃":            "naïve ☃",
		"\x1b[2Jgone":        `\x1b[2Jgone`,
		"a\nb\tc":            `a\nb\tc`,
		"\u202etxt.exe":      `\u202etxt.exe`,
		"bad \xff utf8":      "bad � utf8",
		"sep\u2028next":      `sep\u2028next`,
		"c1 \u009b31m":       `c1 \u009b31m`,
		"zero\u200bwidth":    `zero\u200bwidth`,
		"quote ' and \" and": "quote ' and \" and",
	} {
		got := Clean(in)
		if got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
		if strings.ContainsFunc(got, unicode.IsControl) || !utf8.ValidString(got) {
			t.Errorf("Clean(%q) = %q may move a cursor", in, got)
		}
	}
}
