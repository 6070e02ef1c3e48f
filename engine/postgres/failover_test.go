package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// load appends whole calls with many writers, and remembers what was acknowledged.
type load struct {
	mu       sync.Mutex
	acked    map[tga.ID]chain.Head
	refused  map[tga.Code]int
	appended atomic.Int64
	stop     chan struct{}
	writers  sync.WaitGroup
}

func loadOf(t testing.TB, s *postgres.Store, writers int) *load {
	l := &load{acked: map[tga.ID]chain.Head{}, refused: map[tga.Code]int{}, stop: make(chan struct{})}
	for range writers {
		l.writers.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
					l.call(t, s)
				}
			}
		})
	}
	return l
}

func (l *load) call(t testing.TB, s *postgres.Store) {
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	b := storetest.New(t)
	lease, err := s.Acquire(ctx, b.TraceID)
	if err != nil {
		l.refuse(err)
		return
	}
	defer s.Release(lease)
	for _, next := range []func() chain.Batch{func() chain.Batch { return b.Begin("") }, func() chain.Batch { return b.End(tga.StatusSuccess) }} {
		done, err := s.Append(ctx, lease, next())
		if err != nil {
			l.refuse(err)
			return
		}
		l.mu.Lock()
		l.acked[b.TraceID] = done.Head
		l.mu.Unlock()
		l.appended.Add(1)
	}
}

func (l *load) refuse(err error) {
	l.mu.Lock()
	l.refused[tga.CodeOf(err)]++
	l.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
}

func (l *load) more(t testing.TB, n int64) {
	t.Helper()
	want := l.appended.Load() + n
	until(t, fmt.Sprint(n, " more appends"), func() bool { return l.appended.Load() >= want })
}

// end stops the writers and checks that everything that was acknowledged is there.
func (l *load) end(t testing.TB, s *postgres.Store) {
	t.Helper()
	close(l.stop)
	l.writers.Wait()
	lost := 0
	for id, head := range l.acked {
		tr, err := s.Load(bg, id)
		if err != nil || tr.Head.Seq < head.Seq || tr.Entries[head.Seq-1].Digest != head.Digest {
			lost++
			t.Logf("trace %s was acknowledged up to entry %d: %v", id, head.Seq, err)
		}
	}
	t.Logf("%d appends acknowledged, refused: %v, lost: %d", l.appended.Load(), l.refused, lost)
	if lost > 0 {
		t.Errorf("%d of %d acknowledged traces are not there", lost, len(l.acked))
	}
}

// pair is a primary and its synchronous standby.
func pair(t testing.TB) (primary, standby *pgserver.Server) {
	t.Helper()
	primary = migrated(t)
	standby, err := primary.NewStandby(tempDir(t), "s1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := primary.Synchronous(standby); err != nil {
		t.Fatal(err)
	}
	return primary, standby
}

// TestPromotedStandbyHasAllThatWasAcknowledged: the primary is killed under load, and the
// synchronous standby is promoted.
func TestPromotedStandbyHasAllThatWasAcknowledged(t *testing.T) {
	primary, standby := pair(t)
	dsn := pgserver.DSN(primary, standby)
	s := open(t, dsn, postgres.Options{RequireSync: true, Lease: 3 * time.Second, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	l := loadOf(t, s, 8)
	l.more(t, 200)
	primary.Kill()
	// The standby that was promoted has no standby itself, and one is required.
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	next, err := standby.NewStandby(tempDir(t), "s2")
	if err != nil {
		t.Fatal(err)
	}
	if err := standby.Synchronous(next); err != nil {
		t.Fatal(err)
	}
	l.more(t, 200)
	l.end(t, s)
	if err := s.Close(); err != nil { // it waits for the standby
		t.Error(err)
	}
	if err := next.Remove(); err != nil {
		t.Error(err)
	}
}

// TestKilledPrimaryComesBack: the server, or one of its processes, is killed in the middle of
// appends and started again.
func TestKilledPrimaryComesBack(t *testing.T) {
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{Lease: 3 * time.Second, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	l := loadOf(t, s, 8)
	rounds := 2
	if !testing.Short() {
		rounds = 10
	}
	for range rounds {
		l.more(t, 50)
		for _, pid := range p.Processes() { // all of them: the server restarts itself
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		l.more(t, 50)
		p.Kill()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	l.more(t, 50)
	l.end(t, s)
}

// TestPrimaryThatLostAppendsFreezesTheStore: a standby that was not synchronous is promoted, and
// lacks what was acknowledged.
func TestPrimaryThatLostAppendsFreezesTheStore(t *testing.T) {
	primary, standby := pair(t)
	if err := primary.SyncStandbys(""); err != nil {
		t.Fatal(err)
	}
	s := open(t, pgserver.DSN(primary, standby), postgres.Options{Lease: 3 * time.Second, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	kept, _ := begun(t, s)
	until(t, "the standby", func() bool {
		return query(t, standby, "SELECT count(*)::text FROM tgad.heads WHERE trace = $1 AND seq = 3", [16]byte(kept.TraceID)) == "1"
	})
	if err := standby.Stop(); err != nil { // it hears of nothing more
		t.Fatal(err)
	}
	lost, lease := begun(t, s)
	primary.Kill()
	if err := standby.Start(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	until(t, "the new primary", func() bool { _, err := s.Load(bg, kept.TraceID); return err == nil })
	if _, err := s.Append(bg, lease, lost.End(tga.StatusSuccess)); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("append: %v, want a frozen store", err)
	}
	if _, err := s.Acquire(bg, storetest.NewID()); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("acquire: %v, want a frozen store", err)
	}
	if _, err := s.Load(bg, kept.TraceID); err != nil {
		t.Errorf("what is left cannot be read: %v", err)
	}
}
