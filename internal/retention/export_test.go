package retention

import (
	"os"
	"testing"
)

// SetMostDue limits one run of a rule to n traces until the test ends.
func SetMostDue(t *testing.T, n int) {
	was := mostDue
	mostDue = n
	t.Cleanup(func() { mostDue = was })
}

// Damage changes each file of an archive before it is read back, until undo is called.
func Damage(change func(*os.File)) (undo func()) {
	written = change
	return func() { written = func(*os.File) {} }
}
