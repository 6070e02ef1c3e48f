package postgres_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/internal/sealrules/sealtest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// underWay reports whether an erasure is remembered.
func underWay(t testing.TB, dsn string, shard int32) (is bool) {
	t.Helper()
	if err := connect(t, dsn).QueryRow(bg, "SELECT EXISTS (SELECT 1 FROM tgad.erasing WHERE shard = $1)", shard).Scan(&is); err != nil {
		t.Fatal(err)
	}
	return is
}

// erasures are what is erased in a test of what breaks an erasure off.
type erasures struct {
	calls          []*storetest.Builder
	stays          *storetest.Builder
	stream, family tga.ID
	what           chain.Erasure
}

func layErasures(t testing.TB, s *postgres.Store) *erasures {
	t.Helper()
	e := &erasures{}
	layIn(t, s, e)
	return e
}

// layIn makes them in a namespace.
func layIn(t testing.TB, s *postgres.Store, e *erasures, namespace ...string) {
	t.Helper()
	e.stream, e.family = storetest.NewID(), storetest.NewID()
	for range 3 {
		e.calls = append(e.calls, made(t, s, "", namespace...))
		e.what.Traces = append(e.what.Traces, e.calls[len(e.calls)-1].TraceID)
	}
	e.stays = made(t, s, "", namespace...)
	node := keyspace.NodeKey(e.family, tga.Sum([]byte("node")))
	for id, list := range map[tga.ID][]chain.Attachment{
		e.stream: {{Kind: chain.AttachStream, Key: keyspace.StreamKey(e.stream, 1), Value: []byte(sealtest.Secret)}, {Kind: chain.AttachStream, Key: keyspace.StreamKey(e.stream, 2), Value: []byte(sealtest.Secret)}},
		e.family: {{Kind: chain.AttachStream, Key: keyspace.StateKey(e.family, 0, 1), Value: []byte(sealtest.Secret), Owner: e.family}, {Kind: chain.AttachBlob, Key: node[:], Value: []byte(sealtest.Secret), Owner: e.family}},
	} {
		lease, err := s.Acquire(bg, id)
		if err == nil {
			_, err = s.Append(bg, lease, chain.Batch{Attachments: list})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Release(lease)
	}
	e.what.Turns, e.what.States = []tga.ID{e.stream}, []tga.ID{e.family}
	e.what = byOperator(e.what)
}

// begun reports whether anything of it is erased; each trace is whole, or erased with its note.
func (e *erasures) begun(t testing.TB, s *postgres.Store) (begun bool) {
	t.Helper()
	for _, c := range e.calls {
		whole, erased := isWhole(t, s, c.TraceID), isErased(t, s, c.TraceID)
		if whole == erased {
			t.Errorf("trace %s is whole %v, erased %v", c.TraceID, whole, erased)
		}
		begun = begun || erased
	}
	if !isWhole(t, s, e.stays.TraceID) {
		t.Error("what stays is not whole")
	}
	return begun
}

// orderly fails the test if a key is destroyed before everything that it sealed is erased: a reader would then find neither the
// contents nor a note that says why.
func (e *erasures) orderly(t testing.TB, s *postgres.Store, ring *chaintest.Ring) {
	t.Helper()
	if len(ring.Destroyed) == 0 {
		return
	}
	for _, c := range e.calls {
		if !isErased(t, s, c.TraceID) {
			t.Errorf("%d keys are destroyed, and trace %s has no note of it", len(ring.Destroyed), c.TraceID)
		}
	}
}

// over fails the test unless all of it is erased, and its keys destroyed.
func (e *erasures) over(t testing.TB, s *postgres.Store, ring *chaintest.Ring) {
	t.Helper()
	for _, c := range e.calls {
		if !isErased(t, s, c.TraceID) {
			t.Errorf("trace %s is not erased", c.TraceID)
		}
	}
	first, err := s.Attachment(bg, chain.AttachStream, keyspace.StreamKey(e.stream, 1))
	if err != nil || first == nil || len(first) > 0 {
		t.Errorf("the first item of the stream is %q, %v", first, err)
	}
	head, err := s.Attachment(bg, chain.AttachStream, keyspace.StreamKey(e.family, 0))
	if was, rerr := chain.ReadStateErasure(head); err != nil || rerr != nil || was == nil {
		t.Errorf("the head of the state is %q, %v, %v", head, err, rerr)
	}
	if len(ring.Destroyed) != 5 {
		t.Errorf("destroyed %v", ring.Destroyed)
	}
	if !isWhole(t, s, e.stays.TraceID) {
		t.Error("what stays is not whole")
	}
	checked(t, s)
}

// TestErasureThatIsBrokenOff: an erasure that is interrupted at any step was not begun, or is complete once it is repeated or once
// a process opens the store.
func TestErasureThatIsBrokenOff(t *testing.T) {
	dsn, _ := database(t)
	stop := errors.New("the process ends here")
	steps := 0
	for at := 0; at <= steps; at++ {
		for _, repeated := range []bool{true, false} {
			ring, shard := new(chaintest.Ring), shards.Add(1)
			o := postgres.Options{Shard: shard, Keyring: ring}
			s, err := postgres.Open(bg, dsn, o)
			if err != nil {
				t.Fatal(err)
			}
			e := layErasures(t, s)
			n, name := 0, ""
			postgres.BeforeErasing(s, func(step string) error {
				if n++; n > at {
					name = step
					return stop
				}
				return nil
			})
			_, err = s.Fleet().Erase(bg, e.what)
			if err == nil {
				n = at
			} else if !errors.Is(err, stop) {
				t.Fatalf("step %d: %v", at, err)
			}
			steps = max(steps, n)
			if begun := e.begun(t, s); begun && at == 0 {
				t.Error("it is begun before it is remembered")
			}
			e.orderly(t, s, ring)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = postgres.Open(bg, dsn, o); err != nil {
				t.Fatal(err)
			}
			switch {
			case repeated || at == 0:
				if _, err := s.Fleet().Erase(bg, e.what); err != nil {
					t.Errorf("step %d, %s: repeated: %v", at, name, err)
				}
			default:
				until(t, fmt.Sprintf("the erasure goes on after step %d, %s", at, name), func() bool { return !underWay(t, dsn, shard) })
			}
			e.over(t, s, ring)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if steps < 12 {
		t.Errorf("only %d steps were broken off", steps)
	}
	t.Logf("%d steps", steps)
}

// TestErasureWhoseConnectionsBreak: connections that break in any step, before or while its statements are on their way, leave
// nothing half done and nothing done twice.
func TestErasureWhoseConnectionsBreak(t *testing.T) {
	p := migrated(t)
	dsn := pgserver.DSN(p)
	ring := new(chaintest.Ring)
	s := open(t, dsn, postgres.Options{Keyring: ring, Logger: slog.New(slog.DiscardHandler)})
	conn := connect(t, dsn)
	var one sync.Mutex
	broken := 0
	for round := range 3 {
		e := layErasures(t, s)
		var breaks sync.WaitGroup
		var steps atomic.Int32
		postgres.BeforeErasing(s, func(string) error {
			if steps.Add(1) > 60 { // of some five tries; if all were broken, none would end but by luck
				return nil
			}
			breaks.Go(func() {
				time.Sleep(time.Duration(round) * time.Millisecond)
				one.Lock()
				defer one.Unlock()
				n := 0
				if err := conn.QueryRow(bg, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()").Scan(&n); err != nil {
					t.Error(err)
				}
				broken += n
			})
			return nil
		})
		until(t, "it is erased", func() bool {
			_, err := s.Fleet().Erase(bg, e.what)
			if err != nil && tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("erase: %v", err)
			}
			return err == nil
		})
		breaks.Wait()
		postgres.BeforeErasing(s, nil)
		e.over(t, s, ring)
		clear(ring.Destroyed)
	}
	if broken < 10 {
		t.Errorf("only %d connections were broken", broken)
	}
}

// TestWhoErasesNeedsTheRole: a login that only writes is refused before anything is changed; one that has both roles erases.
func TestWhoErasesNeedsTheRole(t *testing.T) {
	p := migrated(t)
	as := func(name string, roles string) string {
		if err := p.Exec(fmt.Sprintf("CREATE ROLE %s LOGIN IN ROLE %s", name, roles)); err != nil {
			t.Fatal(err)
		}
		return strings.Replace(pgserver.DSN(p), "//owner@", "//"+name+"@", 1)
	}
	ring := new(chaintest.Ring)
	writes := open(t, as("a_writes", "tgad_writer"), postgres.Options{Keyring: ring})
	e := layErasures(t, writes)
	if _, err := writes.Fleet().Erase(bg, e.what); tga.CodeOf(err) != tga.PermissionDenied {
		t.Errorf("who only writes: %v", err)
	}
	if e.begun(t, writes) || underWay(t, pgserver.DSN(p), 0) || len(ring.Destroyed) > 0 {
		t.Error("something is erased")
	}
	erases := open(t, as("b_erases", "tgad_writer, tgad_eraser"), postgres.Options{Keyring: ring})
	until(t, "it was let go of", func() bool {
		_, err := erases.Fleet().Erase(bg, e.what)
		return err == nil
	})
	e.over(t, erases, ring)
}

// TestSealedStoreMoves: to another shard with its keys, and with an erasure that is under way, which goes on there.
func TestSealedStoreMoves(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	ring := new(chaintest.Ring)
	at := func(p *pgserver.Server) *postgres.Store {
		t.Helper()
		s, err := postgres.Open(bg, pgserver.DSN(p), postgres.Options{Shard: x.store, Keyring: ring, Lease: time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := at(x.one)
	e := &erasures{}
	layIn(t, s, e, x.namespace)
	n := 0
	postgres.BeforeErasing(s, func(string) error {
		if n++; n > 3 {
			return errors.New("the process ends here")
		}
		return nil
	})
	if _, err := s.Fleet().Erase(bg, e.what); err == nil || !e.begun(t, s) {
		t.Fatalf("it is not begun: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	keys := func(p *pgserver.Server) string {
		return query(t, p, "SELECT (SELECT count(*) FROM tgad.data_keys WHERE shard = $1) || ' data keys, ' || (SELECT count(*) FROM tgad.owner_keys WHERE shard = $1) || ' of owners'", x.store)
	}
	had := keys(x.one)
	x.moved(x.there())
	if has := keys(x.two); has != had || strings.HasPrefix(has, "0 ") {
		t.Errorf("%s were moved, of %s", has, had)
	}
	s = at(x.two)
	defer s.Close()
	until(t, "the erasure goes on", func() bool { return !underWay(t, pgserver.DSN(x.two), x.store) })
	e.over(t, s, ring)
	if b := made(t, s, "", x.namespace); !isWhole(t, s, b.TraceID) {
		t.Error("the next call cannot be read")
	}
}

// waiting is a ring whose keys wait to be used.
type waiting struct {
	*keyring.Ring
	chosen func()
}

func (r waiting) Key(namespace, subject string) (chain.KeyID, error) {
	key, err := r.Ring.Key(namespace, subject)
	if subject != "" {
		r.chosen()
	}
	return key, err
}

// TestKeyThatIsRetiredWhileItIsChosen: a process has got a new key of a subject and not used it yet, when another process erases the
// subject. The key is destroyed, so nothing may be sealed under it later.
func TestKeyThatIsRetiredWhileItIsChosen(t *testing.T) {
	dsn, shard := database(t)
	path, ring := ringFile(t, true)
	chosen, looked, sealed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	b := open(t, dsn, postgres.Options{Shard: shard, Keyring: waiting{ring(path), func() {
		once.Do(func() {
			close(chosen)
			<-looked
		})
	}}})
	a := open(t, dsn, postgres.Options{Shard: shard, Keyring: ring(path)})
	var call *storetest.Builder
	go func() {
		defer close(sealed)
		call = made(t, b, "alice")
	}()
	<-chosen
	postgres.BeforeErasing(a, func(step string) error {
		if step == "begin" {
			close(looked)
			<-sealed
		}
		return nil
	})
	done, err := a.Fleet().Erase(bg, byOperator(chain.Erasure{Subject: "alice"}))
	if err != nil || done.Traces != 0 || done.Keys != 1 {
		t.Errorf("erased %+v, %v", done, err)
	}
	if !isWhole(t, a, call.TraceID) || !isWhole(t, b, call.TraceID) {
		t.Error("the call is lost")
	}
}
