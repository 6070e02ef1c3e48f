// Package serial marks tests that do hundreds of things one after the other: every crash point,
// every flipped byte. They take minutes under the race detector, which has nothing to find in them,
// so `make race` leaves them out.
package serial

import "testing"

// Test skips the test where only short ones are wanted.
func Test(t testing.TB) {
	if testing.Short() {
		t.Helper()
		t.Skip("one thing after the other: go test without -short runs it")
	}
}
