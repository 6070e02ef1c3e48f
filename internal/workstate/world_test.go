package workstate_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var bg = context.Background()

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// machine is a resource without branches, like a directory: everybody sees a write at once.
type machine struct {
	mu       sync.Mutex
	text     string
	restores int
	broken   bool
}

var errBroken = errors.New("the machine does not answer")

func (m *machine) set(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = text
}

func (m *machine) get() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text
}

func (m *machine) Snapshot(context.Context) (*workstate.Node, error) {
	return workstate.NewNode([]byte(strconv.Quote(m.get()))), nil
}

func (m *machine) Restore(_ context.Context, n *workstate.Node) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.restores++; m.broken {
		return errBroken
	}
	text, err := strconv.Unquote(string(n.Data()))
	if err == nil {
		m.text = text
	}
	return err
}

// parts are the resources of a state under test.
type parts struct {
	session  *workstate.Session
	registry *workstate.Registry
	machine  *machine
}

func newParts(t testing.TB) parts {
	t.Helper()
	p := parts{newSession(t), &workstate.Registry{}, &machine{text: "original"}}
	files := memfs.New()
	must(t, files.MkdirAll("src", 0o755), files.WriteFile("file.txt", []byte("original"), 0o644),
		workstate.Slice[Plan](p.session).Seed(Plan{Objective: "test"}),
		workstate.Add(p.registry, files), workstate.Add(p.registry, workstate.NewKV()),
		workstate.Add(p.registry, workstate.NewBudget(workstate.Usage{Tokens: 1000, Calls: 100})),
		workstate.Add(p.registry, p.machine))
	return p
}

// world is a state with tools on it, in memory or in a store with a runtime.
type world struct {
	testing.TB
	parts
	state *workstate.State
	tools workstate.Tools
	next  runtime.Dispatcher
	sent  runtime.Dispatcher // what Transact returned
	dir   string             // "" in memory
	id    tga.ID
	db    *engine.DB
	rt    *runtime.Runtime
	opts  workstate.Options
	ring  engine.Keyring // nil: the store seals nothing
}

func inMemory(t testing.TB, o workstate.Options) *world {
	t.Helper()
	w := &world{TB: t, parts: newParts(t), opts: o, tools: workstate.Tools{}}
	var err error
	w.state, err = workstate.New(bg, w.session, w.registry, o)
	must(t, err)
	w.next = w.tools
	w.sent = workstate.Transact(w.tools, w.state)
	w.standard()
	return w
}

func inStore(t testing.TB, o workstate.Options) *world {
	t.Helper()
	w := &world{TB: t, parts: newParts(t), opts: o, tools: workstate.Tools{}, dir: filepath.Join(t.TempDir(), "store"), id: newID()}
	w.next = w.tools
	w.standard()
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) open() {
	w.Helper()
	var err error
	w.db, err = engine.Open(w.dir, engine.Options{Keyring: w.ring, MemTableBytes: 4 << 20, FirstSegmentBytes: 64 << 10, LowWaterBytes: 1})
	must(w, err)
	w.state, err = workstate.Open(bg, w.db, w.id, w.session, w.registry, w.opts)
	must(w, err)
	w.sent = workstate.Transact(w.next, w.state)
	w.rt, err = runtime.New(w.state.Store(), w.sent, runtime.AllowAll, runtime.Options{})
	must(w, err)
}

func (w *world) close() {
	if w.db == nil {
		return
	}
	w.state.Close()
	report, err := w.db.Check(bg)
	if err != nil || len(report.Problems) > 0 {
		w.Errorf("check: %v %v", report.Problems, err)
	}
	must(w, w.db.Close())
	w.db = nil
}

// reopen simulates the end of the process and the start of the next one: everything in memory
// is lost, except the machine.
func (w *world) reopen() {
	w.Helper()
	w.close()
	m := w.machine
	w.parts = newParts(w)
	w.parts.machine.set("")
	w.machine = m
	w.registry = &workstate.Registry{}
	must(w, workstate.Add(w.registry, memfs.New()), workstate.Add(w.registry, workstate.NewKV()),
		workstate.Add(w.registry, workstate.NewBudget(workstate.Usage{Tokens: 1000, Calls: 100})), workstate.Add(w.registry, m))
	w.open()
}

// call makes a call and returns its id and its answer.
func (w *world) call(ctx context.Context, tool, args string) (string, runtime.Result, error) {
	w.Helper()
	if w.rt != nil {
		res, err := w.rt.Call(ctx, runtime.Request{Server: "local", Tool: tool, Key: newID().String(), Args: []byte(args)})
		return res.ToolCallID.String(), res, err
	}
	call := runtime.Call{TraceID: newID(), ToolCallID: newID(), Attempt: 1, Server: "local", Tool: tool, Args: []byte(args)}
	reply, err := w.sent.Dispatch(ctx, call)
	return call.ToolCallID.String(), runtime.Result{Status: reply.Status, Value: reply.Result, ErrorCode: tga.Code(reply.ErrorCode), ErrorMessage: reply.ErrorMessage}, err
}

// do makes a call that must end in a status.
func (w *world) do(tool, args, status string) string {
	w.Helper()
	id, res, err := w.call(bg, tool, args)
	must(w, err)
	if res.Status != status {
		w.Fatalf("%s %s: %s (%s: %s), want %s", tool, args, res.Status, res.ErrorCode, res.ErrorMessage, status)
	}
	return id
}

// edit is the change that the standard tools make to every part of the state.
type edit struct {
	Text   string `json:"text"`
	Tokens int64  `json:"tokens,omitempty"`
}

// apply makes the edit in the call's own view.
func apply(ctx context.Context, e edit) error {
	tx := workstate.FromContext(ctx)
	files, err := workstate.Use[*memfs.FS](tx)
	if err != nil {
		return err
	}
	kv, err := workstate.Use[*workstate.KV](tx)
	if err != nil {
		return err
	}
	budget, err := workstate.Use[*workstate.Budget](tx)
	if err != nil {
		return err
	}
	m, err := workstate.Use[*machine](tx)
	if err != nil {
		return err
	}
	kv.Set("text", []byte(e.Text))
	m.set(e.Text)
	return errors.Join(
		files.WriteFile("file.txt", []byte(e.Text), 0o644),
		files.WriteFile("src/"+e.Text, []byte(e.Text), 0o644),
		budget.Charge("", workstate.Usage{Tokens: e.Tokens}),
		workstate.Slice[Plan](tx.Session()).Replace(Plan{Objective: e.Text}),
		workstate.Slice[Operation](tx.Session()).Append(Operation{e.Text}),
		workstate.Slice[Digested](tx.Session()).Replace(Digested{e.Text}),
	)
}

var errNo = errors.New("no")

// standard enters tools that make the same edit and end in different ways.
func (w *world) standard() {
	ends := map[string]func(context.Context) (any, error){
		"good":   func(context.Context) (any, error) { return map[string]bool{"ok": true}, nil },
		"fail":   func(context.Context) (any, error) { return nil, workstate.ErrFailed },
		"error":  func(context.Context) (any, error) { return nil, errNo },
		"refuse": func(context.Context) (any, error) { return nil, tga.Errorf(tga.ValidationError, "text is bad") },
		"panic":  func(context.Context) (any, error) { panic("oh") },
		"expand": func(context.Context) (any, error) { return nil, &workstate.Expansion{Sections: []string{"notes"}} },
	}
	for name, end := range ends {
		w.tools[name] = workstate.Func(func(ctx context.Context, e edit) (any, error) {
			if err := apply(ctx, e); err != nil {
				return nil, err
			}
			return end(ctx)
		})
	}
}

// seen is the state as a reader sees it.
type seen struct {
	Objective, Cache, File, Key, Machine string
	Files, Logged                        int
	Spent                                workstate.Usage
}

func (w *world) seen() seen {
	w.Helper()
	out := seen{Machine: w.machine.get()}
	must(w, w.state.View(bg, func(tx *workstate.Tx) error {
		files, err := workstate.Use[*memfs.FS](tx)
		must(w, err)
		kv, err := workstate.Use[*workstate.KV](tx)
		must(w, err)
		budget, err := workstate.Use[*workstate.Budget](tx)
		must(w, err)
		b, err := files.ReadFile("file.txt")
		must(w, err)
		list, err := files.ReadDir("src")
		must(w, err)
		key, _ := kv.Get("text")
		cache := all[Digested](w, tx.Session())
		if len(cache) > 0 {
			out.Cache = cache[0].Sum
		}
		out.Objective, out.File, out.Key, out.Files = objective(w, tx.Session()), string(b), string(key), len(list)
		out.Logged, out.Spent = len(all[Operation](w, tx.Session())), budget.Spent("")
		return nil
	}))
	return out
}

func (w *world) want(want seen) {
	w.Helper()
	if got := w.seen(); got != want {
		w.Errorf("the state is\n%+v, want\n%+v", got, want)
	}
}

func (w *world) invoked() []workstate.ToolInvoked {
	w.Helper()
	var out []workstate.ToolInvoked
	must(w, w.state.View(bg, func(tx *workstate.Tx) error {
		out = all[workstate.ToolInvoked](w, tx.Session())
		return nil
	}))
	return out
}

func after(text string, files, logged int, spent workstate.Usage) seen {
	return seen{Objective: text, Cache: text, File: text, Key: text, Machine: text, Files: files, Logged: logged, Spent: spent}
}

var untouched = seen{Objective: "test", File: "original", Machine: "original"}

func wantCode(t testing.TB, err error, want tga.Code) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %s", err, want)
	}
}
