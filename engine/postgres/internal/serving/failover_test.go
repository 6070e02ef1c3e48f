package serving_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// newServer makes a server of this test alone, with the tables of a store: by the verb.
func newServer(t *testing.T) *pgserver.Server {
	t.Helper()
	dir, err := pgserver.Place()
	if err != nil {
		t.Fatal(err)
	}
	s, err := pgserver.New(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Remove() })
	for _, want := range []string{"made the tables, version 9\npartitions up to ", "the tables were of version 9 already\n"} {
		out, err := program("pg", "migrate", pgserver.DSN(s), "--until", "3").CombinedOutput()
		if err != nil || len(out) < len(want) || string(out[:len(want)]) != want {
			t.Fatalf("pg migrate: %v, %s", err, out)
		}
	}
	return s
}

// TestServerThatIsAwayIsTold: while no server answers a daemon lives and is not ready. It is ready
// again when the server is back, and its call goes on.
func TestServerThatIsAwayIsTold(t *testing.T) {
	s := newServer(t)
	f := newFleet(t, pgserver.DSN(s), "")
	a := f.start("a")
	s.Kill()
	wantCode(t, a.Ready(t.Context()), tga.StoreUnavailable)
	if err := a.Live(t.Context()); err != nil {
		t.Errorf("a restart would help: %v", err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := a.Call(t.Context(), call("opaque", "k"))
		answered <- err
	}()
	time.Sleep(100 * time.Millisecond)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the call: %v", err)
	}
	until(t, "the daemon is ready", func() bool { return a.Ready(t.Context()) == nil })

	// A server that promises less than it must is told too.
	if err := s.Exec("ALTER SYSTEM SET synchronous_commit = local", "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon refuses the server", func() bool { return a.Ready(t.Context()) != nil })
	if err := s.Exec("ALTER SYSTEM RESET synchronous_commit", "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon takes the server", func() bool { return a.Ready(t.Context()) == nil })
	if n := f.tool.sends("k"); n != 1 {
		t.Errorf("sent %d times", n)
	}
	sound(t, a)
}

// TestStandbyIsPromotedUnderDaemons: the primary is killed and its synchronous standby promoted while
// two daemons serve callers. What was answered is there, and nothing was sent twice. What was signed is there too, and they go on from it.
func TestStandbyIsPromotedUnderDaemons(t *testing.T) {
	primary := newServer(t)
	standby, err := primary.NewStandby(filepath.Join(filepath.Dir(primary.Dir), "b"), "b")
	if err == nil {
		t.Cleanup(func() { _ = standby.Remove() })
		err = primary.Synchronous(standby)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, key := newSigning(t, pgserver.DSN(primary, standby), "")
	daemons := []*daemon{f.start("a"), f.start("b")}
	m := follow(t, key, func() []*client.Client { return []*client.Client{daemons[0].Client, daemons[1].Client} })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	answered := map[string]string{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprint(i, " ", n)
				res, err := daemons[i%2].Call(context.WithoutCancel(ctx), call("opaque", key))
				if err == nil && res.State == tga.Completed {
					mu.Lock()
					answered[key] = string(res.Value)
					mu.Unlock()
				}
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(answered)
	}
	until(t, "calls are answered", func() bool { return count() > 20 })
	until(t, "a checkpoint is signed", func() bool {
		_, err := m.Step(t.Context())
		size, _ := m.Seen()
		return err == nil && size > 0
	})
	signed, _ := m.Seen()
	primary.Kill()
	before := count()
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	until(t, "calls are answered again", func() bool { return count() > before+20 })
	stop()
	wg.Wait()
	for key, want := range answered {
		res, err := daemons[1].Call(t.Context(), call("opaque", key))
		if err != nil || string(res.Value) != want {
			t.Errorf("%q: %q, %v; it was answered %q", key, res.Value, err, want)
		}
	}
	f.tool.mu.Lock()
	for key, n := range f.tool.byKey {
		if n > 1 {
			t.Errorf("%q was sent %d times", key, n)
		}
	}
	f.tool.mu.Unlock()
	until(t, "checkpoints are signed again", func() bool {
		if _, err := m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		size, _ := m.Seen()
		return size > signed
	})
	sound(t, daemons[0])
}
