package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
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

// TestMutantsAreNamedByWhatTheyAre: two equal lines have different names. Neither lines that are added above
// nor the order in which gremlins finds the mutants change a name.
func TestMutantsAreNamedByWhatTheyAre(t *testing.T) {
	at := func(down int) []mutant {
		return []mutant{
			{path: "p.go", kind: "CONDITIONALS_BOUNDARY", line: 4 + down, column: 7}, {path: "p.go", kind: "CONDITIONALS_NEGATION", line: 4 + down, column: 7},
			{path: "p.go", kind: "CONDITIONALS_BOUNDARY", line: 7 + down, column: 7},
		}
	}
	reversed := at(0)
	slices.Reverse(reversed)
	want := []string{"p.go f CONDITIONALS_BOUNDARY if a < b {", "p.go f CONDITIONALS_NEGATION if a < b {", "p.go f CONDITIONALS_BOUNDARY if a < b { #2"}
	for _, c := range []struct {
		text string
		all  []mutant
	}{{source, at(0)}, {source, reversed}, {strings.Replace(source, "func", "\nfunc", 1), at(1)}} {
		got, err := name([]byte(c.text), c.all)
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

// TestListedMutantsAreThere: if the line of a listed mutant has changed, somebody must look at it again.
func TestListedMutantsAreThere(t *testing.T) {
	text, err := os.ReadFile("survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	known, err := parseList(string(text))
	if err != nil || len(known) == 0 {
		t.Fatalf("%d mutants, %v", len(known), err)
	}
	for n := range known {
		if err := thereIs(n); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
	for _, bad := range []string{
		"ledger/none.go f ARITHMETIC_BASE a + b", "ledger/decide.go none ARITHMETIC_BASE a + b", "ledger/decide.go Decide NONE d := 1",
		"ledger/decide.go Decide ARITHMETIC_BASE holds := q.facts()", "ledger/decide.go Decide CONDITIONALS_NEGATION if gone != 1 {",
	} {
		if thereIs(bad) == nil {
			t.Errorf("%s is there", bad)
		}
	}
}

// thereIs says why no mutant can have that name.
func thereIs(n string) error {
	path, rest, _ := strings.Cut(n, " ")
	in, rest, _ := strings.Cut(rest, " ")
	kind, line, _ := strings.Cut(rest, " ")
	line = regexp.MustCompile(` #\d+$`).ReplaceAllString(line, "")
	src, err := os.ReadFile("../../" + path)
	if err != nil {
		return err
	}
	operator := false
	for from := range changes[kind] {
		operator = operator || strings.Contains(line, from)
	}
	if !operator {
		return fmt.Errorf("its line has no operator that %s changes", kind)
	}
	for i, s := range strings.Split(string(src), "\n") {
		if strings.TrimSpace(s) != line {
			continue
		}
		at, err := name(src, []mutant{{path: path, kind: kind, line: i + 1}})
		if err != nil {
			return err
		}
		if at[0].name == fmt.Sprintf("%s %s %s %s", path, in, kind, line) {
			return nil
		}
	}
	return errors.New("no such line in that function")
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

func TestLimitsOfARun(t *testing.T) {
	for _, c := range []struct{ killed, halted, lived, missed, flaws int }{
		{96, 1, 3, 5, 0}, {96, 0, 4, 0, 1}, {95, 0, 0, 5, 0}, {94, 0, 0, 6, 1}, {1, 0, 1, 2, 2}, {0, 0, 0, 0, 0},
	} {
		got := tooFew("p", map[fate]int{killed: c.killed, halted: c.halted, lived: c.lived, missed: c.missed, broken: 50})
		if len(got) != c.flaws {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestSampleIsOneOfEvery: the list is asked only for the mutants of the sample.
func TestSampleIsOneOfEvery(t *testing.T) {
	*every = 3
	defer func() { *every = 1 }()
	var all []mutant
	known := map[string]string{}
	for i := range 7 {
		all = append(all, mutant{name: fmt.Sprint(i)})
		known[fmt.Sprint(i)] = "a hint"
	}
	some := sample(all, known)
	if len(some) != 3 || some[0].name != "0" || some[1].name != "3" || some[2].name != "6" || len(known) != 3 || known["6"] == "" {
		t.Errorf("%v %v", some, known)
	}
	*first = 2
	defer func() { *first = 0 }()
	if some = sample(all, known); len(some) != 2 || some[0].name != "2" || some[1].name != "5" {
		t.Errorf("from the third on: %v", some)
	}
}
