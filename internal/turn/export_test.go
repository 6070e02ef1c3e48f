package turn

import "testing"

// LimitRecords makes records of more bytes too large, until a test ends.
func LimitRecords(t *testing.T, most int) {
	was := maxRecord
	maxRecord = most
	t.Cleanup(func() { maxRecord = was })
}
