package cli

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressIsForPeople: a line when it changes, on stderr, and none beside --json or where
// nobody asked for it.
func TestProgressIsForPeople(t *testing.T) {
	for _, row := range []struct {
		json, asked bool
		want        string
	}{
		{false, true, "1 done\n2 done\n"},
		{false, false, ""},
		{true, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out, errs bytes.Buffer
			s := &Streams{Out: &out, Err: &errs, JSON: row.json, Progress: row.asked}
			looks := 0
			stop := s.Watch(t.Context(), func(context.Context) string {
				if looks++; looks == 1 {
					return "" // nothing is known yet
				}
				return fmt.Sprintf("%d done", looks/2)
			})
			time.Sleep(4*progressPause + progressPause/2)
			stop()
			if errs.String() != row.want || out.Len() > 0 {
				t.Errorf("json %v, asked %v: %q on stderr, %q on stdout", row.json, row.asked, errs.String(), out.String())
			}
		})
	}
}
