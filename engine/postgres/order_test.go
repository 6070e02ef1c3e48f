package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// begun appends a call, and returns it with its lease.
func begun(t testing.TB, s *postgres.Store) (*storetest.Builder, chain.Lease) {
	t.Helper()
	b := storetest.New(t)
	lease, err := s.Acquire(bg, b.TraceID)
	if err == nil {
		_, err = s.Append(bg, lease, b.Begin(""))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b, lease
}

// TestOrderHasNoGap: two processes append at once, and both see one order in which the appends
// of each trace follow each other.
func TestOrderHasNoGap(t *testing.T) {
	dsn, shard := database(t)
	server, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	a, b := open(t, dsn, postgres.Options{Shard: shard}), open(t, dsn, postgres.Options{Shard: shard})
	const writers, calls = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		s := a
		if w%2 == 1 {
			s = b
		}
		wg.Go(func() {
			for n := range calls {
				if w == 0 && n%5 == 0 { // as an append that did not commit has taken a number
					if _, err := server.Query("SELECT nextval(pg_get_serial_sequence('tgad.pending', 'id'))::text"); err != nil {
						t.Error(err)
					}
				}
				x, lease := begun(t, s)
				if _, err := s.Append(bg, lease, x.End(tga.StatusSuccess)); err != nil {
					t.Error(err)
				}
				s.Release(lease)
			}
		})
	}
	orders := make([][]chain.Leaf, 2)
	for i, s := range []*postgres.Store{a, b} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			defer cancel()
			for l, err := range s.Follow(ctx, 0) {
				if err != nil {
					t.Error(err)
					return
				}
				if orders[i] = append(orders[i], l); len(orders[i]) == 2*writers*calls {
					return
				}
			}
		})
	}
	wg.Wait()
	next := map[tga.ID]uint64{}
	var newest chain.Leaf
	for i, l := range orders[0] {
		if i < len(orders[1]) && orders[1][i] != l {
			t.Errorf("leaf %d is %+v for one process and %+v for the other", i+1, l, orders[1][i])
		}
		if l.Index != uint64(i+1) || l.FirstSeq != next[l.TraceID]+1 || l.Committed < newest.Committed || l.NewestTS < newest.NewestTS {
			t.Errorf("leaf %d is %+v, its trace had %d entries, before it came %+v", i+1, l, next[l.TraceID], newest)
		}
		next[l.TraceID] += uint64(l.Entries)
		newest = l
	}
}

// TestFollowerKnowsHowFarTheOrderIs: a follower stops at its first leaf and asks for the newest number. The answer covers all leaves
// that were read together with the first one, although no notification of them has arrived.
func TestFollowerKnowsHowFarTheOrderIs(t *testing.T) {
	dsn, shard := database(t)
	a, b := open(t, dsn, postgres.Options{Shard: shard}), open(t, dsn, postgres.Options{Shard: shard})
	for range 3 {
		_, lease := begun(t, a)
		a.Release(lease)
	}
	for until := time.Now().Add(time.Minute); a.Cursor() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d of 3 appends have a number", a.Cursor())
		}
	}
	for l, err := range b.Follow(bg, 0) {
		if err != nil || l.Index != 1 || b.Cursor() != 3 {
			t.Errorf("at leaf %d, %v, it knows of %d", l.Index, err, b.Cursor())
		}
		break
	}
}

// TestEachFollowBeginsAnew: an order may be followed again, also if the range before was broken off.
func TestEachFollowBeginsAnew(t *testing.T) {
	dsn, shard := database(t)
	s := open(t, dsn, postgres.Options{Shard: shard})
	for range 3 {
		_, lease := begun(t, s)
		s.Release(lease)
	}
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	leaves := s.Follow(ctx, 1)
	for range 2 {
		var indexes []uint64
		for l, err := range leaves {
			if err != nil {
				t.Fatal(err)
			}
			if indexes = append(indexes, l.Index); len(indexes) == 2 {
				break
			}
		}
		if !slices.Equal(indexes, []uint64{2, 3}) {
			t.Errorf("leaves %v", indexes)
		}
	}
}

// TestNothingFollowsTheLargestNumber: a cursor that no order reaches is no damage.
func TestNothingFollowsTheLargestNumber(t *testing.T) {
	dsn, shard := database(t)
	s := open(t, dsn, postgres.Options{Shard: shard})
	_, lease := begun(t, s)
	s.Release(lease)
	for range s.Follow(bg, 0) {
		break // there is a leaf
	}
	for _, after := range []uint64{math.MaxInt64, math.MaxUint64} {
		if page, err := s.Fleet().Added(bg, after); err != nil || len(page) > 0 {
			t.Errorf("%d appends after %d, %v", len(page), after, err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		for l, err := range s.Follow(ctx, after) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %d: %+v, %v", after, l, err)
			}
		}
	}
}

// TestLogRowsCannotBeChanged: the owner of the tables is refused what changes the log.
func TestLogRowsCannotBeChanged(t *testing.T) {
	dsn, shard := database(t)
	s := open(t, dsn, postgres.Options{Shard: shard})
	b, lease := begun(t, s)
	if _, err := s.Append(bg, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}}); err != nil {
		t.Fatal(err)
	}
	for range s.Follow(bg, 0) {
		break // there is a leaf
	}
	c := connect(t, dsn)
	for _, change := range []string{
		"UPDATE tgad.entries SET header = ''", "UPDATE tgad.entries SET parts = ''", "UPDATE tgad.entries SET parts = NULL, spill = NULL, header = ''", "UPDATE tgad.notes SET frame = ''", "UPDATE tgad.leaves SET digest = ''",
		"DELETE FROM tgad.entries", "DELETE FROM tgad.notes", "DELETE FROM tgad.leaves", "DELETE FROM tgad.ledger",
	} {
		_, err := c.Exec(bg, fmt.Sprintf("%s WHERE shard = %d", change, shard))
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "TG001" {
			t.Errorf("%s: %v", change, err)
		}
	}
	if _, err := s.Load(bg, b.TraceID); err != nil {
		t.Error(err)
	}
	if _, err := c.Exec(bg, "UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE trace = $1 AND seq = 1", [16]byte(b.TraceID)); err != nil {
		t.Errorf("erase: %v", err)
	}
	entries := 0
	for e, err := range s.Entries(bg, b.TraceID, 0) {
		if err != nil || (e.Artifact == nil) != (e.Seq == 1) {
			t.Errorf("entry %d after the first was erased: %v, %v", e.Seq, e.Artifact, err)
		}
		entries++
	}
	if entries != 3 {
		t.Errorf("%d entries", entries)
	}
}

// TestListeningAgainLeavesNothing: while the database is away, a follower tries to listen again and again. No try leaves
// a goroutine.
func TestListeningAgainLeavesNothing(t *testing.T) {
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{Logger: quiet.Logger})
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	go func() {
		for range s.Follow(ctx, 0) {
		}
	}()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4500 * time.Millisecond) // a try each second
	buffer := make([]byte, 4<<20)
	stacks := string(buffer[:goruntime.Stack(buffer, true)])
	if n := strings.Count(stacks, "created by github.com/tgad/tgad/engine/postgres.(*order)"); n > 1 {
		t.Errorf("%d goroutines are left of what listens", n)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
}
