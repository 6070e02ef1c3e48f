//go:build unix

package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJournalThatCannotBeReadIsNotCounted: a count that misses lines is an error.
func TestJournalThatCannotBeReadIsNotCounted(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	line := `{"what":"acted","tool":"charge","key":"k"}` + "\n"
	long := `{"what":"acted","tool":"charge","key":"` + strings.Repeat("k", 1<<20) + `"}` + "\n"
	for _, c := range []struct {
		text string
		n    int
		bad  bool
	}{{line + line, 2, false}, {line + long + line, 1, true}} {
		if err := os.WriteFile(journal, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := acts(journal, "acted", "charge", ""); n != c.n || (err != nil) != c.bad {
			t.Errorf("%d lines, %v; want %d, an error: %v", n, err, c.n, c.bad)
		}
	}
}
