package retention

import "testing"

// SetMostDue has one run of a rule take at most n traces until the test ends.
func SetMostDue(t *testing.T, n int) {
	was := mostDue
	mostDue = n
	t.Cleanup(func() { mostDue = was })
}
