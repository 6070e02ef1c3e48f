package mcpfront

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// testWorld is a log, a tool server's journal, and what a test changes about the log.
type testWorld struct {
	t       *testing.T
	dir     string
	journal string
	db      *engine.DB
	rt      *runtime.Runtime
	policy  func(server, tool string) runtime.Policy
	super   runtime.Supervisor
	redact  runtime.Redactor // nil keeps everything
}

func makeWorld(t *testing.T) *testWorld {
	t.Helper()
	dir := t.TempDir()
	w := &testWorld{t: t, dir: dir, journal: filepath.Join(dir, "journal"), super: runtime.AllowAll}
	w.policy = func(_, tool string) runtime.Policy {
		p := runtime.Policy{PermitTime: 5 * time.Second}
		switch tool {
		case "look":
			p.Class, p.Licence = tga.ClassRead, ledger.Licence{Kind: ledger.ReadOnly}
		case "again":
			p.Licence, p.LicenceSet = ledger.Licence{Kind: ledger.DedupeArgs}, true
		}
		return p
	}
	w.openLog()
	t.Cleanup(func() { _ = w.db.Close() })
	return w
}

// openLog opens the log, anew where it was closed.
func (w *testWorld) openLog() {
	w.t.Helper()
	db, err := engine.Open(filepath.Join(w.dir, "data"), engine.Options{Logger: slog.New(slog.DiscardHandler), LowWaterBytes: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	none := runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{}, fmt.Errorf("%w: the log sends nothing", runtime.ErrNotSent)
	})
	rt, err := runtime.New(db, none, w.super, runtime.Options{Policy: w.policy, Lock: lockHolder, Redact: w.redact})
	if err != nil {
		w.t.Fatal(err)
	}
	w.db, w.rt = db, rt
}

// testClient is a client with the ends of what serves it.
type testClient struct {
	t    *testing.T
	in   *os.File
	out  *bufio.Reader
	end  context.CancelFunc
	done chan error
	once sync.Once
	said []string // messages read while waiting for another
}

// serveLines makes a client of what serves one on stdin and stdout.
func (w *testWorld) serveLines(serve func(ctx context.Context, in io.Reader, out io.Writer) error) *testClient {
	w.t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &testClient{t: w.t, in: inW, out: bufio.NewReaderSize(outR, 1<<20), end: cancel, done: make(chan error, 1)}
	go func() {
		err := serve(ctx, inR, outW)
		_ = outW.Close()
		_ = inR.Close()
		h.done <- err
	}()
	w.t.Cleanup(func() { h.stop() })
	return h
}

// stop ends the shim as a client does: it closes its end.
func (h *testClient) stop() (err error) {
	h.once.Do(func() {
		_ = h.in.Close()
		go func() { _, _ = io.Copy(io.Discard, h.out) }()
		select {
		case err = <-h.done:
		case <-time.After(20 * time.Second):
			h.t.Error("the shim does not end")
		}
		h.end()
	})
	return err
}

func (h *testClient) write(line string) {
	h.t.Helper()
	if _, err := io.WriteString(h.in, line+"\n"); err != nil {
		h.t.Fatal(err)
	}
}

// readLine returns the next message.
func (h *testClient) readLine() string {
	h.t.Helper()
	line, err := readWithin(h.out, 20*time.Second)
	if err != nil {
		h.t.Fatalf("no message: %v", err)
	}
	return line
}

func readWithin(r *bufio.Reader, d time.Duration) (string, error) {
	type got struct {
		line string
		err  error
	}
	ch := make(chan got, 1)
	go func() {
		line, err := r.ReadString('\n')
		ch <- got{strings.TrimSuffix(line, "\n"), err}
	}()
	select {
	case g := <-ch:
		return g.line, g.err
	case <-time.After(d):
		return "", fmt.Errorf("nothing for %v", d)
	}
}

// ask writes a request and returns the answer to its id.
func (h *testClient) ask(id, method, params string) string {
	h.t.Helper()
	h.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return h.answer(id)
}

func (h *testClient) answer(id string) string {
	h.t.Helper()
	for i, line := range h.said {
		if string(mcpraw.At([]byte(line), "/id")) == id {
			h.said = append(h.said[:i:i], h.said[i+1:]...)
			return line
		}
	}
	for {
		line := h.readLine()
		if string(mcpraw.At([]byte(line), "/id")) == id && mcpraw.At([]byte(line), "/method") == nil {
			return line
		}
		h.said = append(h.said, line)
	}
}

func (h *testClient) call(id, tool, args string, meta ...string) string {
	h.t.Helper()
	m := ""
	if len(meta) > 0 {
		m = `,"_meta":` + meta[0]
	}
	return h.ask(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s%s}`, tool, args, m))
}

func (h *testClient) handshake() {
	h.t.Helper()
	got := h.ask("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if !strings.Contains(got, `"name":"fake"`) {
		h.t.Fatalf("initialize: %s", got)
	}
	h.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

type effectLine struct{ Tool, Key, Args, Line string }

// effects reads the tool server's journal.
func (w *testWorld) effects() []effectLine {
	w.t.Helper()
	return journalOf(w.t, w.journal)
}

func journalOf(t testing.TB, path string) []effectLine {
	t.Helper()
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []effectLine
	for line := range strings.Lines(string(raw)) {
		var e effectLine
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("journal: %q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// has fails the test where an answer lacks something.
func has(t *testing.T, answer string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(answer, want) {
			t.Errorf("answer %.600s\nlacks %s", answer, want)
		}
	}
}

// lacks fails the test where an answer has something.
func lacks(t *testing.T, answer string, not ...string) {
	t.Helper()
	for _, n := range not {
		if strings.Contains(answer, n) {
			t.Errorf("answer %.600s\nhas %s", answer, n)
		}
	}
}

// record returns the ledger record of a key, nil where there is none.
func (w *testWorld) record(tool, key string) *ledger.Record {
	w.t.Helper()
	r, err := w.db.Record(context.Background(), ledger.Key{Namespace: tga.DefaultNamespace, Server: "fake", Tool: tool, Key: key})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// local is a log in this process.
type local struct{ *runtime.Runtime }

func (l local) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	return l.Runtime.Kept(ctx, namespace, server, "")
}

func (l local) Decide(ctx context.Context, trace tga.ID, vote wire.DecideRequest) (runtime.Result, error) {
	return l.Runtime.Decide(ctx, trace, runtime.Vote{Who: "the person at the client", Approve: vote.Approve, Rationale: vote.Rationale, About: vote.About})
}

func lockHolder(path string) ledger.Liveness {
	held, known := filelock.Held(path)
	switch {
	case !known:
		return ledger.HolderUnknown
	case held:
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

// greet makes the handshake with a gateway.
func (h *testClient) greet() string {
	h.t.Helper()
	got := h.ask("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"test","version":"1"}}`)
	h.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return got
}

// journalOf is the journal of a tool server of a gateway's.
func (w *testWorld) journalOf(server string) string {
	dir := filepath.Join(w.dir, server)
	_ = os.MkdirAll(dir, 0o700)
	return filepath.Join(dir, "journal")
}

// eventually waits for a condition that another process or goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// observed are the traces of the log, the oldest first.
func (w *testWorld) observed() (all []string) {
	w.t.Helper()
	for l, err := range w.db.Traces(w.t.Context(), tga.ID{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		tr, err := w.db.Load(w.t.Context(), l.TraceID)
		if err != nil {
			w.t.Fatal(err)
		}
		said := fmt.Sprintf("%s %s %v", tr.Request.Request.Proposal.ToolName, tr.Head.State, tr.Request.Meta["observed"])
		if tr.Request.Meta["observed_of"] != nil {
			said += ", beside another"
		}
		all = append(all, said)
	}
	return all
}

// wantObserved waits until the log has just these traces.
func (w *testWorld) wantObserved(want ...string) {
	w.t.Helper()
	var got []string
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if got = w.observed(); slices.Equal(got, want) {
			return
		}
	}
	w.t.Errorf("the log has\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
}
