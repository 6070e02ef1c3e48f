// Package serial marks tests that take long or need another program.
//
// Some tests do hundreds of steps one after the other (every crash point, every flipped byte), or wait
// long. They take minutes under the race detector, which finds nothing in them, so `make race` leaves
// them out. Other tests take minutes in any case: only `make accept` runs those. And some tests compare
// tgad with a program of somebody else.
package serial

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Test skips the test in a run with -short.
func Test(t testing.TB) {
	if testing.Short() {
		t.Helper()
		t.Skip("one thing after the other: go test without -short runs it")
	}
}

// Whole reports whether this is a run of `make accept`, which runs all tests.
func Whole() bool { return os.Getenv("TGAD_ACCEPT") != "" }

// Long skips the test unless this is a run of `make accept`.
func Long(t testing.TB) {
	if !Whole() {
		t.Helper()
		t.Skip("minutes: make accept runs it")
	}
}

// Program returns the path of a program that a test compares with and that tgad itself does not need. If
// the program is missing, the test is skipped. In make accept it fails instead.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil && name == "python3" {
		path, err = python()
	}
	if err != nil {
		Missing(t, name, err)
	}
	return path
}

// python finds the interpreter that python3 starts, once: python3 may be a script that searches each time.
var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// Missing ends a test that cannot run because something is missing here. It skips the test, and fails it
// in make accept.
func Missing(t testing.TB, what string, err error) {
	t.Helper()
	if Whole() {
		t.Fatalf("%s is missing, and make accept runs everything: %v", what, err)
	}
	t.Skipf("%s is not here, so what it was to see was not tried: %v", what, err)
}
