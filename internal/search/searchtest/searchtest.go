// Package searchtest is the suite that every index of lists passes, wherever its rows lie.
package searchtest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store is what the suite asks of the store of an index.
type Store interface {
	Acquire(ctx context.Context, trace tga.ID) (chain.Lease, error)
	Release(lease chain.Lease)
	Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error)
}

// Stand is a store with an index of lists. Who makes it sets what it is; the suite adds traces, and compares lists with the log.
type Stand struct {
	*testing.T
	Store Store
	// Stored reads every trace as it lies there, and nothing that a process remembers.
	Stored func() []*chain.Trace
	// Lists are those of every process that has the store.
	Lists func() []search.Lists
	Now   tga.Millis
	// Each is how many traces are added at once, and Limits are how long the pages are.
	Each   int
	Limits []int

	Seeds uint64
	r     *rand.Rand
}

// Start is the time of the first trace.
const Start tga.Millis = 1_750_000_000_000

// Add appends a trace.
func (s *Stand) Add(o chaintest.Options) tga.ID {
	s.Helper()
	s.Seeds++
	o.Seed, o.At = s.Seeds, s.Now
	return s.Append(o, 0)
}

// Append appends the entries of a trace after the first so many.
func (s *Stand) Append(o chaintest.Options, after int) tga.ID {
	s.Helper()
	id := chaintest.ID(o.Seed, 0)
	lease, err := s.Store.Acquire(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	defer s.Store.Release(lease)
	artifacts := chaintest.Artifacts(o)[after:]
	for len(artifacts) > 0 {
		n := 1
		if o.Seed%2 == 0 { // of some traces the request, its decision and its call are one append, as those of a runtime are
			n = max(1, min(len(artifacts), 3-after))
		}
		b := chain.Batch{}
		for _, a := range artifacts[:n] {
			b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a})
		}
		if _, err := s.Store.Append(s.Context(), lease, b); err != nil {
			s.Fatal(err)
		}
		artifacts, after = artifacts[n:], after+n
	}
	s.Now += 3000
	return id
}

// want is which of all a query finds.
func want(all []*chain.Trace, q search.Query) (page []search.Mark) {
	for _, t := range all {
		l := t.Listing()
		if q.Namespace != "" && l.Namespace != q.Namespace || q.Server != "" && l.Server != q.Server || q.Tool != "" && l.Tool != q.Tool ||
			q.Key != "" && l.Key != q.Key || len(q.States) > 0 && !slices.Contains(q.States, l.State) || q.Class != ledger.ClassNone && search.ClassOf(t) != q.Class ||
			l.Since < q.Since || q.Until != 0 && l.Since >= q.Until {
			continue
		}
		page = append(page, search.Mark{Since: l.Since, Trace: l.TraceID})
	}
	slices.SortFunc(page, func(a, b search.Mark) int {
		if a.Since != b.Since {
			return int(b.Since - a.Since)
		}
		return slices.Compare(b.Trace[:], a.Trace[:])
	})
	return page
}

// Agrees reads lists page by page, by every process, and compares them with the log.
func (s *Stand) Agrees(queries ...search.Query) {
	s.Helper()
	all := s.Stored()
	for i, x := range s.Lists() {
		for _, q := range queries {
			s.agree(i, x, all, q)
		}
	}
}

// agree compares one list. One that waited in vain for the newest appends is read as it is, so it has a few tries.
func (s *Stand) agree(process int, x search.Lists, all []*chain.Trace, q search.Query) {
	s.Helper()
	got, want := s.read(process, x, q), want(all, q)
	for range 3 {
		if slices.Equal(got, want) {
			return
		}
		got = s.read(process, x, q)
	}
	if !slices.Equal(got, want) {
		n := 0
		for n < min(len(got), len(want)) && got[n] == want[n] {
			n++
		}
		s.Errorf("process %d: %+v: %d traces, want %d; from number %d on they are %v, want %v", process, q, len(got), len(want), n, some(got[n:]), some(want[n:]))
	}
}

// read reads a list, page by page.
func (s *Stand) read(process int, x search.Lists, q search.Query) (got []search.Mark) {
	s.Helper()
	for {
		page, err := Find(s.Context(), x, q)
		if err != nil {
			s.Fatalf("process %d: %+v: %v", process, q, err)
		}
		got = append(got, page...)
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1]
	}
	return got
}

func some(page []search.Mark) []search.Mark { return page[:min(len(page), 3)] }

// Find asks until the index is there.
func Find(ctx context.Context, x search.Lists, q search.Query) (page []search.Mark, err error) {
	for range 30 {
		if page, err = x.Find(ctx, q); err == nil || ctx.Err() != nil {
			break
		}
	}
	return page, err
}

// Grid are queries of every kind, alone and together.
func (s *Stand) Grid() (all []search.Query) {
	middle := Start + (s.Now-Start)/2
	for _, q := range []search.Query{
		{}, {Namespace: "a"}, {Namespace: "none"}, {Server: "pay"}, {Tool: "charge"}, {Tool: "none"},
		{Key: "k3"}, {States: []tga.State{tga.Pending}}, {States: []tga.State{tga.Completed}}, {States: []tga.State{tga.Denied, tga.Authorized}}, {Class: ledger.ClassCommitted}, {Since: middle}, {Until: middle},
		{Server: "pay", Tool: "refund", States: []tga.State{tga.Failed}}, {Namespace: "b", States: []tga.State{tga.Executing}, Since: middle},
		{Tool: "charge", Class: ledger.ClassCommitted, Until: middle}, {Key: "k3", Tool: "refund"}, {Key: odd},
	} {
		for _, limit := range s.Limits {
			q.Limit = limit
			all = append(all, q)
		}
	}
	return all
}

// odd is a key that not every database takes as a text.
const odd = "k\x00 \\x00 ' é"

// Some adds traces of every kind, and returns those that are finished.
func (s *Stand) Some(n int) (finished []tga.ID) {
	s.Helper()
	if s.r == nil {
		s.r = rand.New(rand.NewPCG(1, 2))
	}
	pick := func(of ...string) string { return of[s.r.IntN(len(of))] }
	for range n {
		o := chaintest.Options{
			Meta:   tga.Meta{tga.MetaNamespace: pick("a", "b", tga.DefaultNamespace)},
			Server: pick("pay", "mail"), Tool: pick("charge", "refund"), Key: fmt.Sprintf("k%d", s.Seeds),
			Verdict: pick(tga.Approve, tga.Approve, tga.Deny), Status: pick(tga.StatusSuccess, tga.StatusSuccess, tga.StatusError), Entries: s.r.IntN(5),
		}
		if s.Seeds == 5 {
			o.Key = odd
		}
		id := s.Add(o)
		if o.Entries == 0 {
			finished = append(finished, id)
		}
		if s.r.IntN(3) == 0 {
			s.Now -= 3000 // several of one millisecond
		}
	}
	return finished
}

// Step is something that happens to a store, or to its index. finished are traces that are at their end, the newest first.
type Step struct {
	Name string
	Do   func(s *Stand, finished []tga.ID)
}

// FunctionOfTheLog: whatever happens to an index and to its store, a list is what the log says.
func FunctionOfTheLog(s *Stand, steps ...Step) {
	var finished []tga.ID
	steps = append([]Step{
		{"more", func(*Stand, []tga.ID) {}},
		{"more of the same", func(s *Stand, _ []tga.ID) {
			s.Seeds++
			o := chaintest.Options{Seed: s.Seeds, At: s.Now, Entries: 1}
			s.Append(o, 0)
			for o.Entries < 4 {
				s.Agrees(search.Query{Limit: 1000}, search.Query{States: []tga.State{tga.Pending, tga.Authorized, tga.Executing}, Limit: 3}) // as it is now
				o.Entries++
				s.Append(o, o.Entries-1)
			}
		}},
	}, steps...)
	for _, step := range steps {
		finished = append(s.Some(s.Each), finished...)
		step.Do(s, finished)
		s.Agrees(s.Grid()...)
		if s.Failed() {
			s.Fatalf("after the step: %s", step.Name)
		}
	}
}

// Until waits for something to become so.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// Slow is a log whose list of traces does not come: an index of it is being made for ever.
type Slow struct{ search.Store }

// Traces yields nothing until ctx ends.
func (Slow) Traces(ctx context.Context, _ tga.ID) iter.Seq2[chain.Listed, error] {
	return func(yield func(chain.Listed, error) bool) {
		<-ctx.Done()
		yield(chain.Listed{}, ctx.Err())
	}
}
