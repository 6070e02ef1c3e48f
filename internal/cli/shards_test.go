package cli

import (
	"context"
	"strings"
	"testing"
)

// TestProgressOfAMoveIsBesideItsResult: on stderr where it is asked for, and nowhere beside --json.
func TestProgressOfAMoveIsBesideItsResult(t *testing.T) {
	v := ShardVerbs{Move: func(_ context.Context, m Moving) (MovedStore, error) {
		m.Progress("copied \x1b[2J 5 rows")
		return MovedStore{Store: 1, To: "b"}, nil
	}}
	for _, row := range []struct {
		json, asked bool
		errs        string
	}{{false, false, ""}, {false, true, "copied \\x1b[2J 5 rows\n"}, {true, false, ""}, {true, true, ""}} {
		var out, errs strings.Builder
		s := &Streams{Out: &out, Err: &errs, JSON: row.json, Progress: row.asked}
		c := v.move(s)
		c.SetArgs([]string{"--store", "1", "--from", "postgres://a/x", "--to", "postgres://b/x"})
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if errs.String() != row.errs || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%+v: %q on stderr, %q on stdout", row, &errs, &out)
		}
	}
}
