package crashtest

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Dir is where the store lies in a world.
const Dir = "store"

// Config is how the processes of a world are set up.
type Config struct {
	Profile  ledger.Profile
	Impure   bool // the supervisor may act, so the request is made durable before it is asked
	MemTable uint64
	Segment  uint32 // of the log, bytes
	Turns    bool   // agents run on it
	Work     bool   // calls are transactions over a working state
}

// small keeps an image small and makes the index flush within a life cycle. segmentBytes
// makes the log begin new segments within one.
const (
	small        = 96 << 10
	segmentBytes = 64 << 10
)

func (c Config) withDefaults() Config {
	c.MemTable = cmp.Or(c.MemTable, small)
	c.Segment = cmp.Or(c.Segment, segmentBytes)
	return c
}

// Process is a store and a runtime in a world.
type Process struct {
	World *World
	DB    *engine.DB
	RT    *runtime.Runtime
	Turns *turn.Runner     // nil unless agents run on it; RT is then its
	Work  *workstate.State // nil unless calls are transactions over it
	Conf  Config

	undisturbed *Ends // of the same scenario without a crash, nil where it is not known
}

// chacha is a reader of random bytes that depend on a seed alone.
type chacha struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func (c *chacha) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.Read(p)
}

func seeded(seed uint64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return &chacha{r: rand.NewChaCha8(key)}
}

// newID makes UUIDv7s of a random source.
func newID(r io.Reader, now func() time.Time) tga.ID {
	var id tga.ID
	_, _ = r.Read(id[6:]) // a chacha never fails
	ms := uint64(tga.MillisOf(now()))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return tga.MakeID(id)
}

// Options returns the options for the stores in a world.
func (w *World) Options(c Config) engine.Options {
	c = c.withDefaults()
	return engine.Options{
		FS: w.Disk(), Clock: w.Clock, Rand: seeded(w.Seed + 1),
		MemTableBytes: c.MemTable, CacheBytes: 1 << 20, FirstSegmentBytes: c.Segment, SegmentBytes: c.Segment, RewriteShare: -1,
	}
}

// Start opens the store of the world and a runtime on it.
func (w *World) Start(c Config) (*Process, error) {
	c = c.withDefaults()
	w.log(Event{Kind: Opened})
	db, err := engine.Open(Dir, w.Options(c))
	if err != nil {
		return nil, err
	}
	p := &Process{World: w, DB: db, Conf: c}
	if c.Turns {
		if p.Turns, err = w.agents(db, w.runtimeOptions(c), len(w.Journal())); err == nil {
			p.RT = p.Turns.Runtime()
		}
		return p, err
	}
	if c.Work {
		return p, p.workingState(c)
	}
	p.RT, err = w.runtime(recorder{db, w}, c, runtime.DispatcherFunc(w.Dispatch))
	return p, err
}

// runtime makes a runtime on a store.
func (w *World) runtime(store runtime.Store, c Config, tools runtime.Dispatcher) (*runtime.Runtime, error) {
	var supervisor runtime.Supervisor = rules
	if c.Impure {
		supervisor = impure{rules}
	}
	return runtime.New(store, tools, supervisor, w.runtimeOptions(c))
}

func (w *World) runtimeOptions(c Config) runtime.Options {
	ids := seeded(w.Seed + 2)
	return runtime.Options{
		Profile: c.Profile, Policy: policy, Clock: w.Clock, Rand: seeded(w.Seed + 3),
		NewID: func() tga.ID { return newID(ids, w.Clock) },
		Trust: w.trust(),
	}
}

// Servers. The supervisor decides by the server alone.
const (
	Allowed = "allowed"
	People  = "people" // two of them must approve
	Denied  = "denied"
)

var rules = runtime.Rules{Rules: []runtime.Rule{
	{Server: Allowed, Decision: tga.Approve},
	{Server: People, Decision: tga.NeedsApproval, Required: 2},
	{Server: Denied, Decision: tga.Deny},
	{Server: Hasty, Decision: tga.NeedsApproval, Within: time.Millisecond},
}}

// impure is a supervisor that the runtime does not know to be pure: it asks only about
// requests that are durable.
type impure struct{ r runtime.Rules }

func (s impure) Decide(ctx context.Context, a *tga.Artifact) (runtime.Verdict, error) {
	return s.r.Decide(ctx, a)
}

// recorder is a store that writes into the journal what it was asked to append and what it
// acknowledged.
type recorder struct {
	runtime.Store
	w *World
}

func (r recorder) Acquire(ctx context.Context, trace tga.ID) (chain.Lease, error) {
	l, err := r.Store.Acquire(ctx, trace)
	if err == nil {
		r.w.log(Event{Kind: Granted, Trace: trace, Epoch: l.Epoch})
	}
	return l, err
}

func (r recorder) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	at := r.w.log(Event{Kind: Submitted, Trace: l.TraceID, Batch: b})
	done, err := r.Store.Append(ctx, l, b)
	switch {
	case err == nil:
		r.w.log(Event{Kind: Acknowledged, Trace: l.TraceID, Epoch: l.Epoch, Entries: done.Entries, Notes: done.Notes})
	case tga.CodeOf(err) != tga.StoreUnavailable:
		r.w.log(Event{Kind: Refused, Trace: l.TraceID, Batched: at})
	}
	return done, err
}

func (r recorder) WriteCheckpoint(ctx context.Context, l chain.Lease) (tga.Checkpoint, error) {
	cp, err := r.Store.WriteCheckpoint(ctx, l)
	if err == nil {
		r.w.log(Event{Kind: Sealed, Trace: l.TraceID, Seal: cp})
	}
	return cp, err
}

// Request is a call of a tool.
func Request(server, tool, key string, amount int) runtime.Request {
	return runtime.Request{Server: server, Tool: tool, Key: key, Args: amountArgs(amount)}
}

// Call makes a call as a caller of the world. The question and the answer go into the
// journal.
func (p *Process) Call(caller int, req runtime.Request) (runtime.Result, error) {
	e := Event{Kind: Invoked, Key: req.Key, Tool: req.Tool, Args: string(req.Args), Caller: caller}
	p.World.log(e)
	res, err := p.RT.Call(context.Background(), req)
	e.Kind, e.Trace, e.Value, e.Code = Returned, res.TraceID, res.Value, tga.CodeOf(err)
	if err == nil && res.State == tga.Failed {
		e.Code = res.ErrorCode
	}
	p.World.log(e)
	return res, err
}

// Checkpoint seals a trace.
func (p *Process) Checkpoint(trace tga.ID) error {
	s := recorder{p.DB, p.World}
	lease, err := s.Acquire(context.Background(), trace)
	if err != nil {
		return err
	}
	defer s.Release(lease)
	_, err = s.WriteCheckpoint(context.Background(), lease)
	return err
}

// overtaken appends a note under a lease that a newer one has replaced.
func (p *Process) overtaken(trace tga.ID) {
	s := recorder{p.DB, p.World}
	ctx := context.Background()
	old, err := s.Acquire(ctx, trace)
	if err != nil {
		return
	}
	s.Release(old)
	now, err := s.Acquire(ctx, trace)
	if err != nil {
		return
	}
	defer s.Release(now)
	ignore(s.Append(ctx, old, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "a holder that was overtaken", Body: []byte(`{}`)}}}))
}
