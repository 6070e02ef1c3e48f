package crashtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// Rewritten returns a life cycle in which full segments of the log are rewritten in every
// possible way: compressed with all bodies, reduced to the bodies that are still referred to, and
// emptied. Long answers fill the small segments of a world.
func Rewritten(licence string) []Step {
	calls := func(behaviour string, n int) func(p *Process, key string) {
		return func(p *Process, key string) {
			for i := range n {
				ignore(p.Call(0, Request(Allowed, licence+"."+behaviour, fmt.Sprintf("%s-%d", key, i), 5)))
			}
		}
	}
	archive := func(p *Process, before tga.Millis) { ignore(p.DB.SealTraces(context.Background(), before)) }
	return []Step{
		{"fill", calls(Long, 3)},
		{"in doubt", call(Allowed, licence, LosesReply)},
		{"compress", func(p *Process, _ string) { ignore(p.DB.Rewrite(context.Background())) }},
		{"archive", func(p *Process, key string) {
			archive(p, tga.MillisOf(p.World.Clock())+1)
			calls(Long, 3)(p, key)
		}},
		{"rewrite again", func(p *Process, key string) {
			calls(Answers, 2)(p, key)
			ignore(p.DB.Rewrite(context.Background()))
		}},
	}
}

// rewritten crashes a store around the rewriting of its log's segments, and then asks for every
// key again.
func (r *Run) rewritten(seed uint64) {
	s := Scenario{Name: "rewritten", Licences: []string{"park", "dedupe_key"}, Steps: Rewritten}
	r.Explore(s, seed, []int{0, 70, 100}, 1, Thoroughness{Depth: 2, Nested: 211, Again: 16, Retry: 4})
}

// checked checks a whole store while its traces are archived and the segments that held them are
// rewritten. A check reads the rows of one moment and then their bodies. So it finds a body missing
// if a rewrite does not wait for it.
func (r *Run) checked(seed uint64) {
	for i := range uint64(4) {
		if r.Over() {
			return
		}
		w := NewWorld(seed<<8 + i)
		p, err := w.Start(Config{})
		if err != nil {
			return // Explore reports it
		}
		s := Scenario{Name: "checked", Licences: []string{"park"}, Steps: func(l string) []Step { return Rewritten(l)[:1] }}
		s.play(p)
		bad := p.checkWhileArchived()
		if err := p.DB.Close(); err != nil {
			bad = append(bad, Violation{Property: "L1", Detail: "close: " + err.Error()})
		}
		r.report(w.Crash(0), s.Name, bad)
	}
}

func (p *Process) checkWhileArchived() (bad []Violation) {
	ctx := context.Background()
	checked := make(chan []Violation, 1)
	go func() {
		var bad []Violation
		rep, err := p.DB.Check(ctx)
		if err != nil {
			bad = append(bad, Violation{Property: "L1", Detail: "check: " + err.Error()})
		}
		for _, problem := range rep.Problems {
			bad = append(bad, Violation{Property: "L1", Trace: problem.TraceID, Detail: "a check beside a rewrite finds: " + problem.Err.Error()})
		}
		checked <- bad
	}()
	time.Sleep(time.Millisecond) // most checks have taken their view by then; the others find nothing
	if _, err := p.DB.SealTraces(ctx, tga.MillisOf(p.World.Clock())+1); err != nil {
		bad = append(bad, Violation{Property: "L1", Detail: "archive: " + err.Error()})
	}
	if p.DB.Stats().Rewritten == 0 {
		bad = append(bad, Violation{Property: "setup", Detail: "no segment was rewritten"})
	}
	return append(bad, <-checked...)
}

// cleanPages lets each sync of a log fail once, as on Linux: the pages stay readable and count
// as clean, so no later sync writes them. The next process on the same machine reads them and
// goes on. Then the power is cut.
func (r *Run) cleanPages(seed uint64) {
	s := Scenario{Name: "clean pages", Licences: []string{"park"}, Steps: Core}
	w := NewWorld(seed)
	p, err := w.Start(s.Conf)
	if err == nil {
		err = p.DB.Close()
	}
	if err != nil {
		return // Explore reports it
	}
	before := w.Crash(100)
	syncs := r.failedSync(s, before, 0)
	r.each(syncs, func(i int) { r.failedSync(s, before, i+1) })
}

// failedSync lets the n-th sync of a log fail; n = 0 means none. It returns how many syncs there were.
func (r *Run) failedSync(s Scenario, before Image, n int) (syncs int) {
	w := before.World()
	p, err := w.Start(s.Conf)
	if err != nil {
		return 0 // Explore reports it
	}
	w.OnOp(func(op Op) Fault {
		if op.Kind != opSync || !isLog(op.Path) {
			return Fault{}
		}
		if syncs++; syncs == n {
			return Fault{Err: ErrIO}
		}
		return Fault{}
	})
	s.play(p)
	w.OnOp(nil)
	poisoned := p.DB.Stats().Poisoned != ""
	err = p.DB.Close()
	if err != nil && !poisoned || poisoned != (n > 0) { // an error of a store that stopped is the sync's
		r.report(w.Crash(100), s.Name, []Violation{{Property: "L1", Detail: fmt.Sprintf("sync %d of the log failed: poisoned %v, close: %v", n, poisoned, err)}})
	}
	if n == 0 {
		return syncs
	}
	r.Counts.injected(fault{err: ErrIO})
	r.Counts.add(&r.Counts.CrashPoints, 1)
	q, bad := r.reopen(w, s)
	img := w.Crash(100)
	img.Path[0].Op = fmt.Sprintf("power cut after sync %d of the log failed and the store was opened again", n)
	if q != nil {
		if err := q.DB.Close(); err != nil {
			bad = append(bad, Violation{Property: "L1", Detail: "close: " + err.Error()})
		}
	}
	r.report(img, s.Name, bad)
	r.recover(img, s, n, Thoroughness{Depth: 1, Retry: 2})
	return syncs
}

// olderTable opens stores whose index lacks the row of a ledger key. That happens if a table file
// has an older content under the right name: each block has a valid checksum, and the position
// says that nothing is missing. If this went unnoticed, the call of that key would be sent again.
func (r *Run) olderTable(seed uint64) {
	s := Scenario{Name: "older table", Licences: []string{"park"}, Steps: Core}
	w := NewWorld(seed)
	p, err := w.Start(s.Conf)
	if err != nil {
		return // Explore reports it
	}
	s.play(p)
	if err := p.DB.Close(); err != nil {
		return // likewise
	}
	img := w.Crash(0)
	for n := 0; !r.Over(); n++ {
		c := img
		c.FS = img.FS.CrashClone(vfs.CrashCloneCfg{})
		found, err := dropLedgerRow(c, n)
		if err != nil {
			r.report(c, s.Name, []Violation{{Property: "setup", Detail: err.Error()}})
			return
		}
		if !found {
			return
		}
		r.Counts.add(&r.Counts.Corruptions, 1)
		c.Path = []Point{{n, "the index loses a row", IndexDir}}
		r.recover(c, s, 0, Thoroughness{Depth: 1, Retry: 1})
	}
}

// dropLedgerRow deletes the n-th ledger row from the index of an image. It returns false if there are
// not so many rows.
func dropLedgerRow(img Image, n int) (found bool, err error) {
	db, err := pebble.Open(img.FS.PathJoin(Dir, IndexDir), &pebble.Options{FS: img.FS, DisableWAL: true, Logger: silent{}})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	lower, upper := keyspace.LedgerBounds()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return false, err
	}
	found = it.First()
	for ; n > 0 && found; n-- {
		found = it.Next()
	}
	var key []byte
	if found {
		key = append(key, it.Key()...)
	}
	if err := it.Close(); err != nil || !found {
		return false, err
	}
	return true, errors.Join(db.Delete(key, pebble.NoSync), db.Flush())
}

// silent is a log of Pebble's that nobody reads.
type silent struct{}

func (silent) Infof(string, ...any)           {}
func (silent) Errorf(string, ...any)          {}
func (silent) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
