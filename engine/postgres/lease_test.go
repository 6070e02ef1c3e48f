package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// two are two processes that share a store.
func two(t testing.TB, o postgres.Options) (a, b *postgres.Store) {
	t.Helper()
	dsn, shard := database(t)
	o.Shard = shard
	return open(t, dsn, o), open(t, dsn, o)
}

// TestLeaseOvertakenElsewhere: another process overtakes a lease and does nothing more. The cached
// trace of the holder is still current.
func TestLeaseOvertakenElsewhere(t *testing.T) {
	a, b := two(t, postgres.Options{})
	x, lease := begun(t, a)
	fresh, err := b.Overtake(bg, x.TraceID, false)
	if err != nil || fresh.Epoch <= lease.Epoch {
		t.Fatalf("%+v after %+v, %v", fresh, lease, err)
	}
	if a.Current(lease) || !b.Current(fresh) {
		t.Errorf("current: old %v, new %v", a.Current(lease), b.Current(fresh))
	}
	if b.Held(lease) || !b.Held(fresh) || !a.Held(fresh) { // a has not learned of it yet
		t.Errorf("held: the old %v, the new %v and, elsewhere, %v", b.Held(lease), b.Held(fresh), a.Held(fresh))
	}
	for what, batch := range map[string]chain.Batch{
		"effect":     x.End(tga.StatusSuccess),
		"note":       {Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}},
		"attachment": {Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: x.TraceID[:], Value: []byte("x")}}},
	} {
		if _, err := a.Append(bg, lease, batch); !errors.Is(err, tga.StateConcurrentExecution) {
			t.Errorf("%s under an overtaken lease: %v", what, err)
		}
	}
	a.Release(lease) // has no effect
	if h := a.Holder(x.TraceID); h != ledger.HolderAlive {
		t.Errorf("the release of an overtaken lease ended the current one: %v", h)
	}
	if _, err := b.Append(bg, fresh, x.End(tga.StatusSuccess)); err != nil {
		t.Error(err)
	}
}

// TestLeaseGoesByTheDatabasesClock: a process whose clock is far ahead takes no session for late.
func TestLeaseGoesByTheDatabasesClock(t *testing.T) {
	dsn, shard := database(t)
	a := open(t, dsn, postgres.Options{Shard: shard, Lease: time.Second})
	b := open(t, dsn, postgres.Options{Shard: shard, Lease: time.Second, Clock: func() time.Time { return time.Now().Add(time.Hour) }, MaxSkew: -1})
	x, lease := begun(t, a)
	time.Sleep(1500 * time.Millisecond) // b has been steady for long enough to end another
	if h := b.Holder(x.TraceID); h != ledger.HolderAlive {
		t.Errorf("holder is %v", h)
	}
	if _, err := b.Acquire(bg, x.TraceID); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("acquire: %v", err)
	}
	if !a.Current(lease) {
		t.Error("the lease is not current")
	}
}

// TestReleaseWakesOtherProcesses: a call that waits in another process for a lease or an outcome gets it.
func TestReleaseWakesOtherProcesses(t *testing.T) {
	a, b := two(t, postgres.Options{})
	x, lease := begun(t, a)
	key := ledger.Key{Namespace: tga.DefaultNamespace, Server: x.Proposal.ToolServer, Tool: x.Proposal.ToolName, Key: x.Key}
	seen, err := b.Record(bg, key)
	if err != nil || seen == nil {
		t.Fatalf("record %v, %v", seen, err)
	}
	ctx, cancel := context.WithTimeout(bg, 20*time.Second)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- b.Await(ctx, key, *seen) }()
	go func() {
		l, err := b.Acquire(ctx, x.TraceID)
		if err == nil && l.Epoch <= lease.Epoch {
			err = errors.New("the epoch has not grown")
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := a.Append(bg, lease, x.End(tga.StatusSuccess)); err != nil {
		t.Fatal(err)
	}
	a.Release(lease)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestWeakLeaseKeepsNobodyOut of other processes, but for those who get no more than that.
func TestWeakLeaseKeepsNobodyOut(t *testing.T) {
	a, b := two(t, postgres.Options{})
	id := storetest.NewID()
	not := func(*chain.Trace) bool { return false }
	weak, err := a.Lend(bg, id, not)
	if err != nil {
		t.Fatal(err)
	}
	if h := b.Holder(id); h != ledger.HolderGone {
		t.Errorf("holder is %v", h)
	}
	if _, err := b.Lend(bg, id, not); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("another weak lease: %v", err)
	}
	strong, err := b.Acquire(bg, id)
	if err != nil || a.Current(weak) || !b.Current(strong) {
		t.Errorf("%v; weak %v, new %v", err, a.Current(weak), b.Current(strong))
	}
}

// TestLeaseOfAnEndedSession: while a lease waits for the lock of its row, the session that asked for it is ended, and the process begins
// another one. The database grants the lease to the old session then. The first append says at once that the lease is over.
func TestLeaseOfAnEndedSession(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{Lease: time.Second, Logger: slog.New(slog.DiscardHandler)})
	x, lease := begun(t, s)
	s.Release(lease)
	until(t, "the release", func() bool { return query(t, p, "SELECT session::text FROM tgad.heads") == "0" })
	b := &pgx.Batch{}
	b.Queue("SELECT 1 FROM tgad.heads FOR UPDATE")
	b.Queue("SELECT 1") // it is not taken for a process that stands still
	stopped(t, p, b)
	type granted struct {
		lease chain.Lease
		err   error
	}
	asked := make(chan granted, 1)
	go func() {
		lease, err := s.Acquire(bg, x.TraceID)
		asked <- granted{lease, err}
	}()
	until(t, "the request waits", func() bool {
		return query(t, p, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%tgad.acquire%')::text") == "true"
	})
	before := s.Fleet().Stats().Session
	if err := p.Exec("UPDATE tgad.sessions SET ended = true"); err != nil {
		t.Fatal(err)
	}
	until(t, "another session", func() bool { return s.Fleet().Stats().Session > before })
	if err := p.Exec("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'SELECT 1'"); err != nil {
		t.Fatal(err)
	}
	got := <-asked
	if got.err != nil {
		t.Fatal(got.err)
	}
	began := time.Now()
	if _, err := s.Append(bg, got.lease, x.End(tga.StatusSuccess)); tga.CodeOf(err) != tga.StateConcurrentExecution {
		t.Errorf("append after %s: %v", time.Since(began), err)
	}
	s.Release(got.lease)
	if lease, err := s.Acquire(bg, x.TraceID); err != nil {
		t.Error(err)
	} else if _, err := s.Append(bg, lease, x.End(tga.StatusSuccess)); err != nil {
		t.Error(err)
	}
}

// TestSessionWhoseEpochsAreSpent: a process that has granted four billion leases goes on in another session, with larger epochs.
// What it held under the first one is lost, as if another process had ended it, and can be had again.
func TestSessionWhoseEpochsAreSpent(t *testing.T) {
	dsn, shard := database(t)
	s := open(t, dsn, postgres.Options{Shard: shard, Logger: slog.New(slog.DiscardHandler)})
	postgres.SpendEpochs(s)
	x, last := begun(t, s)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			lease, err := s.Acquire(bg, storetest.NewID())
			if err != nil || lease.Epoch.Incarnation() != last.Epoch.Incarnation()+1 || uint32(lease.Epoch) > 8 || !s.Current(lease) {
				t.Errorf("epoch %#x after %#x: %v", lease.Epoch, last.Epoch, err)
			}
		})
	}
	wait.Wait()
	if _, err := s.Append(bg, last, x.End(tga.StatusSuccess)); tga.CodeOf(err) != tga.StateConcurrentExecution {
		t.Errorf("under the lease of a session that ended: %v", err)
	}
	lease, err := s.Acquire(bg, x.TraceID)
	if err == nil {
		_, err = s.Append(bg, lease, x.End(tga.StatusSuccess))
	}
	if err != nil {
		t.Error(err)
	}
}
