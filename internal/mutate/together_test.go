package main

import (
	"fmt"
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

func unused(n int) int { return n + 1 }

func Elsewhere(n int) int { return n + 1 }
`

const wovenTest = `package p

import (
	"os"
	"testing"
	"time"
)

func TestAll(t *testing.T) {
	dir, err := os.MkdirTemp("", "left-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := counts{}
	c.add("a")
	spin(2)
	if c["a"] != 1 || sum(3) != 6 || hello("x") != "hello x" || late(time.Second) || !late(3*time.Second) {
		t.Error(c, sum(3))
	}
}
`

// wovenOther has a test that reaches no mutant, and one that reaches those of spin.
const wovenOther = `package p

import "testing"

func TestOther(*testing.T) { _ = unused }

func TestSpin(*testing.T) { spin(0) }
`

const wovenUser = `package q

import (
	"testing"

	"p.test"
)

func TestUser(t *testing.T) {
	if p.Elsewhere(1) != 2 {
		t.Error("not 2")
	}
}
`

// TestMutantsOfOneBinaryAreThoseOfTheirOwn: each mutant ends in the binary that has all mutants of a package
// as it does in a binary of its own. A mutant that loops is stopped and leaves no file.
func TestMutantsOfOneBinaryAreThoseOfTheirOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	files := t.TempDir()
	t.Setenv("TMPDIR", files)
	if err := os.Mkdir("q", 0o700); err != nil {
		t.Fatal(err)
	}
	*with = "q"
	defer func() { *with = "" }()
	for name, text := range map[string]string{
		"go.mod": "module p.test\n\ngo 1.26\n", "p.go": woven, "p_test.go": wovenTest, "other_test.go": wovenOther, "q/q_test.go": wovenUser,
	} {
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
		at("ARITHMETIC_BASE", 11, 47):       broken, // strings have no operator -
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
		at("ARITHMETIC_BASE", 35, 35):       missed,
		at("ARITHMETIC_BASE", 37, 38):       killed, // by the other package's test
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
	if built.least < 5*time.Second {
		t.Errorf("a run may take %v", built.least)
	}
	built.least = time.Second
	alone := 0
	for _, m := range named {
		bare := m
		bare.name = ""
		got, err := tryOne(built, m, temp)
		if err != nil || got != want[bare] {
			t.Errorf("%s is %s (%v), want %s", m.name, got, err, want[bare])
		}
		if built.number[m.name] == 0 {
			alone++
		}
	}
	for m, want := range map[mutant]string{
		at("CONDITIONALS_NEGATION", 14, 16): "0 TestAll", at("ARITHMETIC_BASE", 37, 38): "1 TestUser",
		at("INCREMENT_DECREMENT", 31, 4): "0 TestAll", at("ARITHMETIC_BASE", 35, 35): "",
	} {
		got := ""
		for i := range named {
			if bare := named[i]; bare.kind == m.kind && bare.line == m.line && bare.column == m.column {
				for _, one := range built.reaches[built.number[bare.name]] {
					got += fmt.Sprint(one.suite, " ", one.name)
				}
			}
		}
		if got != want {
			t.Errorf("line %d is reached by %q, want %q", m.line, got, want)
		}
	}
	if alone != 3 { // two constants, and the strings
		t.Errorf("%d mutants are built alone", alone)
	}
	if _, err := os.Stat(filepath.Join(temp, "mutants0.test")); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(files, "*", "left-*"))
	if direct, globErr := filepath.Glob(filepath.Join(files, "left-*")); err != nil || globErr != nil || len(left)+len(direct) > 0 {
		t.Errorf("left %v, %v (%v, %v)", left, direct, err, globErr)
	}
}
