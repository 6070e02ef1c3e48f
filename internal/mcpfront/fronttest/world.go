package fronttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

// World is a log, a tool server's journal, and the settings of the log that a test may change.
type World struct {
	T       *testing.T
	Dir     string
	Journal string
	DB      *engine.DB
	RT      *runtime.Runtime
	Policy  func(server, tool string) runtime.Policy
	Super   runtime.Supervisor
	Redact  runtime.Redactor // nil keeps everything
	Outcome func(call runtime.Call, reply *runtime.Reply) error
}

func New(t *testing.T) *World {
	t.Helper()
	dir := t.TempDir()
	w := &World{T: t, Dir: dir, Journal: filepath.Join(dir, "journal"), Super: runtime.AllowAll}
	w.Policy = func(_, tool string) runtime.Policy {
		p := runtime.Policy{PermitTime: 5 * time.Second}
		switch tool {
		case "look":
			p.Class, p.Licence = tga.ClassRead, ledger.Licence{Kind: ledger.ReadOnly}
		case "again":
			p.Licence, p.LicenceSet = ledger.Licence{Kind: ledger.DedupeArgs}, true
		}
		return p
	}
	w.OpenLog()
	t.Cleanup(func() {
		if err := w.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// OpenLog opens the log, also after it was closed.
func (w *World) OpenLog() {
	w.T.Helper()
	db, err := engine.Open(filepath.Join(w.Dir, "data"), engine.Options{Logger: slog.New(slog.DiscardHandler), LowWaterBytes: 1})
	if err != nil {
		w.T.Fatal(err)
	}
	none := runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{}, fmt.Errorf("%w: the log sends nothing", runtime.ErrNotSent)
	})
	rt, err := runtime.New(db, none, w.Super, runtime.Options{Policy: w.Policy, Lock: lockHolder, Redact: w.Redact, Trust: runtime.Trust{Outcome: w.Outcome}})
	if err != nil {
		w.T.Fatal(err)
	}
	w.DB, w.RT = db, rt
}

// Client is a client of a server in this process.
type Client struct {
	T    *testing.T
	In   *os.File
	Out  *bufio.Reader
	End  context.CancelFunc
	Done chan error
	once sync.Once
	Said []string // messages read while waiting for another
}

// ServeLines runs serve in a goroutine and returns a client of it.
func (w *World) ServeLines(serve func(ctx context.Context, in io.Reader, out io.Writer) error) *Client {
	w.T.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		w.T.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &Client{T: w.T, In: inW, Out: bufio.NewReaderSize(outR, 1<<20), End: cancel, Done: make(chan error, 1)}
	go func() {
		err := serve(ctx, inR, outW)
		h.Done <- errors.Join(err, shut(outW), shut(inR))
	}()
	w.T.Cleanup(func() { h.Stop() })
	return h
}

// Stop ends the shim as a client does: it closes the client's end.
func (h *Client) Stop() (err error) {
	h.once.Do(func() {
		if err := shut(h.In); err != nil {
			h.T.Error(err)
		}
		go func() { _, _ = io.Copy(io.Discard, h.Out) }()
		select {
		case err = <-h.Done:
		case <-time.After(20 * time.Second):
			h.T.Error("the shim does not end")
		}
		h.End()
	})
	return err
}

func (h *Client) Write(line string) {
	h.T.Helper()
	if _, err := io.WriteString(h.In, line+"\n"); err != nil {
		h.T.Fatal(err)
	}
}

// ReadLine returns the next message.
func (h *Client) ReadLine() string {
	h.T.Helper()
	line, err := ReadWithin(h.Out, 20*time.Second)
	if err != nil {
		h.T.Fatalf("no message: %v", err)
	}
	return line
}

func ReadWithin(r *bufio.Reader, d time.Duration) (string, error) {
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

// Ask writes a request and returns the answer to its id.
func (h *Client) Ask(id, method, params string) string {
	h.T.Helper()
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return h.Answer(id)
}

func (h *Client) Answer(id string) string {
	h.T.Helper()
	for i, line := range h.Said {
		if string(mcpraw.At([]byte(line), "/id")) == id {
			h.Said = append(h.Said[:i:i], h.Said[i+1:]...)
			return line
		}
	}
	for {
		line := h.ReadLine()
		if string(mcpraw.At([]byte(line), "/id")) == id && mcpraw.At([]byte(line), "/method") == nil {
			return line
		}
		h.Said = append(h.Said, line)
	}
}

func (h *Client) Call(id, tool, args string, meta ...string) string {
	h.T.Helper()
	m := ""
	if len(meta) > 0 {
		m = `,"_meta":` + meta[0]
	}
	return h.Ask(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s%s}`, tool, args, m))
}

func (h *Client) Handshake() {
	h.T.Helper()
	got := h.Ask("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if !strings.Contains(got, `"name":"fake"`) {
		h.T.Fatalf("initialize: %s", got)
	}
	h.Write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

type effectLine struct{ Tool, Key, Args, Line string }

// Effects reads the tool server's journal.
func (w *World) Effects() []effectLine {
	w.T.Helper()
	return JournalOf(w.T, w.Journal)
}

func JournalOf(t testing.TB, path string) []effectLine {
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

// Has fails the test if an answer lacks one of wants.
func Has(t *testing.T, answer string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(answer, want) {
			t.Errorf("answer %.600s\nlacks %s", answer, want)
		}
	}
}

// Lacks fails the test if an answer has one of not.
func Lacks(t *testing.T, answer string, not ...string) {
	t.Helper()
	for _, n := range not {
		if strings.Contains(answer, n) {
			t.Errorf("answer %.600s\nhas %s", answer, n)
		}
	}
}

// Record returns the ledger record of a key, nil if there is none.
func (w *World) Record(tool, key string) *ledger.Record {
	w.T.Helper()
	r, err := w.DB.Record(context.Background(), ledger.Key{Namespace: tga.DefaultNamespace, Server: "fake", Tool: tool, Key: key})
	if err != nil {
		w.T.Fatal(err)
	}
	return r
}

// Local returns the world's log for a shim in this process.
func (w *World) Local() Local { return Local{w.RT} }

// Local is a log in this process.
type Local struct{ *runtime.Runtime }

func (l Local) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	return l.Runtime.Kept(ctx, namespace, server, "")
}

func (l Local) Decide(ctx context.Context, trace tga.ID, vote wire.DecideRequest) (runtime.Result, error) {
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

// Greet makes the handshake with a gateway.
func (h *Client) Greet() string {
	h.T.Helper()
	got := h.Ask("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"test","version":"1"}}`)
	h.Write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return got
}

// JournalOf is the path of the journal of one tool server of a gateway.
func (w *World) JournalOf(server string) string {
	dir := filepath.Join(w.Dir, server)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.T.Fatal(err)
	}
	return filepath.Join(dir, "journal")
}

// Eventually waits until ok returns true. what names the condition.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// observed describes the traces of the log, oldest first.
func (w *World) observed() (all []string) {
	w.T.Helper()
	for l, err := range w.DB.Traces(w.T.Context(), tga.ID{}) {
		if err != nil {
			w.T.Fatal(err)
		}
		tr, err := w.DB.Load(w.T.Context(), l.TraceID)
		if err != nil {
			w.T.Fatal(err)
		}
		said := fmt.Sprintf("%s %s %v", tr.Request.Request.Proposal.ToolName, tr.Head.State, tr.Request.Meta["observed"])
		if tr.Request.Meta["observed_of"] != nil {
			said += ", beside another"
		}
		all = append(all, said)
	}
	return all
}

// WantObserved waits until the log has exactly these traces.
func (w *World) WantObserved(want ...string) {
	w.T.Helper()
	var got []string
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if got = w.observed(); slices.Equal(got, want) {
			return
		}
	}
	w.T.Errorf("the log has\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
}
