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

// Classified is an open trace and what recovery will do about it, told from the log
// alone.
type Classified struct {
	chain.OpenTrace
	Window  Window
	InDoubt bool  // EXECUTING, a send may have happened, and who made it is gone: no run is at it that can have sent, no remote executor with a fresh permit
	Held    bool  // somebody runs it now
	Err     error // the trace failed a check and is quarantined, or its data key is missing: nothing is done about it

	ToolCallID tga.ID
	Server     string
	Tool       string
	Key        string
	Record     *ledger.Record // nil before EXECUTING
}

// classifier tells from the log alone where open traces stand.
type classifier struct {
	store      Store
	executors  *executors
	departures *departures
	policy     func(server, tool string) Policy
}

// Classify looks at every open trace without contacting a tool. A daemon that has done
// this knows which calls it owes an answer.
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
	// classifyPage is how many traces are looked at before the next ones are listed.
	classifyPage = 1024
	// classifyEach is for how many of them a goroutine more is worth it.
	classifyEach = 16
)

// page looks at the traces of a page, as many at once as there are processors, for who
// starts waits for it; and appends them to all, in order, up to the first that the store could
// not give.
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

// storeAway tells whether the store cannot be read. One data key that is missing does not say so: for one call that nobody
// can read a daemon would not start, and no timer would be served.
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
		if t.Call == nil {
			return tga.Errorf(tga.StateRecoveryFailed, "the call of the trace is not at hand").In(c.TraceID)
		}
		c.ToolCallID, c.Key = t.Call.ID, t.Call.Call.IdempotencyKey
		if c.Record, err = cl.store.Record(ctx, ledger.KeyOf(t.Namespace, t.Call)); err != nil {
			return err
		}
		c.Window = W3
		if c.Record != nil && c.Record.InDoubt() {
			c.Window = W4
			// Whoever holds a trace whose sender is gone only looks at it: the doubt is there until it is
			// settled or sent again, and a list without it would say that all is well.
			sending := c.Held && !cl.departures.has(c.TraceID, c.Record)
			c.InDoubt = !sending && !cl.executors.alive(c.Record, cl.policy(c.Server, c.Tool).withDefaults())
		}
	default:
		return tga.Errorf(tga.NotFound, "the trace is terminal")
	}
	return nil
}

// InDoubt lists the calls that may have run, have no recorded effect, and whose sender is gone: neither a run
// that can have sent is at them nor a remote executor with a fresh permit. A run that only looks at what an ended
// process left, or asks its tool server about it, does not take it off the list.
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

// Recovered is what recovery made of one trace.
type Recovered struct {
	Classified
	Result Result
	Err    error // coded: EFFECT_IN_DOUBT and ESCALATION_REQUIRED are ends, not failures
}

// RecoverAll recovers every open trace that nobody runs, width at a time, and returns
// what became of each. A trace that fails a check is quarantined: reported with
// STATE_RECOVERY_FAILED, left as it is, and the others go on; and so is one whose data key is missing, with
// STORE_UNAVAILABLE ([chain.ErrKeyMissing]). The error is a store's that can no longer be read, or ctx's.
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
			all[i].Result, all[i].Err = rt.Recover(ctx, c.TraceID)
		})
	}
	wg.Wait()
	return all, ctx.Err()
}
