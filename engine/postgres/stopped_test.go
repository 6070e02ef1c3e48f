package postgres_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stopped is a transaction as a process leaves it that is stopped, or whose machine is lost, in the middle of sending it: the
// database has done the statements that have arrived, and waits for the next one. It returns how many such connections are left.
func stopped(t testing.TB, p *pgserver.Server, b *pgx.Batch) (left func() string) {
	t.Helper()
	c, err := pgx.Connect(bg, pgserver.DSN(p))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(bg) }) // it may be ended
	for _, q := range append([]*pgx.QueuedQuery{{SQL: "BEGIN ISOLATION LEVEL READ COMMITTED"}}, b.QueuedQueries...) {
		if _, err := c.Exec(bg, q.SQL, q.Arguments...); err != nil {
			t.Fatalf("%s: %v", q.SQL, err)
		}
	}
	pid := int64(c.PgConn().PID())
	return func() string { return query(t, p, "SELECT count(*)::text FROM pg_stat_activity WHERE pid = $1", pid) }
}

// TestStoppedClientHoldsNoLock: whatever locks a stopped process has left, its connection is ended. One that only reads stays.
func TestStoppedClientHoldsNoLock(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	ring := new(chaintest.Ring)
	s := open(t, pgserver.DSN(p), postgres.Options{Lease: time.Second, Keyring: ring, Logger: slog.New(slog.DiscardHandler)})
	x, y := made(t, s, ""), made(t, s, "")
	reader := &pgx.Batch{}
	reader.Queue("SELECT count(*) FROM tgad.entries")
	reads := stopped(t, p, reader)
	for name, fill := range map[string]func(*pgx.Batch){
		"before its append is sealed": func(b *pgx.Batch) { b.Queue("SELECT tgad.may_seal($1, $2)", 0, []int64{}) },
		"in an erasure": func(b *pgx.Batch) {
			b.Queue("UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2 AND parts IS NOT NULL", 0, [16]byte(y.TraceID))
		},
		"in an erasure, later": func(b *pgx.Batch) {
			b.Queue("SELECT 1 FROM tgad.heads WHERE shard = $1 AND trace = $2 FOR UPDATE", 0, [16]byte(y.TraceID))
			b.Queue("DELETE FROM tgad.owner_keys WHERE shard = $1 AND owner = ANY ($2)", 0, [][]byte{})
		},
	} {
		b := &pgx.Batch{}
		fill(b)
		left := stopped(t, p, b)
		until(t, "the end of a process that was stopped "+name, func() bool { return left() == "0" })
	}
	if reads() != "1" {
		t.Error("a connection that only reads was ended")
	}

	// An erasure waits for appends that are under way, and later appends for the erasure.
	b := &pgx.Batch{}
	b.Queue("SELECT tgad.may_seal($1, $2)", 0, []int64{})
	stopped(t, p, b)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Fleet().Erase(bg, byOperator(chain.Erasure{Traces: []tga.ID{x.TraceID}}))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("erase: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the erasure waits for a stopped process")
	}
	made(t, s, "")
}

// TestLockedRowsEndNoSend: somebody has locked rows of many calls, and callers who want these have all connections of a process. It
// renews its session all the same, and a send of another call goes on.
func TestLockedRowsEndNoSend(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	_, lease := begun(t, s)
	locked := make([][16]byte, 40)
	for i := range locked {
		b, l := begun(t, s)
		s.Release(l)
		locked[i] = [16]byte(b.TraceID)
	}
	b := &pgx.Batch{}
	b.Queue("SELECT 1 FROM tgad.heads WHERE trace = ANY ($1) FOR UPDATE", locked)
	b.Queue("SELECT 1") // it is not taken for a process that stands still
	stopped(t, p, b)
	sends, end := s.While(bg, lease)
	defer end()
	ctx, cancel := context.WithDeadline(bg, time.Now().Add(time.Minute))
	var callers sync.WaitGroup
	defer func() {
		cancel()
		callers.Wait()
	}()
	for _, id := range locked {
		callers.Go(func() { _, _ = s.Acquire(ctx, id) }) // it waits
	}
	until(t, "nothing else has a connection", func() bool {
		return query(t, p, "SELECT (count(*) >= 15)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "true"
	})
	soon := query(t, p, "SELECT (clock_timestamp() + interval '4 s')::text")
	until(t, "the session is renewed", func() bool {
		return query(t, p, "SELECT (expires > $1::timestamptz)::text FROM tgad.sessions", soon) == "true"
	})
	if err := context.Cause(sends); err != nil {
		t.Errorf("the send ended: %v", err)
	}
}
