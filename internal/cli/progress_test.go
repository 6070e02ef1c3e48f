package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressIsForPeople: a line on stderr when the progress changes; none beside --json, and none if
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

// closed refuses every write and counts them.
type closed struct{ tries int }

func (c *closed) Write([]byte) (int, error) {
	c.tries++
	return 0, io.ErrClosedPipe
}

// TestProgressEndsWithItsReader: after one failed write to stderr no more progress is written.
func TestProgressEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs closed
		s := &Streams{Err: &errs, Progress: true}
		looks := 0
		stop := s.Watch(t.Context(), func(context.Context) string {
			looks++
			return fmt.Sprintf("%d done", looks)
		})
		time.Sleep(10 * progressPause)
		stop()
		if errs.tries != 1 || looks != 1 {
			t.Errorf("%d tries, %d looks", errs.tries, looks)
		}
	})
}
