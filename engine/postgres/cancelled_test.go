package postgres_test

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAppendThatIsCancelledIsMadeAgain: somebody has locked the row of a trace for a moment, and meanwhile the statement that is to
// record an answer is cancelled, or the role has a time-out for it. The answer is recorded all the same: otherwise a call
// whose answer arrived would be in doubt.
func TestAppendThatIsCancelledIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, then string }{
		{"", "SELECT pg_cancel_backend(pid)"},
		{"statement_timeout=100ms", "SELECT"},
		{"lock_timeout=100ms", "SELECT"},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			p := migrated(t)
			if name, value, is := strings.Cut(c.set, "="); is { // only the login of the processes has it
				if err := p.Exec("CREATE ROLE gateway LOGIN IN ROLE tgad_writer; ALTER ROLE gateway SET " + name + " = '" + value + "'"); err != nil {
					t.Fatal(err)
				}
			} else if err := p.Exec("CREATE ROLE gateway LOGIN IN ROLE tgad_writer"); err != nil {
				t.Fatal(err)
			}
			s := open(t, strings.Replace(pgserver.DSN(p), "//owner@", "//gateway@", 1), postgres.Options{})
			b, lease := begun(t, s)
			tx, err := connect(t, pgserver.DSN(p)).Begin(bg)
			if err == nil {
				_, err = tx.Exec(bg, "SELECT 1 FROM tgad.heads FOR UPDATE")
			}
			if err != nil {
				t.Fatal(err)
			}
			recorded := make(chan error, 1)
			go func() {
				_, err := s.Append(bg, lease, b.End(tga.StatusSuccess))
				recorded <- err
			}()
			// It waits for twice as long as the time-outs are, by the clock of the server.
			const waits = " FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%tgad.append%' AND clock_timestamp() - query_start > interval '200 ms'"
			until(t, "the append waits", func() bool {
				return len(recorded) > 0 || query(t, p, "SELECT (count(*) > 0)::text"+waits) == "true"
			})
			if err := p.Exec(c.then + waits); err != nil {
				t.Error(err)
			}
			if c.set == "" {
				until(t, "the statement was cancelled", func() bool {
					return len(recorded) > 0 || query(t, p, "SELECT (count(*) = 0)::text"+waits) == "true"
				})
			}
			if err := tx.Rollback(bg); err != nil {
				t.Error(err)
			}
			if err := <-recorded; err != nil {
				t.Errorf("the answer was not recorded: %v", err)
			}
		})
	}
}
