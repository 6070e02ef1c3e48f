// Package serial marks tests by what they take.
//
// Some do hundreds of things one after the other, every crash point, every flipped byte, or wait long.
// They take minutes under the race detector, which has nothing to find in them, so `make race` leaves
// them out. Others take minutes anyway: only `make accept` runs those. And some
// compare with a program of others.
package serial

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Test skips the test where only short ones are wanted.
func Test(t testing.TB) {
	if testing.Short() {
		t.Helper()
		t.Skip("one thing after the other: go test without -short runs it")
	}
}

// Whole says that this is `make accept`, which takes its time.
func Whole() bool { return os.Getenv("TGAD_ACCEPT") != "" }

// Long skips the test where this is not `make accept`.
func Long(t testing.TB) {
	if !Whole() {
		t.Helper()
		t.Skip("minutes: make accept runs it")
	}
}

// Program returns the path of a program that a test compares with and that tgad does not need. Where it is
// missing the test is skipped, but not in make accept, which has to have seen it.
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

// python is the interpreter that python3 starts, which may be a script that looks for it each time.
var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// Missing ends a test that cannot run here, for want of what it compares with: skipped, or failed in make
// accept.
func Missing(t testing.TB, what string, err error) {
	t.Helper()
	if Whole() {
		t.Fatalf("%s is missing, and make accept runs everything: %v", what, err)
	}
	t.Skipf("%s is not here, so what it was to see was not tried: %v", what, err)
}
