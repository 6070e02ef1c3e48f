package runtime_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// tool is a tool server. It counts the calls that reach it, and the tests ask only it how often
// something ran.
type tool struct {
	mu     sync.Mutex
	calls  []runtime.Call
	answer func(n int, c runtime.Call) (runtime.Reply, error) // n counts from 1
}

func (w *tool) Dispatch(_ context.Context, c runtime.Call) (runtime.Reply, error) {
	w.mu.Lock()
	w.calls = append(w.calls, c)
	n, answer := len(w.calls), w.answer
	w.mu.Unlock()
	if answer == nil {
		return ok(`{"paid":9007199254740993}`), nil
	}
	return answer(n, c)
}

func (w *tool) sends() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

func ok(result string) runtime.Reply {
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(result)}
}

var errReset = errors.New("connection reset after the request was written")

func unknown(int, runtime.Call) (runtime.Reply, error) { return runtime.Reply{}, errReset }

// bench is a runtime on a real store, with a clock that the test owns.
type bench struct {
	t     *testing.T
	dir   string
	db    *engine.DB
	store runtime.Store // db, or a wrapper that the test put around it
	tool  *tool
	tools runtime.Dispatcher // the runtime's dispatcher; nil = tool
	sup   runtime.Supervisor
	opts  runtime.Options
	ring  engine.Keyring // nil: the store seals nothing
	rt    *runtime.Runtime

	mu   sync.Mutex
	now  time.Time     // the true time
	skew time.Duration // the error of the wall clock
}

// epoch is where the tests' clock starts.
var epoch = time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)

func setup(t *testing.T, policy runtime.Policy, change ...func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, dir: filepath.Join(t.TempDir(), "store"), tool: &tool{}, sup: runtime.AllowAll, now: epoch}
	b.opts = runtime.Options{
		Policy: func(string, string) runtime.Policy { return policy },
		Clock:  b.clock,
	}
	for _, f := range change {
		f(b)
	}
	b.open()
	t.Cleanup(b.close)
	return b
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.Add(b.skew)
}

// monotonic is the clock that cannot be set.
func (b *bench) monotonic() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.Sub(epoch)
}

// jump sets the wall clock.
func (b *bench) jump(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skew += d
}

func (b *bench) advance(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bench) open() {
	b.t.Helper()
	// A small store, because each open reads the preallocated part of the log.
	db, err := engine.Open(b.dir, engine.Options{Clock: b.clock, Keyring: b.ring, FirstSegmentBytes: 64 << 10, MemTableBytes: 1 << 20})
	if err != nil {
		b.t.Fatal(err)
	}
	b.db, b.store = db, db
	b.start()
}

func (b *bench) start() {
	b.t.Helper()
	var tools runtime.Dispatcher = b.tool
	if b.tools != nil {
		tools = b.tools
	}
	rt, err := runtime.New(b.store, tools, b.sup, b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.rt = rt
}

// close closes the store and checks all of it: every test must leave a consistent store.
func (b *bench) close() {
	b.t.Helper()
	if b.db == nil {
		return
	}
	report, err := b.db.Check(context.Background())
	if err != nil {
		b.t.Errorf("check: %v", err)
	}
	for _, p := range report.Problems {
		b.t.Errorf("check: %v", p)
	}
	if err := b.db.Close(); err != nil {
		b.t.Errorf("close: %v", err)
	}
	b.db = nil
}

func (b *bench) reopen() {
	b.t.Helper()
	b.close()
	b.open()
}

func charge(key string) runtime.Request {
	return runtime.Request{Server: "payments", Tool: "charge", Args: []byte(`{"amount":100}`), Key: key}
}

func (b *bench) call(req runtime.Request) (runtime.Result, error) {
	return b.rt.Call(context.Background(), req)
}

func (b *bench) mustCall(req runtime.Request) runtime.Result {
	b.t.Helper()
	res, err := b.call(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

func (b *bench) wantSends(n int) {
	b.t.Helper()
	if got := b.tool.sends(); got != n {
		b.t.Errorf("the tool server counted %d sends, want %d", got, n)
	}
}

func (b *bench) wantState(trace tga.ID, want tga.State) runtime.Result {
	b.t.Helper()
	res, err := b.rt.Result(context.Background(), trace)
	if err != nil {
		b.t.Fatal(err)
	}
	if res.State != want {
		b.t.Errorf("trace is %v, want %v", res.State, want)
	}
	return res
}

func (b *bench) wantNothing(trace tga.ID) {
	b.t.Helper()
	if _, err := b.rt.Result(context.Background(), trace); !errors.Is(err, tga.NotFound) {
		b.t.Errorf("trace %s: %v, want NOT_FOUND: nothing was to be written", trace, err)
	}
}

func wantCode(t *testing.T, err error, want tga.Code) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func licence(kind ledger.LicenceKind) runtime.Policy {
	p := runtime.Policy{Licence: ledger.Licence{Kind: kind}, LicenceSet: true}
	switch kind {
	case ledger.DedupeKey:
		p.Licence.Window = time.Hour
	case ledger.ReadOnly:
		p.Class = tga.ClassRead
	}
	return p
}

var park = licence(ledger.Park)

// counted counts a store's appends, and fails one of them if the test wants a crash there.
type counted struct {
	runtime.Store
	mu      sync.Mutex
	appends int
	crashAt int  // the append with this number, counted from 1, does not return; 0 = none
	after   bool // … but is on disk
	down    bool
}

var errCrash = tga.Errorf(tga.StoreUnavailable, "crash")

func (c *counted) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	c.mu.Lock()
	c.appends++
	here := c.appends == c.crashAt
	down := c.down
	c.down = c.down || here
	c.mu.Unlock()
	if down || here && !c.after {
		return chain.Appended{}, errCrash
	}
	done, err := c.Store.Append(ctx, l, b)
	if here {
		return chain.Appended{}, errCrash
	}
	return done, err
}
