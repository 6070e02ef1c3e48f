package main

import (
	"strings"
	"testing"
)

const source = `package p

func f(a, b int) bool {
	if a < b {
		return a-b <= -1
	}
	if a < b {
		return true
	}
	return a%b == 0
}
`

// TestMutantsAreNamedByWhatTheyAre: two equal lines are told apart, and lines that are
// added above change no name.
func TestMutantsAreNamedByWhatTheyAre(t *testing.T) {
	at := func(down int) []mutant {
		return []mutant{
			{path: "p.go", kind: "CONDITIONALS_BOUNDARY", line: 4 + down, column: 7}, {path: "p.go", kind: "CONDITIONALS_NEGATION", line: 4 + down, column: 7},
			{path: "p.go", kind: "CONDITIONALS_BOUNDARY", line: 7 + down, column: 7},
		}
	}
	want := []string{"p.go f CONDITIONALS_BOUNDARY if a < b {", "p.go f CONDITIONALS_NEGATION if a < b {", "p.go f CONDITIONALS_BOUNDARY if a < b { #2"}
	for down, text := range []string{source, strings.Replace(source, "func", "\nfunc", 1)} {
		got, err := name([]byte(text), at(down))
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i].name != want[i] {
				t.Errorf("%q, want %q", got[i].name, want[i])
			}
		}
	}
}

func TestMutantsChangeOneOperator(t *testing.T) {
	for _, c := range []struct {
		kind         string
		line, column int
		want         string
	}{
		{"CONDITIONALS_BOUNDARY", 4, 7, "if a <= b {"}, {"CONDITIONALS_NEGATION", 4, 7, "if a >= b {"},
		{"ARITHMETIC_BASE", 5, 11, "return a+b <= -1"}, {"CONDITIONALS_BOUNDARY", 5, 14, "return a-b < -1"},
		{"INVERT_NEGATIVES", 5, 17, "return a-b <= +1"}, {"ARITHMETIC_BASE", 10, 10, "return a*b == 0"},
		{"CONDITIONALS_NEGATION", 10, 13, "return a%b != 0"}, {"INCREMENT_DECREMENT", 4, 7, ""}, {"ARITHMETIC_BASE", 99, 1, ""},
	} {
		got, err := mutant{kind: c.kind, line: c.line, column: c.column}.apply([]byte(source))
		if (err == nil) != (c.want != "") || !strings.Contains(string(got), c.want) {
			t.Errorf("%+v: %v\n%s", c, err, got)
		}
	}
}

func TestListHasReasons(t *testing.T) {
	known, err := parseList("# why\n\na.go f KIND x < y\n\ta hint\nb.go g KIND z\n\ta word\n")
	if err != nil || len(known) != 2 || known["a.go f KIND x < y"] != "a hint" {
		t.Errorf("%v %v", known, err)
	}
	for _, bad := range []string{"a.go f KIND x\n", "\ta reason\n", "a\nb\n\tr\n", "a\n\tr\na\n\tr\n"} {
		if known, err := parseList(bad); err == nil {
			t.Errorf("%q: %v", bad, known)
		}
	}
}
