package serving_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// pg runs a verb of tgad pg, which must say something.
func pg(t *testing.T, says string, args ...string) {
	t.Helper()
	out, err := program(append([]string{"pg"}, args...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), says) {
		t.Errorf("pg %s: %v, %s; want %q", strings.Join(args, " "), err, out, says)
	}
}

// twoShards are two primaries of one fleet. Namespace a has a store on the first, b on the second.
func twoShards(t *testing.T) (one, two *pgserver.Server) {
	t.Helper()
	dir, err := pgserver.Place()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []**pgserver.Server{&one, &two} {
		if *s, err = pgserver.New(filepath.Join(dir, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := (*s).Remove(); err != nil {
				t.Error(err)
			}
		})
		pg(t, "partitions up to", "migrate", pgserver.DSN(*s))
	}
	pg(t, "shard one", "shard", pgserver.DSN(one), "--name", "one")
	pg(t, "shard two", "shard", pgserver.DSN(two), "--name", "two", "--of", pgserver.DSN(one))
	pg(t, "on one, epoch 1, here  a", "place", "a", pgserver.DSN(one), "--shard", "one")
	pg(t, "on two, epoch 1, elsewhere, pinned  b", "place", "b", pgserver.DSN(one), "--shard", "two", "--pin")
	return one, two
}

// TestDaemonServesAllShards: each daemon serves every namespace, wherever its store is, and lists, settles and verifies the traces
// of all. While a store moves, the calls of its namespace wait and the others go on; a daemon that stood still meanwhile sends nothing.
// No call is sent twice.
func TestDaemonServesAllShards(t *testing.T) {
	one, two := twoShards(t)
	f := newFleet(t, pgserver.DSN(one), "")
	x, y := f.start("x"), f.start("y")
	in := func(namespace, tool, key string) runtime.Request {
		r := call(tool, key)
		r.Namespace = namespace
		return r
	}
	begin := func(d *daemon, namespace, tool, key string) runtime.Begun {
		t.Helper()
		r := runtime.Request{Namespace: namespace, Server: "remote", Tool: tool, Key: key, Args: []byte(`{}`)}
		b, err := d.Begin(t.Context(), runtime.BeginRequest{Request: r, BeginID: "begin " + key})
		if err != nil {
			t.Fatalf("begin %s: %v", key, err)
		}
		return b
	}
	permits, doubts := map[string]runtime.Begun{}, map[string]tga.ID{}
	for _, namespace := range []string{"", "a", "b"} {
		key := "k" + namespace
		for _, d := range []*daemon{x, y, x} {
			if res, err := d.Call(t.Context(), in(namespace, "opaque", key)); err != nil || res.State != tga.Completed || f.tool.sends(key) != 1 {
				t.Errorf("%q: %v, %v, sent %d times", namespace, res.State, err, f.tool.sends(key))
			}
		}
		permits[namespace] = begin(x, namespace, "run", "begun "+namespace)
		d := begin(x, namespace, "pay", "doubt "+namespace)
		if err := x.GiveUp(t.Context(), d.Result.TraceID, d.Permit, "", 0); err != nil && tga.CodeOf(err) != tga.EffectInDoubt {
			t.Fatal(err)
		}
		doubts[namespace] = d.Result.TraceID
	}
	if n := query(t, one, "SELECT count(*)::text FROM tgad.heads WHERE namespace = 'b'"); n != "0" {
		t.Errorf("shard one has %s traces of b", n)
	}
	if n := query(t, two, "SELECT count(*)::text FROM tgad.heads WHERE namespace <> 'b'"); n != "0" {
		t.Errorf("shard two has %s traces of others", n)
	}
	until(t, "three calls in doubt, one of each store", func() bool {
		list, err := y.InDoubt(t.Context())
		return err == nil && len(list) == 3
	})
	listed := 0
	for o, err := range y.Traces(t.Context(), wire.TracesQuery{All: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if o.TraceID == doubts["b"] && o.Namespace != "b" {
			t.Errorf("listed: %+v", o)
		}
		listed++
	}
	if listed != 15 {
		t.Errorf("%d traces are listed", listed)
	}
	_, err := y.Resolve(t.Context(), doubts["b"], runtime.Resolution{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`1`)}, Who: "a person", Evidence: []byte(`{}`)})
	if err != nil {
		t.Errorf("resolve: %v", err)
	}
	if v, err := y.Verify(t.Context(), tga.ID{}); err != nil || v.Traces != 15 || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
	for _, err := range x.Log(t.Context(), "", false) {
		if !errors.Is(err, tga.NotFound) {
			t.Errorf("the order of all: %v", err)
		}
		break
	}

	signsNothing(t, f, x, doubts["b"])

	moves(t, f, one, two, x, y, in)
	if got := query(t, two, "SELECT owner || ' ' || state FROM tgad.placements WHERE store = 1"); got != "two here" {
		t.Errorf("shard two says that the store of a is %q", got)
	}
	for namespace, b := range permits { // they are good after the move
		if _, err := y.Finish(t.Context(), b.Result.TraceID, b.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`1`)}}); err != nil {
			t.Errorf("finish %q: %v", namespace, err)
		}
	}
	if v, err := x.Verify(t.Context(), tga.ID{}); err != nil || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
	out, err := program("pg", "move", "b", "--from", pgserver.DSN(two), "--to", pgserver.DSN(one)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "pinned") {
		t.Errorf("a pinned store is moved: %v, %s", err, out)
	}
	onlyOne(t, f, one, in)

	// A shard is lost: the namespaces of the other go on, also at a daemon that starts now.
	if err := two.Stop(); err != nil {
		t.Error(err)
	}
	for _, d := range []*daemon{x, f.start("later")} { // which looks for the shard first
		for _, key := range []string{"k", "while a shard is away"} {
			if res, err := d.Call(t.Context(), in("", "opaque", key)); err != nil || res.State != tga.Completed || f.tool.sends(key) != 1 {
				t.Errorf("%s: %v, %v, sent %d times", key, res.State, err, f.tool.sends(key))
			}
		}
		if err := d.Ready(t.Context()); err != nil {
			t.Errorf("ready: %v", err)
		}
	}
}

// moves moves a from shard one to two, under load, while daemon x stands still.
func moves(t *testing.T, f *fleet, one, two *pgserver.Server, x, y *daemon, in func(namespace, tool, key string) runtime.Request) {
	t.Helper()
	var reached atomic.Bool
	held := make(chan struct{})
	f.tool.holding(func(key string) {
		if key == "held" && !reached.Swap(true) {
			<-held
		}
	})
	go func() { _, _ = x.Call(context.Background(), in("a", "opaque", "held")) }() // its daemon stops in the middle of it
	until(t, "the call at the tool", reached.Load)
	x.signal(syscall.SIGSTOP)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var callers sync.WaitGroup
	var calls [3]atomic.Int64
	for i, namespace := range []string{"", "a", "b"} {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprint("load ", namespace, n)
				if res, err := y.Call(t.Context(), in(namespace, "opaque", key)); err != nil || res.State != tga.Completed || f.tool.sends(key) != 1 {
					t.Errorf("%s: %v, %v, sent %d times", key, res.State, err, f.tool.sends(key))
				}
				calls[i].Add(1)
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	until(t, "calls", func() bool { return calls[1].Load() > 3 })
	pg(t, "store 1 is on shard two, epoch 2", "move", "a", "--from", pgserver.DSN(one), "--to", pgserver.DSN(two), "--drain", "100ms")
	was := [3]int64{calls[0].Load(), calls[1].Load(), calls[2].Load()}
	until(t, "calls after the move", func() bool { return calls[1].Load() > was[1]+3 })
	if was[0] < 2*was[1] || was[2] < 2*was[1] {
		t.Errorf("calls while the store moved: %v of the rest and b, %v of a: the others stopped too", []int64{was[0], was[2]}, was[1])
	}
	stop()
	callers.Wait()
	_, err := y.Call(t.Context(), in("a", "opaque", "held"))
	wantCode(t, err, tga.EffectInDoubt)
	close(held)
	x.signal(syscall.SIGCONT)
	until(t, "the daemon that stood still", func() bool {
		_, err := x.Call(t.Context(), in("a", "opaque", "after the move"))
		return err == nil
	})
	if n := f.tool.sends("held"); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// signsNothing: each store has an order of its own. A daemon of all has no proofs, and is refused with a key; one of a store signs.
func signsNothing(t *testing.T, f *fleet, d *daemon, trace tga.ID) {
	t.Helper()
	_, err := d.Proofs().Receipt(t.Context(), trace)
	wantCode(t, err, tga.NotFound)
	wantCode(t, d.Unfreeze(t.Context(), true), tga.NotFound)
	secret, _, err := checkpoint.NewKey("fleet.example")
	key, file := filepath.Join(f.dir, "key"), filepath.Join(f.dir, "signing.toml")
	if err == nil {
		err = checkpoint.CreateKeyFile(key, secret)
	}
	raw, rerr := os.ReadFile(f.config)
	if err == nil {
		err = rerr
	}
	for _, table := range []string{
		fmt.Sprintf("[evidence]\nkey_file = %q", key), fmt.Sprintf("[[audit]]\nid = \"file\"\ntype = \"file\"\npath = %q", filepath.Join(f.dir, "audit")),
		"[[notify]]\nid = \"pager\"\ntype = \"command\"\ncommand = [\"true\"]",
	} {
		if err == nil {
			err = os.WriteFile(file, append(raw, "\n"+table+"\n"...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := program("serve", "--store", f.url, "--config", file, "--socket", filepath.Join(f.dir, "signing")).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "a fleet has several: set [store] namespace") {
			t.Errorf("%s: %v, %s", table, err, out)
		}
	}
}

// onlyOne: a daemon serves one store of the fleet, which it finds where it is, and refuses the others.
func onlyOne(t *testing.T, f *fleet, one *pgserver.Server, in func(namespace, tool, key string) runtime.Request) {
	t.Helper()
	g := newFleet(t, pgserver.DSN(one), "")
	text, err := os.ReadFile(g.config)
	if err == nil {
		err = os.WriteFile(g.config, []byte(strings.Replace(string(text), "shard = 0", `namespace = "a"`, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := g.start("z")
	if _, err := d.Call(t.Context(), in("a", "opaque", "ka")); err != nil || g.tool.sends("ka") != 0 || f.tool.sends("ka") != 1 {
		t.Errorf("a key that was used before the move: %v", err)
	}
	_, err = d.Call(t.Context(), in("b", "opaque", "kb"))
	wantCode(t, err, tga.NotFound)
	if g.tool.sends("kb") != 0 {
		t.Error("a call of another store's namespace is sent")
	}
	n := 0
	for _, err := range d.Log(t.Context(), "", false) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Error("the store has no order")
	}
	_, err = postgres.Open(t.Context(), pgserver.DSN(one), postgres.Options{Shard: 1})
	var e *postgres.Elsewhere
	if !errors.As(err, &e) || e.Owner != "two" {
		t.Errorf("the store of a where it was: %v", err)
	}
}

func query(t *testing.T, s *pgserver.Server, statement string) string {
	t.Helper()
	text, err := s.Query(statement)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
