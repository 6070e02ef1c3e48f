package turn

import "testing"

// LimitRecords limits the bytes of a record until a test ends.
func LimitRecords(t *testing.T, most int) {
	was := maxRecord
	maxRecord = most
	t.Cleanup(func() { maxRecord = was })
}
