package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// moving is a namespace with a store of its own, on shard one of two.
type moving struct {
	t         testing.TB
	one, two  *pgserver.Server
	namespace string
	store     int32
}

func newMoving(t testing.TB) *moving {
	t.Helper()
	one, err := first.Server()
	if err != nil {
		t.Fatal(err)
	}
	two, err := second.Server()
	if err != nil {
		t.Fatal(err)
	}
	x := &moving{t: t, one: one, two: two, namespace: fmt.Sprint("tenant-", shards.Add(1))}
	x.store = x.place(x.namespace, "one")
	return x
}

// place gives a namespace a store.
func (x *moving) place(namespace, shard string) (store int32) {
	x.t.Helper()
	r, err := postgres.Place(bg, pgserver.DSN(x.one), quiet, postgres.Placing{Namespace: namespace, Shard: shard})
	if err != nil {
		x.t.Fatalf("place %s: %v", namespace, err)
	}
	return r.Namespaces[namespace]
}

// there and back are the two moves.
func (x *moving) there() postgres.Moving {
	return postgres.Moving{Namespace: x.namespace, From: pgserver.DSN(x.one), To: pgserver.DSN(x.two), Drain: 50 * time.Millisecond}
}

func (x *moving) back() postgres.Moving {
	m := x.there()
	m.From, m.To = m.To, m.From
	return m
}

func (x *moving) moved(m postgres.Moving) postgres.MovedStore {
	x.t.Helper()
	done, err := postgres.Move(bg, quiet, m)
	if err != nil {
		x.t.Fatalf("move: %v", err)
	}
	return done
}

var errStop = errors.New("the move is broken off")

// before breaks a move off before a step.
func (x *moving) before(m postgres.Moving, step string) {
	x.t.Helper()
	m.Step = func(s string) error {
		if s == step {
			return errStop
		}
		return nil
	}
	if _, err := postgres.Move(bg, quiet, m); !errors.Is(err, errStop) {
		x.t.Fatalf("move up to %q: %v", step, err)
	}
}

var quiet = postgres.Options{Logger: slog.New(slog.DiscardHandler)}

// shortLease is long enough for a busy machine, and short enough to be waited for.
const shortLease = 1500 * time.Millisecond

// bound is a process that works with the store on one shard, and knows of no fleet.
func (x *moving) bound(s *pgserver.Server) *postgres.Store {
	return open(x.t, pgserver.DSN(s), postgres.Options{Shard: x.store, Lease: shortLease, Patience: time.Second, Logger: quiet.Logger})
}

// routed is a process that works with the store wherever it is.
func (x *moving) routed() (*postgres.Shards, *postgres.Store) {
	x.t.Helper()
	all, err := postgres.OpenShards(bg, pgserver.DSN(x.one), postgres.Options{Lease: shortLease, Logger: quiet.Logger})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		if err := all.Close(); err != nil {
			x.t.Errorf("close: %v", err)
		}
	})
	s, err := all.Store(bg, x.namespace)
	if err != nil {
		x.t.Fatal(err)
	}
	return all, s
}

// begun is a trace of the namespace whose call is reserved.
func (x *moving) begun(s *postgres.Store) (*storetest.Builder, chain.Lease) {
	x.t.Helper()
	b, lease := x.begin(s)
	if b == nil {
		x.t.Fatal("no trace begins")
	}
	return b, lease
}

func (x *moving) begin(s *postgres.Store) (*storetest.Builder, chain.Lease) {
	b := storetest.New(x.t)
	b.Namespace = x.namespace
	lease, err := s.Acquire(bg, b.TraceID)
	if err == nil {
		_, err = s.Append(bg, lease, b.Begin(""))
	}
	if err != nil {
		return nil, lease
	}
	return b, lease
}

// placed is what a shard says of a store: owner, epoch, state.
func (x *moving) placed(s *pgserver.Server) string {
	x.t.Helper()
	return query(x.t, s, "SELECT coalesce((SELECT owner || ' ' || epoch || ' ' || state FROM tgad.placements WHERE store = $1), 'nothing')", x.store)
}

// rows is all that a shard has of a store.
func (x *moving) rows(s *pgserver.Server) string {
	x.t.Helper()
	var all []string
	for _, table := range []string{"heads", "entries", "notes", "checkpoints", "ledger", "attachments", "leaves", "pending", "sessions", "meta", "tiles", "signed_notes", "duties", "data_keys", "owner_keys", "erasing"} {
		all = append(all, query(x.t, s, "SELECT '"+table+" ' || count(*) || coalesce(md5(string_agg(t::text, ' ' ORDER BY t::text)), '') FROM tgad."+table+" t WHERE shard = $1", x.store))
	}
	return strings.Join(all, "\n")
}

// wantElsewhere says that an error names the shard that has the store.
func wantElsewhere(t testing.TB, what string, err error, owner string, epoch int64) {
	t.Helper()
	var e *postgres.Elsewhere
	if !errors.As(err, &e) || e.Owner != owner || e.Epoch != epoch || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("%s: %v; want that shard %s has the store, epoch %d", what, err, owner, epoch)
	}
}

// TestFenceStandsInTheShard: a process works with a store by the DSN of its shard, and nobody tells it of the move. Once the
// shard has fenced the store, whatever it does is refused: with leases that it had, with new ones, and also where it was in
// the middle of either.
func TestFenceStandsInTheShard(t *testing.T) {
	x := newMoving(t)
	old := x.bound(x.one)
	executing, lease := x.begun(old)
	stream, err := old.Acquire(bg, storetest.NewID())
	if err != nil {
		t.Fatal(err)
	}
	sending, cancel := old.While(bg, lease)
	defer cancel()

	// Others are at work while the fence comes.
	var mu sync.Mutex
	var acknowledged []tga.ID
	var busy sync.WaitGroup
	for range 8 {
		busy.Go(func() {
			for {
				b, l := x.begin(old)
				if b == nil {
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, b.TraceID)
				mu.Unlock()
				if _, err := old.Append(bg, l, b.End(tga.StatusSuccess)); err != nil {
					return
				}
				old.Release(l)
			}
		})
	}
	until(t, "some traces", func() bool { mu.Lock(); defer mu.Unlock(); return len(acknowledged) > 20 })
	x.before(x.there(), "copy")
	fenced := time.Now()
	if got := x.placed(x.one); got != "two 2 gone" {
		t.Errorf("shard one says %q", got)
	}
	was := query(t, x.one, "SELECT count(*) || ' ' || coalesce(max(seq), 0) FROM tgad.entries WHERE shard = $1", x.store)

	for what, batch := range map[string]chain.Batch{
		"effect":     executing.End(tga.StatusSuccess),
		"note":       {Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}},
		"attachment": {Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: executing.TraceID[:], Value: []byte("x")}}},
	} {
		if _, err := old.Append(bg, lease, batch); err == nil {
			t.Errorf("%s under a lease from before the fence is taken", what)
		}
	}
	if _, err := old.Append(bg, stream, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: stream.TraceID[:], Value: []byte("x")}}}); err == nil {
		t.Error("an attachment under a lease of no trace is taken")
	}
	if old.Current(lease) {
		t.Error("the lease is current: its call would be sent")
	}
	if _, err := old.WriteCheckpoint(bg, lease); err == nil {
		t.Error("a checkpoint is written")
	}
	for what, do := range map[string]func(context.Context, tga.ID) error{
		"acquire":  func(ctx context.Context, id tga.ID) error { _, err := old.Acquire(ctx, id); return err },
		"overtake": func(ctx context.Context, id tga.ID) error { _, err := old.Overtake(ctx, id, false); return err },
	} {
		wantElsewhere(t, what+" a new trace", do(bg, storetest.NewID()), "two", 2)
		wantElsewhere(t, what+" the trace", do(bg, executing.TraceID), "two", 2)
	}
	_, err = postgres.Open(bg, pgserver.DSN(x.one), postgres.Options{Shard: x.store, Logger: quiet.Logger})
	wantElsewhere(t, "open", err, "two", 2)
	select {
	case <-sending.Done():
	case <-time.After(time.Until(fenced.Add(shortLease))):
		t.Error("a send goes on, and the shard to come may take the store")
	}
	busy.Wait()
	if is := query(t, x.one, "SELECT count(*) || ' ' || coalesce(max(seq), 0) FROM tgad.entries WHERE shard = $1", x.store); is != was {
		t.Errorf("entries after the fence: %s, at it %s", is, was)
	}

	x.moved(x.there())
	if left := time.Since(fenced); left < shortLease {
		t.Errorf("the other shard has the store %s after the fence: a send may be under way", left)
	}
	if got := x.placed(x.two); got != "two 2 here" {
		t.Errorf("shard two says %q", got)
	}
	fresh := x.bound(x.two)
	for _, id := range acknowledged {
		if _, err := fresh.Load(bg, id); err != nil {
			t.Errorf("an acknowledged append is lost: %v", err)
		}
	}
	if h := fresh.Holder(executing.TraceID); h != ledger.HolderGone {
		t.Errorf("the holder of the call that was under way is %v", h)
	}
	left, err := fresh.Fleet().Left(bg)
	if err != nil || len(left) == 0 || !contains(left, executing.TraceID) {
		t.Errorf("left are %v, %v; want the call that was under way", left, err)
	}
	if rep, err := fresh.Fleet().Check(bg); err != nil || len(rep.Problems) > 0 {
		t.Errorf("check: %+v, %v", rep, err)
	}
}

func contains(ids []tga.ID, id tga.ID) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// TestFleetAsksNoMoreOften: a call asks a shard of a fleet as often as a database that is none, and of the latter no row of a
// placement is read.
func TestFleetAsksNoMoreOften(t *testing.T) {
	p := migrated(t, "track_functions=all")
	tools := &outside{sends: map[string]int{}}
	const calls = 20
	asked := func(what string) (functions, rows string) {
		s := open(t, pgserver.DSN(p), postgres.Options{})
		rt := governed(t, s, tools)
		for i := range calls {
			if _, err := rt.Call(bg, runtime.Request{Server: "payments", Tool: "charge", Key: fmt.Sprint(what, i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		const counted = "SELECT coalesce(string_agg(funcname || ' ' || calls, ', ' ORDER BY funcname), '') FROM pg_stat_user_functions WHERE funcname IN ('acquire', 'append', 'vouch')"
		until(t, "the counts of "+what, func() bool { // those of a connection come with its end
			functions = query(t, p, counted)
			return strings.Contains(functions, fmt.Sprint("append ", 2*calls))
		})
		rows = query(t, p, "SELECT coalesce(sum(n_tup_upd + n_tup_hot_upd + n_tup_ins + idx_tup_fetch + seq_tup_read), 0)::text FROM pg_stat_user_tables WHERE relname IN ('placements', 'fleet', 'namespaces')")
		if err := p.Exec("SELECT pg_stat_reset()"); err != nil {
			t.Fatal(err)
		}
		return functions, rows
	}
	none, rows := asked("none")
	if rows != "0" {
		t.Errorf("%s rows of placements are read, and there are none", rows)
	}
	if _, err := postgres.AddShard(bg, quiet, postgres.AddingShard{DSN: pgserver.DSN(p), Name: "one", URL: pgserver.DSN(p)}); err != nil {
		t.Fatal(err)
	}
	if err := p.Exec("SELECT pg_stat_reset()"); err != nil {
		t.Fatal(err)
	}
	if fleet, _ := asked("fleet"); fleet != none {
		t.Errorf("a shard of a fleet is asked %s, a database of none %s", fleet, none)
	}
}

// TestStoresCloseDuringAnOutage: the only shard is away, and a call is connecting to it when the stores are closed. The
// call then looks for the shard of its store. The stores close once it has given up.
func TestStoresCloseDuringAnOutage(t *testing.T) {
	p := migrated(t)
	var away atomic.Bool
	connecting := make(chan struct{}, 100)
	way := wayTo(t, p, func(client, to net.Conn) {
		defer to.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if away.Load() {
				select {
				case connecting <- struct{}{}:
				default:
				}
				time.Sleep(300 * time.Millisecond)
				client.Close()
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	url := pgserver.DSN(&pgserver.Server{Dir: way})
	if _, err := postgres.AddShard(bg, quiet, postgres.AddingShard{DSN: pgserver.DSN(p), Name: "one", URL: url}); err != nil {
		t.Fatal(err)
	}
	all, err := postgres.OpenShards(bg, url, postgres.Options{Lease: shortLease, Patience: 2 * time.Second, Logger: quiet.Logger})
	if err != nil {
		t.Fatal(err)
	}
	s, err := all.Store(bg, "any")
	if err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	go func() { _, _ = s.Load(bg, storetest.NewID()) }()
	for range 3 { // the first ones may be connections from before
		<-connecting
	}
	closed := make(chan struct{})
	go func() {
		_ = all.Close() // its lease cannot be ended at the database
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Fatal("the stores do not close")
	}
}
