package crashtest

import (
	"context"
	"slices"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Seen is what a store shows of one trace.
type Seen struct {
	Entries []chain.Entry
	Notes   []tga.Note
	Trace   *chain.Trace // folded here from entries and notes, nil where that failed
	Err     error
	Key     ledger.Key
	Record  *ledger.Record // of the trace's key, nil where it has none
}

// state returns the state of the trace's last entry.
func (s *Seen) state() tga.State {
	if len(s.Entries) == 0 {
		return tga.None
	}
	return s.Entries[len(s.Entries)-1].To
}

// Observed is what a store shows.
type Observed struct {
	Traces    map[tga.ID]*Seen
	Open      map[tga.ID]bool
	Waiting   map[tga.ID]bool   // wait for people
	Asks      map[tga.ID]string // what people are asked about a trace: a runtime.Ask… word
	Leaves    []tree.Leaf       // the global order
	Problems  []engine.Problem
	Doubts    []runtime.Classified
	Recovered bool // recovery has run since the store was opened
	Profile   ledger.Profile
	Now       tga.Millis
	NewestTS  tga.Millis
	Err       error // the store could not be read to its end

	turns *turnsSeen // nil where no agent runs on the store
	work  *workSeen  // nil where it has no working state
}

// traces lists the traces of a journal.
func traces(events []Event) []tga.ID {
	var ids []tga.ID
	known := map[tga.ID]bool{}
	for _, e := range events {
		if e.Kind == Submitted && !known[e.Trace] {
			known[e.Trace] = true
			ids = append(ids, e.Trace)
		}
	}
	return ids
}

// Observe reads everything that the journal names out of the store.
func (p *Process) Observe() *Observed {
	ctx := context.Background()
	o := &Observed{
		Traces: map[tga.ID]*Seen{}, Open: map[tga.ID]bool{}, Waiting: map[tga.ID]bool{}, Asks: map[tga.ID]string{},
		Profile: p.Conf.Profile, Now: tga.MillisOf(p.World.Clock()), NewestTS: p.DB.NewestTS(),
	}
	ids := traces(p.World.Journal())
	for t, err := range p.DB.OpenTraces(ctx) {
		if err != nil {
			o.Err = err
			return o
		}
		o.Open[t.TraceID] = true
		if !slices.Contains(ids, t.TraceID) {
			ids = append(ids, t.TraceID)
		}
	}
	approvals, err := p.RT.Approvals(ctx)
	for _, a := range approvals {
		o.Asks[a.TraceID] = a.Kind
		for _, id := range append(a.Waiting, a.TraceID) {
			o.Waiting[id] = true
		}
	}
	if err != nil {
		o.Err = err
		return o
	}
	for _, id := range ids {
		if s := p.see(ctx, id); s != nil {
			o.Traces[id] = s
		}
	}
	if o.Leaves, err = p.leaves(ctx); err != nil {
		o.Err = err
	}
	rep, err := p.DB.Check(ctx)
	o.Problems = rep.Problems
	if err != nil {
		o.Err = err
	}
	if o.Doubts, err = p.RT.Classify(ctx); err != nil {
		o.Err = err
	}
	if p.Turns != nil && o.Err == nil {
		o.turns, o.Err = p.observeTurns(ctx)
	}
	if p.Work != nil && o.Err == nil {
		o.work, o.Err = p.observeWork(ctx)
	}
	return o
}

// leaves reads the global order.
func (p *Process) leaves(ctx context.Context) (out []tree.Leaf, err error) {
	end := p.DB.Cursor()
	if end == 0 {
		return nil, nil
	}
	for l, err := range p.DB.Follow(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if out = append(out, tree.Leaf(l)); l.Index >= end {
			break
		}
	}
	return out, nil
}

// see reads a trace and folds its entries and notes itself, without the store's own fold.
// It returns nil if the store has nothing of the trace.
func (p *Process) see(ctx context.Context, id tga.ID) *Seen {
	s := &Seen{}
	for e, err := range p.DB.Entries(ctx, id, 0) {
		if err != nil {
			s.Err = err
			return s
		}
		s.Entries = append(s.Entries, e)
	}
	for n, err := range p.DB.Notes(ctx, id, 0) {
		if err != nil {
			s.Err = err
			return s
		}
		s.Notes = append(s.Notes, n)
	}
	if len(s.Entries) == 0 && len(s.Notes) == 0 {
		return nil
	}
	if s.Trace, s.Err = chain.Replay(id, all(s.Entries), all(s.Notes)); s.Err != nil {
		return s
	}
	if s.Trace.Call != nil {
		s.Key = ledger.KeyOf(s.Trace.Namespace, s.Trace.Call)
		s.Record, s.Err = p.DB.Record(ctx, s.Key)
	}
	return s
}

func all[T any](list []T) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// noteEnded writes into the journal which effects are durable now: after them no send
// of their key is right.
func (p *Process) noteEnded() error {
	for _, id := range traces(p.World.Journal()) {
		t, err := p.DB.Load(context.Background(), id)
		switch {
		case tga.CodeOf(err) == tga.NotFound:
			continue
		case err != nil:
			return err
		}
		if t.Effect != nil && t.Call != nil {
			p.World.log(Event{Kind: Ended, Trace: id, Key: t.Call.Call.IdempotencyKey, Tool: t.Call.Call.Call.ToolName})
		}
	}
	return nil
}
