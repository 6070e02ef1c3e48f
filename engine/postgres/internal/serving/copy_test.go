package serving_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// begun is the call that an executor of its own has begun in the directory.
var begun = runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "run", Key: "begun", Args: []byte(`{}`)}, BeginID: "a begin id of the copy's test"}

// source is a store in a directory, and what it holds.
type source struct {
	dir    string
	log    []byte        // see [content]
	rows   []byte        // see [rows]
	asked  tga.ID        // the trace that waits for a vote
	permit runtime.Begun // of [begun]
}

// directory makes a store in a directory, with calls of every kind: finished ones, half of them archived,
// long answers, one in doubt, one that waits for a vote until a time, and one that an executor has
// begun; with a checkpoint, and with an attachment of each kind.
func directory(t *testing.T, calls int) (x source) {
	t.Helper()
	x.dir = filepath.Join(t.TempDir(), "data")
	db, err := engine.Open(x.dir, engine.Options{LowWaterBytes: 1})
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
	rules := runtime.Rules{Rules: []runtime.Rule{{Tool: "refund", Decision: tga.NeedsApproval, Within: time.Hour}, {Decision: tga.Approve}}}
	rt, err := runtime.New(db, tools, rules, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		if i == calls/2 {
			if done, err := db.SealTraces(t.Context(), tga.MillisOf(time.Now())+1); err != nil || done.Traces != i {
				t.Fatalf("%d traces are archived, %v", done.Traces, err)
			}
		}
		if _, err := rt.Call(t.Context(), call("opaque", fmt.Sprint("key ", i))); err != nil {
			t.Fatal(err)
		}
	}
	_, err = rt.Call(t.Context(), call("opaque", "doubt"))
	wantCode(t, err, tga.EffectInDoubt)
	waits, err := rt.Call(t.Context(), call("refund", "asked"))
	wantCode(t, err, tga.EscalationRequired)
	x.asked = waits.TraceID
	mine := begun
	mine.Submitter = fmt.Sprintf("uid:%d", os.Geteuid()) // as a daemon names this peer
	if x.permit, err = rt.Begin(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	lease, err := db.Acquire(t.Context(), x.asked)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.WriteCheckpoint(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	db.Release(lease)
	stream := tga.ID(uuid.Must(uuid.NewV7()))
	if lease, err = db.Acquire(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	key := keyspace.StreamKey(stream, 1)
	blob := []byte(`{"seen":true}`)
	if _, err := db.Append(t.Context(), lease, chain.Batch{Attachments: []chain.Attachment{
		{Kind: chain.AttachStream, Key: key, Value: []byte("the first")}, {Kind: chain.AttachBlob, Key: keyspace.DigestKey(tga.Sum(blob)), Value: blob},
	}}); err != nil {
		t.Fatal(err)
	}
	db.Release(lease)
	x.log, x.rows = content(t, db), rows(t, db)
	for _, kind := range chain.AttachmentKinds {
		if !bytes.Contains(x.rows, []byte(fmt.Sprintf("\n%c ", kind))) {
			t.Errorf("the directory has no attachment of kind %c", kind)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return x
}

// rows is what a store holds beside its log: attachments, and the checkpoint of each trace.
func rows(t *testing.T, s ordered) []byte {
	t.Helper()
	var all bytes.Buffer
	for _, kind := range chain.AttachmentKinds {
		for a, err := range s.Attachments(t.Context(), kind, nil) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&all, "\n%c %x %x", kind, a.Key, a.Value)
		}
	}
	for l, err := range s.Traces(t.Context(), tga.ID{}) {
		if err != nil || l.Err != nil {
			t.Fatal(err, l.Err)
		}
		cp, ok, err := s.LatestCheckpoint(t.Context(), l.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			fmt.Fprintf(&all, "\ncheckpoint %s", cp.AppendCanonical(nil))
		}
	}
	return all.Bytes()
}

// ordered is a store with its order.
type ordered interface {
	runtime.Store
	Cursor() uint64
	Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error]
	Traces(ctx context.Context, after tga.ID) iter.Seq2[chain.Listed, error]
	LatestCheckpoint(ctx context.Context, trace tga.ID) (cp tga.Checkpoint, ok bool, err error)
}

// database is the store of a database as [ordered].
type database struct {
	*postgres.Store
	postgres.Fleet
}

// opened opens the store of a database.
func opened(t *testing.T, storeURL string) database {
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
	return database{s, s.Fleet()}
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
	from := directory(t, calls)
	dir := from.dir
	s := newServer(t)
	f := newFleet(t, pgserver.DSN(s), approvals)
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
	// A daemon of a copy that is not whole answers, and neither is ready nor takes calls.
	half := false
	serveHalf := func() {
		if half || !marked() {
			return
		}
		half = true
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
		serveHalf()
	}
	if len(broken) == 0 || len(broken) == 1 && broken["0"] || code != 0 && len(broken) < 2 {
		t.Errorf("copies were broken off at %v appends only", broken)
	}
	t.Logf("broken off at %v appends", broken)
	if !half {
		t.Error("there was no half of a copy to serve")
	}
	never := func() bool { return false }
	if code != 0 {
		code, out = run(never)
	}
	if code != 0 || !strings.Contains(out, fmt.Sprintf("%d traces", calls+3)) {
		t.Fatalf("exit code %d: %s", code, out)
	}

	if got := rows(t, opened(t, f.url)); !bytes.Equal(got, from.rows) {
		t.Errorf("the copy has beside its log\n%s\nthe directory\n%s", got, from.rows)
	}
	d := f.start("a")
	sound(t, d)
	if b, err := d.Begin(t.Context(), begun); err != nil || b.Permit != from.permit.Permit {
		t.Errorf("begun once more: %+v, %v; want permit %v", b, err, from.permit.Permit)
	}
	if res, err := d.Finish(t.Context(), from.permit.Result.TraceID, from.permit.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess}}); err != nil || res.State != tga.Completed {
		t.Errorf("finished with a permit of the directory: %s, %v", res.State, err)
	}
	if res, err := d.Decide(t.Context(), from.asked, wire.DecideRequest{Approve: true, Rationale: "it is a test of it"}); err != nil || res.State != tga.Completed || f.tool.sends("asked") != 1 {
		t.Errorf("the vote: %s, %v, sent %d times", res.State, err, f.tool.sends("asked"))
	}
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
	if !bytes.HasPrefix(copied, from.log) {
		t.Errorf("the copy's log has %d bytes and does not begin with the %d of the directory", len(copied), len(from.log))
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
	dir = directory(t, 2).dir
	if code, out := run(never); code != 1 || !strings.Contains(out, "has a store in shard 0 already") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestCopyMakesNoStore: a copy of a directory that is not there is refused, and does not make a store there.
func TestCopyMakesNoStore(t *testing.T) {
	s := newServer(t)
	f := newFleet(t, pgserver.DSN(s), approvals)
	from := filepath.Join(t.TempDir(), "mistyped")
	out, err := program("copy", "--from", from, "--to", f.url, "--config", f.config).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("NOT_FOUND")) {
		t.Errorf("%v, %s", err, out)
	}
	if _, err := os.Stat(from); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}

// TestCopiedDirectoryIsCopiedNowhereElse: a directory that was copied is copied into no other store. Both copies would be served, and
// each would send what the other has sent.
func TestCopiedDirectoryIsCopiedNowhereElse(t *testing.T) {
	from := directory(t, 2)
	for i, want := range []string{"", "copied into another database or shard already"} {
		f := newFleet(t, "", approvals)
		out, err := program("copy", "--from", from.dir, "--to", f.url, "--config", f.config).CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("copy %d: %v, %s", i, err, out)
		}
	}
}
