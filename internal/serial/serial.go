// Package serial marks tests by what they take.
//
// Some do hundreds of things one after the other, every crash point, every flipped byte, or wait long.
// They take minutes under the race detector, which has nothing to find in them, so `make race` leaves
// them out. Others take minutes anyway: only `make accept` runs those.
package serial

import (
	"os"
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
