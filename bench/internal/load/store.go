package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store is an open engine under load of one size. Its methods make the subjects of the same
// names.
type Store struct {
	Dir  string
	DB   *engine.DB
	Size int
}

// OpenStore opens a store for artifacts of about size bytes.
func OpenStore(dir string, size int) (*Store, error) {
	db, err := engine.Open(dir, engine.Options{})
	if err != nil {
		return nil, err
	}
	return &Store{Dir: dir, DB: db, Size: size}, nil
}

func (s *Store) syncs() uint64 { return s.DB.Stats().LogSyncs }

// Subject makes a subject that counts the store's syncs.
func (s *Store) Subject(name string, writers int, op func(w int) (time.Duration, error)) *measure.Subject {
	return &measure.Subject{Case: name, Writers: writers, Bytes: s.Size, Syncs: s.syncs, Op: op}
}

// Makers returns n makers of artifacts of the store's size.
func (s *Store) Makers(n int) []*Maker {
	out := make([]*Maker, n)
	for w := range out {
		out[w] = New(s.Size)
	}
	return out
}

// Commit seals what make makes and appends it; both are timed.
func (s *Store) Commit(lease chain.Lease, make func() (chain.Batch, error)) (time.Duration, error) {
	start := time.Now()
	b, err := make()
	if err == nil {
		_, err = s.DB.Append(context.Background(), lease, b)
	}
	return time.Since(start), err
}

// Append makes traces one entry at a time: each append is one artifact, in turn a
// request, a decision, a call and an effect. A quarter of them reserve a ledger key and
// a quarter settle one.
func (s *Store) Append(writers int) *measure.Subject {
	type writer struct {
		trace *Trace
		lease chain.Lease
		step  int
	}
	stocks, at := s.stocks(writers), make([]writer, writers)
	subject := s.Subject("append", writers, func(n int) (time.Duration, error) {
		w := &at[n]
		if w.step == 0 {
			w.trace = stocks[n].next()
			var err error
			if w.lease, err = s.DB.Acquire(context.Background(), w.trace.ID); err != nil {
				return 0, err
			}
		}
		t := w.trace
		step := [...]func() *tga.Artifact{t.MakeRequest, t.MakeDecision, t.MakeCall, t.MakeEffect}[w.step]
		took, err := s.Commit(w.lease, func() (chain.Batch, error) {
			a := step()
			return chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a}}}, a.Seal()
		})
		if w.step = (w.step + 1) % 4; w.step == 0 {
			s.DB.Release(w.lease)
		}
		return took, err
	})
	subject.Before = stocks.fill
	return subject
}

// Submit makes traces as [Store.Append] does, but by one goroutine that keeps depth
// appends under way, each of another trace: it waits for the oldest of them and submits
// the next of that trace. The time of an append is from its seal to its durability.
func (s *Store) Submit(depth int) *measure.Subject {
	type slot struct {
		trace  *Trace
		lease  chain.Lease
		step   int
		began  time.Time
		ticket engine.Ticket
	}
	maker, at, n := s.Makers(1)[0], make([]slot, depth), 0
	next := func(w *slot) error {
		if w.step == 0 {
			w.trace = maker.Next()
			var err error
			if w.lease, err = s.DB.Acquire(context.Background(), w.trace.ID); err != nil {
				return err
			}
		}
		w.began = time.Now()
		t := w.trace
		a := [...]func() *tga.Artifact{t.MakeRequest, t.MakeDecision, t.MakeCall, t.MakeEffect}[w.step]()
		if err := a.Seal(); err != nil {
			return err
		}
		var err error
		w.ticket, err = s.DB.Submit(context.Background(), w.lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a}}})
		return err
	}
	ended := func(w *slot) error {
		_, err := w.ticket.Wait()
		if w.step = (w.step + 1) % 4; w.step == 0 {
			s.DB.Release(w.lease)
		}
		return err
	}
	subject := s.Subject("submit", 1, func(int) (time.Duration, error) {
		w := &at[n%depth]
		for ; n < depth; n++ { // the first call of a slice fills the pipe
			if err := next(&at[n]); err != nil {
				return 0, err
			}
		}
		n++
		if err := ended(w); err != nil {
			return 0, err
		}
		return time.Since(w.began), next(w)
	})
	// Appends under way at the end of a slice count in no round, because other cases run in between.
	subject.Before = func() error {
		if n == 0 {
			return nil
		}
		n = 0
		for i := range at {
			if err := ended(&at[i]); err != nil {
				return err
			}
		}
		return nil
	}
	subject.Note = fmt.Sprintf("%d under way", depth)
	return subject
}

// begun is a trace in EXECUTING, its lease held.
type begun struct {
	trace *Trace
	lease chain.Lease
}

// Fused measures the append of request, decision and call together, and effect that of
// the effects with their answers. Effect ends the traces that fused began.
func (s *Store) Fused(writers int) (fused, effect *measure.Subject) {
	stocks, open := s.stocks(writers), make([][]begun, writers)
	fused = s.Subject("fused", writers, func(n int) (time.Duration, error) {
		t := stocks[n].next()
		lease, err := s.DB.Acquire(context.Background(), t.ID)
		if err != nil {
			return 0, err
		}
		open[n] = append(open[n], begun{t, lease})
		return s.Commit(lease, t.Begin)
	})
	fused.Before = stocks.fill
	effect = s.Subject("effect", writers, func(n int) (time.Duration, error) {
		if len(open[n]) == 0 {
			return 0, measure.ErrDrained
		}
		last := len(open[n]) - 1
		b := open[n][last]
		open[n] = open[n][:last]
		defer s.DB.Release(b.lease)
		return s.Commit(b.lease, func() (chain.Batch, error) { return b.trace.End(s.Size) })
	})
	return fused, effect
}

// Call measures whole governed calls through a runtime in this process.
func (s *Store) Call(name string, writers int, tools runtime.Dispatcher) (*measure.Subject, error) {
	rt, err := runtime.New(s.DB, tools, runtime.AllowAll, runtime.Options{})
	if err != nil {
		return nil, err
	}
	makers := s.Makers(writers)
	return s.Subject(name, writers, func(n int) (time.Duration, error) {
		req := CallRequest(makers[n], s.Size)
		start := time.Now()
		res, err := rt.Call(context.Background(), req)
		if err == nil {
			err = res.Err()
		}
		return time.Since(start), err
	}), nil
}

// CallRequest asks for a call whose arguments have size bytes.
func CallRequest(m *Maker, size int) runtime.Request {
	t := m.Next()
	args := append(append([]byte(`{"note":"`), m.Text(size-len(`{"note":""}`))...), `"}`...)
	return runtime.Request{Server: "payments", Tool: "charge", Args: args, Key: t.Key}
}

// Noop is a tool that answers at once.
var Noop = runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"paid":true}`)}, nil
})

// Fill writes traces with 64 writers. They are finished, or stay EXECUTING.
func (s *Store) Fill(traces int, finished bool) error {
	const writers = 64
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		n := traces / writers
		if w < traces%writers {
			n++
		}
		wg.Go(func() { errs[w] = s.fillSome(New(s.Size), n, finished) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) fillSome(m *Maker, n int, finished bool) error {
	for range n {
		t := m.Next()
		lease, err := s.DB.Acquire(context.Background(), t.ID)
		if err != nil {
			return err
		}
		_, err = s.Commit(lease, t.Begin)
		if err == nil && finished {
			_, err = s.Commit(lease, func() (chain.Batch, error) { return t.End(s.Size) })
		}
		s.DB.Release(lease)
		if err != nil {
			return err
		}
	}
	return nil
}
