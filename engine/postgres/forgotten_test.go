package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/wal/chain"
)

// TestForgottenReleaseIsMadeAgain: the database loses a release that it had not synced, because its
// processes are killed or it is restarted. The process that released the trace releases it again,
// and another process gets the trace.
func TestForgottenReleaseIsMadeAgain(t *testing.T) {
	for name, end := range map[string]func(*pgserver.Server) error{
		"the server is started again": func(p *pgserver.Server) error {
			p.Kill()
			return p.Start()
		},
		"a process of the server is killed": func(p *pgserver.Server) error {
			for _, pid := range p.Processes() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := migrated(t, "wal_writer_delay=10s", "wal_writer_flush_after=1GB") // it syncs nothing by itself
			o := postgres.Options{Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
			a, b := open(t, pgserver.DSN(p), o), open(t, pgserver.DSN(p), o)
			const holder = "SELECT session::text FROM tgad.heads WHERE trace = $1"
			var x *storetest.Builder
			for forgotten := false; !forgotten; { // whatever is synced next syncs the release with it
				var lease chain.Lease
				x, lease = begun(t, a)
				until(t, "its number", func() bool { return query(t, p, "SELECT count(*)::text FROM tgad.pending") == "0" })
				a.Release(lease)
				until(t, "the release", func() bool { return query(t, p, holder, [16]byte(x.TraceID)) == "0" })
				if err := end(p); err != nil {
					t.Fatal(err)
				}
				until(t, "the server", func() bool { _, err := p.Query("SELECT ''"); return err == nil })
				forgotten = query(t, p, holder, [16]byte(x.TraceID)) != "0"
			}
			ctx, cancel := context.WithTimeout(bg, 20*time.Second)
			defer cancel()
			if _, err := b.Acquire(ctx, x.TraceID); err != nil {
				t.Errorf("it was let go of: %v", err)
			}
		})
	}
}

// TestQuestionThatComesLateHoldsNothing: a request for a lease is delayed in the network and repeated. The trace
// is released, and then the first request reaches the database. Another process still gets the trace.
func TestQuestionThatComesLateHoldsNothing(t *testing.T) {
	p := migrated(t)
	w := slowWay(t, p)
	o := postgres.Options{Lease: time.Second, Logger: slog.New(slog.DiscardHandler)}
	a, b := open(t, fmt.Sprintf("host=%s user=owner dbname=postgres", w.dir), o), open(t, pgserver.DSN(p), o)
	id := storetest.NewID()
	w.mu.Lock()
	w.keep, w.what = true, id[:]
	w.mu.Unlock()
	lease, err := a.Acquire(bg, id)
	if err != nil {
		t.Fatal(err)
	}
	a.Release(lease)
	until(t, "the release", func() bool {
		return query(t, p, "SELECT session::text FROM tgad.heads WHERE trace = $1", [16]byte(id)) == "0"
	})
	w.mu.Lock()
	for _, k := range w.kept {
		if _, err := k.to.Write(k.data); err != nil {
			t.Error(err)
		}
	}
	w.mu.Unlock()
	until(t, "the late grant", func() bool {
		return query(t, p, "SELECT epoch::text FROM tgad.heads WHERE trace = $1", [16]byte(id)) != fmt.Sprint(uint64(lease.Epoch))
	})
	ctx, cancel := context.WithTimeout(bg, 20*time.Second)
	defer cancel()
	if _, err := b.Acquire(ctx, id); err != nil {
		t.Errorf("it was let go of: %v", err)
	}
	for _, k := range w.kept {
		k.to.Close()
	}
}
