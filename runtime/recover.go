package runtime

import (
	"context"
	"errors"
	goruntime "runtime"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Window is the interval between two durable writes in which a trace was left
// (docs/SEMANTICS.md).
type Window string

// Crash windows of an open trace.
const (
	W1 Window = "W1" // request durable, decision not
	W2 Window = "W2" // decision durable, call not
	W3 Window = "W3" // call durable, no attempt of it can have been sent
	W4 Window = "W4" // attempt durable, effect not: it may have run
)

// Classified is an open trace and what recovery will do about it, derived from the log
// alone.
type Classified struct {
	chain.OpenTrace
	Window  Window
	InDoubt bool  // EXECUTING, a send may have happened, and its sender is gone: no run that may have sent it, no remote executor with a fresh permit
	Held    bool  // somebody runs it now
	Err     error // the trace failed a check and is quarantined, or its data key is missing: recovery leaves it alone

	ToolCallID tga.ID
	Server     string
	Tool       string
	Key        string
	Record     *ledger.Record // nil before EXECUTING
}

// classifier derives the window of open traces from the log alone.
type classifier struct {
	store      Store
	executors  *executors
	departures *departures
	policy     func(server, tool string) Policy
}

// Classify looks at every open trace without contacting a tool. After it, a daemon knows
// which calls are unfinished.
func (rt *Runtime) Classify(ctx context.Context) ([]Classified, error) {
	return rt.classifier.list(ctx)
}

func (cl *classifier) list(ctx context.Context) ([]Classified, error) {
	var all, page []Classified
	for o, err := range cl.store.OpenTraces(ctx) {
		if err != nil {
			return all, err
		}
		if page = append(page, Classified{OpenTrace: o}); len(page) < classifyPage {
			continue
		}
		if all, err = cl.page(ctx, all, page); err != nil {
			return all, err
		}
		page = page[:0]
	}
	return cl.page(ctx, all, page)
}

const (
	// classifyPage is how many traces are classified before the next ones are listed.
	classifyPage = 1024
	// classifyEach is the number of traces that make one more goroutine worthwhile.
	classifyEach = 16
)

// page classifies the traces of a page, in as many goroutines as there are processors, because
// a starting daemon waits for it. It appends them to all, in order, up to the first trace that
// the store cannot read.
func (cl *classifier) page(ctx context.Context, all, page []Classified) ([]Classified, error) {
	errs := make([]error, len(page))
	var next atomic.Int64
	var done sync.WaitGroup
	look := func() {
		for i := next.Add(1) - 1; i < int64(len(page)); i = next.Add(1) - 1 {
			errs[i] = cl.one(ctx, &page[i])
		}
	}
	for range min(goruntime.GOMAXPROCS(0), len(page)/classifyEach) - 1 {
		done.Go(look)
	}
	look()
	done.Wait()
	for i, c := range page {
		if err := errs[i]; err != nil {
			if errors.Is(err, tga.NotFound) {
				continue // it ended while we looked
			}
			if storeAway(err) || ctx.Err() != nil {
				return all, err
			}
			c.Err = err
		}
		all = append(all, c)
	}
	return all, nil
}

// storeAway reports whether the store cannot be read. A single missing data key does not count: otherwise one
// unreadable call would keep the daemon from starting, and no timer would be served.
func storeAway(err error) bool {
	return errors.Is(err, tga.StoreUnavailable) && !errors.Is(err, chain.ErrKeyMissing)
}

func (cl *classifier) one(ctx context.Context, c *Classified) error {
	t, err := cl.store.Load(ctx, c.TraceID)
	if err != nil {
		return err
	}
	c.State, c.Held = t.Head.State, cl.store.Holder(c.TraceID) == ledger.HolderAlive
	if t.Request != nil {
		p := t.Request.Request.Proposal
		c.Server, c.Tool, c.Key = p.ToolServer, p.ToolName, t.Request.Request.IdempotencyKey
	}
	switch c.State {
	case tga.Pending:
		c.Window = W1
	case tga.Authorized:
		c.Window = W2
	case tga.Executing:
		if err := readable(t); err != nil {
			return err
		}
		c.ToolCallID, c.Key = t.Call.ID, t.Call.Call.IdempotencyKey
		if c.Record, err = cl.store.Record(ctx, ledger.KeyOf(t.Namespace, t.Call)); err != nil {
			return err
		}
		c.Window = W3
		if c.Record != nil && c.Record.InDoubt() {
			c.Window = W4
			// If the sender is gone, the present holder of the trace only looks at it. The call stays
			// in doubt until it is settled or sent again, so the list must not omit it.
			sending := c.Held && !cl.departures.has(c.TraceID, c.Record)
			c.InDoubt = !sending && !cl.executors.alive(c.Record, cl.policy(c.Server, c.Tool).withDefaults())
		}
	default:
		return tga.Errorf(tga.NotFound, "the trace is terminal")
	}
	return nil
}

// InDoubt lists the calls that may have run, have no recorded effect, and whose sender is gone: no run that
// may have sent them is still active, and no remote executor has a fresh permit. A call stays on the list while
// a run only looks at what an ended process left, or asks the tool server about it.
func (rt *Runtime) InDoubt(ctx context.Context) ([]Classified, error) {
	all, err := rt.Classify(ctx)
	doubtful := all[:0]
	for _, c := range all {
		if c.InDoubt {
			doubtful = append(doubtful, c)
		}
	}
	return doubtful, err
}

// Recovered is the result of recovering one trace.
type Recovered struct {
	Classified
	Result Result
	Err    error // coded: EFFECT_IN_DOUBT and ESCALATION_REQUIRED are normal ends of a recovery, not failures
}

// RecoverAll recovers every open trace that nobody runs, width at a time, and returns the
// result of each. A trace that fails a check is quarantined: it is reported with
// STATE_RECOVERY_FAILED and left as it is, and the others go on. A trace whose data key is missing
// is treated alike, with STORE_UNAVAILABLE ([chain.ErrKeyMissing]). RecoverAll itself fails if the
// store can no longer be read, or with the error of ctx.
func (rt *Runtime) RecoverAll(ctx context.Context, width int) ([]Recovered, error) {
	open, err := rt.Classify(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Recovered, len(open))
	slots := make(chan struct{}, max(width, 1))
	var wg sync.WaitGroup
	for i, c := range open {
		all[i] = Recovered{Classified: c, Err: c.Err}
		if c.Err != nil || c.Held {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return all[:i], ctx.Err()
		}
		wg.Go(func() {
			defer func() { <-slots }()
			all[i].Result, all[i].Err = Result{TraceID: c.TraceID}, errLeft
			all[i].Result, all[i].Err = recovered(ctx, rt, c.TraceID, "")
		})
	}
	wg.Wait()
	for i := range all {
		rt.goOn(&all[i].Err)
	}
	return all, ctx.Err()
}
