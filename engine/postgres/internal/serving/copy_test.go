package serving_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// directory makes a store in a directory, with calls of every kind: finished ones, long answers, one
// in doubt, and one that waits for a vote.
func directory(t *testing.T, calls int) (dir string, log []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	db, err := engine.Open(dir, engine.Options{LowWaterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	tools := runtime.DispatcherFunc(func(_ context.Context, c runtime.Call) (runtime.Reply, error) {
		if c.Key == "doubt" {
			return runtime.Reply{}, context.DeadlineExceeded
		}
		long := strings.Repeat("x", len(c.Key)*97%3*100_000)
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(fmt.Sprintf(`{"paid":%q,"more":%q}`, c.Key, long))}, nil
	})
	rt, err := runtime.New(db, tools, runtime.AllowAll, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		if _, err := rt.Call(t.Context(), call("opaque", fmt.Sprint("key ", i))); err != nil {
			t.Fatal(err)
		}
	}
	_, err = rt.Call(t.Context(), call("opaque", "doubt"))
	wantCode(t, err, tga.EffectInDoubt)
	log = content(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, log
}

// ordered is a store with its order.
type ordered interface {
	runtime.Store
	Cursor() uint64
	Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error]
}

// opened opens the store of a database.
func opened(t *testing.T, storeURL string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), storeURL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// content is the whole order of a store, with the bytes of what each append added.
func content(t *testing.T, s ordered) []byte {
	t.Helper()
	var all bytes.Buffer
	newest := s.Cursor()
	for l, err := range s.Follow(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(line)
		for e, err := range s.Entries(t.Context(), l.TraceID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq >= l.FirstSeq && e.Seq < l.FirstSeq+uint64(l.Entries) {
				frame, spill := chain.AppendFrame(nil, &e)
				all.Write(frame)
				all.Write(spill)
			}
		}
		for n, err := range s.Notes(t.Context(), l.TraceID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if l.Notes > 0 && n.Number >= l.FirstNote && n.Number < l.FirstNote+uint32(l.Notes) {
				all.Write(n.AppendCanonical(nil))
			}
		}
		if l.Index == newest {
			break
		}
	}
	return all.Bytes()
}

// TestCopiedStoreIsTheSame: a copy that is killed again and again comes to its end. Until then a
// daemon of it is not ready. Then its order and its bytes are those of the directory, a key that was
// used is not sent again, a doubt is still one, and the directory is frozen.
func TestCopiedStoreIsTheSame(t *testing.T) {
	calls := 200 // two pages
	if !testing.Short() {
		calls = 1000
	}
	dir, log := directory(t, calls)
	s := newServer(t)
	f := newFleet(t, urlOf(s), "")
	// run runs a copy. It is killed when so says so.
	run := func(so func() bool) (code int, out string) {
		cmd := program("copy", "--from", dir, "--to", f.url, "--config", f.config)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // how it ended is in its state
			close(ended)
		}()
		for {
			select {
			case <-ended:
				return cmd.ProcessState.ExitCode(), said.String()
			case <-time.After(time.Millisecond):
				if so() {
					_ = cmd.Process.Kill()
				}
			}
		}
	}
	query := func(sql string) string {
		text, err := s.Query(sql)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	marked := func() bool {
		return query("SELECT count(*)::text FROM tgad.meta WHERE name = 'copying' AND value <> ''") == "1"
	}
	// Each of these grows while a copy goes on: it is killed when one has, and goes on from there.
	broken := map[string]bool{}
	code, out := -1, ""
	for _, grows := range []string{
		"(SELECT last FROM tgad.order_state)", "(SELECT last FROM tgad.order_state)", "(SELECT count(*) FROM tgad.heads)", "(SELECT count(*) FROM tgad.ledger)",
		"(SELECT count(*) FROM tgad.sessions)",
	} {
		sql := "SELECT coalesce(" + grows + ", 0)::text"
		before := query(sql)
		if code, out = run(func() bool { return query(sql) != before }); code == 0 {
			break // it was faster
		}
		if code > 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		broken[query("SELECT last::text FROM tgad.order_state")] = true
	}
	if len(broken) == 0 || len(broken) == 1 && broken["0"] || code != 0 && len(broken) < 2 {
		t.Errorf("copies were broken off at %v appends only", broken)
	}
	t.Logf("broken off at %v appends", broken)
	if marked() {
		cmd := program("serve", "--store", f.url, "--config", f.config, "--socket", filepath.Join(f.dir, "half", "s"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c := client.New(filepath.Join(f.dir, "half", "s"), client.Options{Name: "test"})
		until(t, "the daemon of half a copy answers", func() bool { return c.Live(t.Context()) == nil })
		wantCode(t, c.Ready(t.Context()), tga.StoreUnavailable)
		_, err := c.Call(t.Context(), call("opaque", "new"))
		wantCode(t, err, tga.StoreUnavailable)
		c.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	never := func() bool { return false }
	if code != 0 {
		code, out = run(never)
	}
	if code != 0 || !strings.Contains(out, fmt.Sprintf("%d traces", calls+1)) {
		t.Fatalf("exit code %d: %s", code, out)
	}

	d := f.start("a")
	sound(t, d)
	for i := range calls {
		key := fmt.Sprint("key ", i)
		res, err := d.Call(t.Context(), call("opaque", key))
		if err != nil || !res.Replayed || !bytes.HasPrefix(res.Value, []byte(fmt.Sprintf(`{"paid":%q`, key))) {
			t.Errorf("%s: %.40q, %v", key, res.Value, err)
		}
		if n := f.tool.sends(key); n != 0 {
			t.Errorf("%s was sent again", key)
		}
		if i == 20 {
			break // each makes a trace more
		}
	}
	_, err := d.Call(t.Context(), call("opaque", "doubt"))
	wantCode(t, err, tga.EffectInDoubt)
	copied := content(t, opened(t, f.url))
	if !bytes.HasPrefix(copied, log) {
		t.Errorf("the copy's log has %d bytes and does not begin with the %d of the directory", len(copied), len(log))
	}

	db, err := engine.Open(dir, engine.Options{LowWaterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if db.Stats().Frozen == "" {
		t.Error("the directory is not frozen: both could be served")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// Nothing is copied over it, from this directory or from another one.
	d.end(syscall.SIGTERM)
	if code, out := run(never); code != 1 || !strings.Contains(out, "is whole already") {
		t.Errorf("exit code %d: %s", code, out)
	}
	other, _ := directory(t, 1)
	dir = other
	if code, out := run(never); code != 1 || !strings.Contains(out, "has a store in shard 0 already") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
