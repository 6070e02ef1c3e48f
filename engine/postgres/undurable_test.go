package postgres_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestWhatNoStandbyHasIsNotShown: an effect is committed at the primary, and waits for a standby that is
// away. Nobody is shown it, whether the process that appended it gives up or the server is
// started again: with the loss of the primary it would be gone, and an answer with it.
func TestWhatNoStandbyHasIsNotShown(t *testing.T) {
	for name, disturb := range map[string]func(*pgserver.Server) error{
		"the process gives up": func(*pgserver.Server) error { return nil },
		"the server is started again": func(p *pgserver.Server) error {
			p.Kill()
			return p.Start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := migrated(t)
			short := postgres.Options{Patience: time.Second, Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
			a, b := open(t, pgserver.DSN(p), short), open(t, pgserver.DSN(p), short)
			x, lease := begun(t, a)
			key := ledger.Key{Namespace: tga.DefaultNamespace, Server: x.Proposal.ToolServer, Tool: x.Proposal.ToolName, Key: x.Key}
			if _, err := b.Record(bg, key); err != nil {
				t.Fatal(err)
			}
			// A process that is late by now, and has a trace.
			late := storetest.NewID()
			if err := p.Exec("INSERT INTO tgad.sessions VALUES (0, 900, 'late', '1 ms', 'epoch', now())",
				fmt.Sprintf("INSERT INTO tgad.heads (shard, trace, epoch, session, token) VALUES (0, '%s', 1, 900, 1)", late)); err != nil {
				t.Fatal(err)
			}
			// The standby is a ghost: a commit waits for it.
			if err := p.SyncStandbys("ghost"); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := a.Append(bg, lease, x.End(tga.StatusSuccess))
				ended <- err
			}()
			until(t, "the wait", func() bool {
				return query(t, p, "SELECT count(*)::text FROM pg_stat_activity JOIN pg_locks l USING (pid) WHERE wait_event = 'SyncRep' AND l.relation = 'tgad.heads'::regclass AND l.mode = 'RowExclusiveLock'") != "0"
			})
			if h := b.Holder(late); name == "the process gives up" && h != ledger.HolderGone {
				t.Errorf("while no standby is there, the holder of another trace is %v", h)
			}
			if err := disturb(p); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; tga.CodeOf(err) != tga.StoreUnavailable {
				t.Fatalf("append: %v", err)
			}
			// Whatever the process that gave up still says to the server has the time to arrive.
			for began := time.Now(); time.Since(began) < 1500*time.Millisecond && !t.Failed(); time.Sleep(20 * time.Millisecond) {
				// The connections of b may all wait for the standby: what the server itself shows is asked beside them.
				if n := query(t, p, "SELECT count(*)::text FROM tgad.entries"); name == "the process gives up" && n != "3" {
					t.Errorf("the server shows %s entries", n)
				}
				if r, err := b.Record(bg, key); err == nil && r.Status == ledger.Settled {
					t.Errorf("the ledger record is shown as %v", r.Status)
				}
				if tr, err := b.Load(bg, x.TraceID); err == nil && len(tr.Entries) != 3 {
					t.Errorf("entry %d is shown", len(tr.Entries))
				}
			}
			if err := p.SyncStandbys(""); err != nil {
				t.Fatal(err)
			}
			until(t, "the effect", func() bool { tr, err := b.Load(bg, x.TraceID); return err == nil && len(tr.Entries) == 4 })
		})
	}
}

// TestWaitThatIsCalledOffAcknowledgesNothing: a commit waits for the standby, which is away, and somebody empties the list of
// standbys. That ends the wait without a warning. A process that requires a standby acknowledges nothing then, until a standby
// has the append.
func TestWaitThatIsCalledOffAcknowledgesNothing(t *testing.T) {
	for name, patience := range map[string]time.Duration{"no standby comes back": 2 * time.Second, "the standby comes back": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, standby := pair(t)
			s := open(t, pgserver.DSN(primary), postgres.Options{RequireSync: true, Patience: patience, Logger: slog.New(slog.DiscardHandler)})
			x, lease := begun(t, s)
			connected(t, primary, s)
			if err := standby.Stop(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := s.Append(bg, lease, x.End(tga.StatusSuccess))
				ended <- err
			}()
			until(t, "the wait", func() bool {
				return query(t, primary, "SELECT count(*)::text FROM pg_stat_activity JOIN pg_locks l USING (pid) WHERE wait_event = 'SyncRep' AND l.relation = 'tgad.entries'::regclass") != "0"
			})
			if err := primary.SyncStandbys(""); err != nil {
				t.Fatal(err)
			}
			until(t, "the end of the wait", func() bool {
				return query(t, primary, "SELECT count(*)::text FROM tgad.entries WHERE trace = $1", [16]byte(x.TraceID)) == "4"
			})
			if patience < time.Minute {
				if err := <-ended; tga.CodeOf(err) != tga.StoreUnavailable {
					t.Errorf("append: %v, and no standby has it", err)
				}
			} else {
				select {
				case err := <-ended:
					t.Errorf("append: %v, and no standby has it", err)
				case <-time.After(500 * time.Millisecond):
				}
			}
			if err := standby.Start(); err != nil {
				t.Fatal(err)
			}
			if err := primary.Synchronous(standby); err != nil {
				t.Fatal(err)
			}
			if patience == time.Minute && !t.Failed() {
				if err := <-ended; err != nil {
					t.Errorf("append, once the standby has it: %v", err)
				}
			}
		})
	}
}

// connected makes connections of a store: a new one would wait for the standby too.
func connected(t testing.TB, p *pgserver.Server, s *postgres.Store) {
	t.Helper()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 16 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = s.Record(bg, ledger.Key{Key: fmt.Sprint(i)})
				}
			}
		})
	}
	until(t, "connections", func() bool {
		return len(query(t, p, "SELECT repeat('x', count(*)::int) FROM pg_stat_activity WHERE query LIKE '%tgad.%'")) > 6
	})
	close(stop)
	readers.Wait()
}
