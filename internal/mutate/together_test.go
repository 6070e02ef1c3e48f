package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

const woven = `package p

import "time"

const most = 3 - 1

type counts map[string]int

func (c counts) add(s string) { c[s]++ }

func hello(a string) string { return "hello " + a }

func sum(n int) (s int) {
	for i := 0; i < n; i++ {
		s += -(-i - 1) // 1 more than i
	}
	return s
}

func late(d time.Duration) bool {
	switch {
	case d+time.Second > // a comment
		time.Duration(most+1)*time.Second:
		return true
	}
	return false
}

func spin(n int) {
	for n != 0 {
		n--
	}
}
`

const wovenTest = `package p

import (
	"testing"
	"time"
)

func TestAll(t *testing.T) {
	c := counts{}
	c.add("a")
	spin(2)
	if c["a"] != 1 || sum(3) != 6 || hello("x") != "hello x" || late(time.Second) || !late(3*time.Second) {
		t.Error(c, sum(3))
	}
}
`

// TestMutantsOfOneBinaryAreThoseOfTheirOwn: the binary that has all mutants of a package
// ends as each mutant does that is built alone, and one that loops is stopped.
func TestMutantsOfOneBinaryAreThoseOfTheirOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"go.mod": "module p.test\n\ngo 1.26\n", "p.go": woven, "p_test.go": wovenTest} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(kind string, line, column int) mutant {
		return mutant{path: "p.go", kind: kind, line: line, column: column}
	}
	want := map[mutant]fate{
		at("ARITHMETIC_BASE", 5, 16):        killed, // a constant, so it is built alone
		at("INCREMENT_DECREMENT", 9, 37):    killed,
		at("ARITHMETIC_BASE", 11, 47):       broken, // strings have no -
		at("CONDITIONALS_BOUNDARY", 14, 16): killed,
		at("CONDITIONALS_NEGATION", 14, 16): killed,
		at("INVERT_NEGATIVES", 15, 8):       killed,
		at("INVERT_NEGATIVES", 15, 10):      killed,
		at("ARITHMETIC_BASE", 15, 13):       killed,
		at("ARITHMETIC_BASE", 22, 8):        killed,
		at("CONDITIONALS_BOUNDARY", 22, 21): lived, // no test at the limit
		at("CONDITIONALS_NEGATION", 22, 21): killed,
		at("ARITHMETIC_BASE", 23, 21):       killed,
		at("INCREMENT_DECREMENT", 31, 4):    halted,
	}
	var all []mutant
	for m := range want {
		all = append(all, m)
	}
	named, err := name([]byte(woven), all)
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	built, err := compile(".", named, temp)
	if err != nil || built == nil {
		t.Fatal(built, err)
	}
	built.limit = 1
	if built.wait < 30*time.Second || built.wait > 10*time.Minute {
		t.Errorf("a run may take %v", built.wait)
	}
	alone := 0
	for _, m := range named {
		bare := m
		bare.name = ""
		got, err := tryOne(built, ".", m, temp)
		if err != nil || got != want[bare] {
			t.Errorf("%s is %s (%v), want %s", m.name, got, err, want[bare])
		}
		if built.number[m.name] == 0 {
			alone++
		}
	}
	if alone != 3 { // two constants, and the strings
		t.Errorf("%d mutants are built alone", alone)
	}
	if _, err := os.Stat(filepath.Join(temp, "mutants.test")); err != nil {
		t.Error(err)
	}
}
