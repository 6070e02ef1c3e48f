package crashtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Run is one run of tiers: its counts, its findings, and when it ends.
type Run struct {
	Counts   Counts
	Seed     uint64
	Deadline time.Time // zero = none: a tier goes through all it has
	SaveDir  string    // where the images of failures go, "" = nowhere
	Stores   string    // where stores of real processes lie, "" = in a temporary directory
	Out      io.Writer // progress, nil = nowhere
	Bugs     []string  // the planted bugs to try, nil = all
	MaxFound int       // failures after which the run is over; 0 = 50
	// Context ends the run when it is done, nil for never.
	Context context.Context

	progress atomic.Int64 // changes as long as the run goes on

	mu     sync.Mutex
	found  []Violation
	bad    int
	said   []string
	active map[*activeImage]bool
}

func (r *Run) maxFound() int {
	return cmp.Or(r.MaxFound, 50)
}

func (r *Run) context() context.Context {
	if r.Context == nil {
		return context.Background()
	}
	return r.Context
}

// Over reports whether a tier must end: its time is up, or there are MaxFound failures.
func (r *Run) Over() bool {
	if r.context().Err() != nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad >= r.maxFound() || !r.Deadline.IsZero() && !time.Now().Before(r.Deadline)
}

// Violations returns what was found.
func (r *Run) Violations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

// Err returns nil for a run without a violation.
func (r *Run) Err() error {
	r.mu.Lock()
	var errs []error
	for _, v := range r.found {
		errs = append(errs, errors.New(v.String()))
	}
	r.mu.Unlock()
	return errors.Join(append(errs, r.Counts.Err())...)
}

// Found adds violations of a tier that saves its own images.
func (r *Run) Found(bad ...Violation) {
	if len(bad) == 0 {
		return
	}
	r.Counts.note(bad)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad++
	if len(r.found) < 50 {
		r.found = append(r.found, bad...)
	}
}

// report adds violations, and saves the image that shows them.
func (r *Run) report(img Image, where string, bad []Violation) {
	if len(bad) == 0 {
		return
	}
	var path []string
	for _, p := range img.Path {
		path = append(path, fmt.Sprintf("%d %s %s", p.N, p.Op, p.Path))
	}
	where = fmt.Sprintf("%s seed %d loss %d%% crash before %s", where, img.Seed, img.Loss, strings.Join(path, "; then "))
	for i := range bad {
		bad[i].Where = where
	}
	r.Counts.note(bad)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad++
	if len(r.found) < 50 {
		r.found = append(r.found, bad...)
	}
	if r.SaveDir != "" && r.bad <= r.maxFound() {
		dir := filepath.Join(r.SaveDir, fmt.Sprintf("failure-%d", r.bad))
		if err := img.Save(dir, bad); err != nil {
			r.found = append(r.found, Violation{Property: "save", Detail: err.Error()})
		}
	}
}

// Save writes the files of an image and what was found.
func (img Image) Save(dir string, bad []Violation) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for _, name := range filesOf(img.FS) {
		b, err := readFile(img.FS, img.FS.PathJoin(Dir, name))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o750), os.WriteFile(to, b, 0o640)); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(map[string]any{"violations": bad, "seed": img.Seed, "loss": img.Loss, "path": img.Path}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "failure.json"), text, 0o640)
}

// Scenario is what happens in a world before it crashes.
type Scenario struct {
	Name     string
	Conf     Config
	Licences []string // a life cycle of each
	Steps    func(licence string) []Step
	Parallel bool // the life cycles at the same time

	undisturbed *Ends // what the turns came to without a crash, nil where it is not known
}

// play runs the scenario's steps on a process, and again after a crash.
func (s Scenario) play(p *Process) {
	var wg sync.WaitGroup
	for i, licence := range s.Licences {
		one := func() {
			for j, step := range s.Steps(licence) {
				step.Do(p, fmt.Sprintf("%s-%d-%d", licence, i, j))
			}
		}
		if s.Parallel {
			wg.Go(one)
		} else {
			one()
		}
	}
	wg.Wait()
}

// Thoroughness says what is tried with each image besides its recovery.
type Thoroughness struct {
	Depth  int // crashes in all: 2 makes each crash inside the recovery
	Nested int // of the points inside a recovery, every Nested-th is used; 0 = all
	Third  int // likewise inside the recovery of a recovery
	Again  int // of the images, every Again-th is recovered twice and compared; 0 = none
	Retry  int // of the images, after every Retry-th all callers ask again; 0 = none
}

// Explore runs a scenario once, crashes it before each of its operations with each of
// the losses, and judges every recovery.
func (r *Run) Explore(s Scenario, seed uint64, losses []int, every int, th Thoroughness) {
	w := NewWorld(seed)
	var images []Image
	w.OnPoint(func(p Point) {
		if every > 1 && (uint64(p.N)+seed)%uint64(every) != 0 {
			return
		}
		r.Counts.add(&r.Counts.CrashPoints, 1)
		for _, loss := range losses {
			images = append(images, w.Snapshot(p, loss, nil))
		}
	})
	p, err := w.Start(s.Conf)
	if err != nil {
		r.report(w.Crash(100), s.Name, []Violation{{Property: "L1", Detail: "a new store does not open: " + err.Error()}})
		return
	}
	s.play(p)
	w.OnPoint(nil)
	bad := p.judge(false)
	if p.Turns != nil && len(bad) == 0 {
		s.undisturbed, err = p.ends()
	}
	if err != nil {
		bad = append(bad, Violation{Property: "L1", Detail: "turns: " + err.Error()})
	}
	if err := p.DB.Close(); err != nil {
		bad = append(bad, Violation{Property: "L1", Detail: "close: " + err.Error()})
	}
	r.report(w.Crash(100), s.Name+", no crash", bad)
	shuffled(seed, images)
	r.each(len(images), func(i int) { r.recover(images[i], s, i, th) })
}

// each calls f for 0..n-1 on all cores, and stops early when the run is over.
func (r *Run) each(n int, f func(i int)) { r.eachOf(goruntime.GOMAXPROCS(0), n, f) }

// eachOf is each in width goroutines.
func (r *Run) eachOf(width, n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range width {
		wg.Go(func() {
			for i := range next {
				f(i)
				r.progress.Add(1)
			}
		})
	}
	for i := range n {
		if r.Over() {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
}

// recover opens what a crash left, recovers it, and judges.
func (r *Run) recover(img Image, s Scenario, n int, th Thoroughness) {
	defer r.at(img, s.Name)()
	w := img.World()
	switch n % 5 {
	case 3:
		w = img.later(time.Minute) // no remote executor is taken to be at work any more
	case 4:
		w = img.later(2 * window) // no licence that is bound to time holds any more
	}
	var nested []Image
	depth := len(img.Path)
	if depth < th.Depth {
		every := max(th.Nested, 1)
		if depth == 2 {
			every = max(th.Third, 1)
		}
		offset := rand.New(rand.NewPCG(img.Seed, uint64(n))).IntN(every)
		w.OnPoint(func(p Point) {
			if (p.N+offset)%every == 0 {
				r.Counts.add(&r.Counts.CrashPoints, 1)
				nested = append(nested, w.Snapshot(p, Losses[(p.N+n)%len(Losses)], img.Path))
			}
		})
	}
	r.count(depth)
	bad := r.withoutIndex(w, depth > 0 && n%7 == 6)
	p, more := r.reopen(w, s)
	bad = append(bad, more...)
	w.OnPoint(nil)
	if p != nil && len(bad) == 0 {
		bad = r.afterwards(p, s, n, th)
	}
	if p != nil {
		if err := p.DB.Close(); err != nil {
			bad = append(bad, Violation{Property: "L1", Detail: "close: " + err.Error()})
		}
	}
	r.resends(w, len(img.Events))
	r.report(img, s.Name, bad)
	for i, inner := range nested {
		if r.Over() {
			return
		}
		r.recover(inner, s, n+i, th)
	}
}

// IndexDir is where a store has its index.
const IndexDir = "index"

// withoutIndex deletes the index of a store before it is opened, if lose is true: the store must be
// able to rebuild it from the log.
func (r *Run) withoutIndex(w *World, lose bool) []Violation {
	if !lose {
		return nil
	}
	err := w.FS.RemoveAll(w.FS.PathJoin(Dir, IndexDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []Violation{{Property: "setup", Detail: err.Error()}}
	}
	r.Counts.add(&r.Counts.IndexesLost, 1)
	return nil
}

func (r *Run) count(depth int) {
	c := &r.Counts
	if depth > 0 { // the process did not end in order
		c.add(&c.Recoveries, 1)
	}
	if depth >= 2 {
		c.add(&c.DoubleCrashes, 1)
	}
	if depth >= 3 {
		c.add(&c.TripleCrashes, 1)
	}
}

// reopen opens the store of a world and recovers it. The process is nil if the store does
// not open.
func (r *Run) reopen(w *World, s Scenario) (*Process, []Violation) {
	p, err := w.Start(s.Conf)
	if err != nil {
		return nil, []Violation{{Property: "L1", Detail: "the store does not open: " + err.Error()}}
	}
	p.undisturbed = s.undisturbed
	if frozen := p.DB.Stats().Frozen; frozen != "" {
		return p, []Violation{{Property: "L1", Detail: "a crash without damage froze the store: " + frozen}}
	}
	return p, p.recoverAll()
}

func (p *Process) recoverAll() []Violation {
	if err := p.noteEnded(); err != nil {
		return []Violation{{Property: "S8", Detail: "a trace does not load: " + err.Error()}}
	}
	if p.Turns != nil {
		if bad := p.judgeTurns(); len(bad) > 0 {
			return bad
		}
		if _, err := p.Turns.Recover(context.Background()); err != nil {
			return []Violation{{Property: "T3", Detail: "recovery of turns: " + err.Error()}}
		}
	}
	if p.Work != nil {
		if bad := p.judge(false); len(bad) > 0 { // opening it is a recovery of its own
			return bad
		}
	}
	if _, err := p.RT.RecoverAll(context.Background(), 4); err != nil {
		return []Violation{{Property: "L1", Detail: "recovery: " + err.Error()}}
	}
	return p.judge(true)
}

// judgeTurns judges the turns that a crash left, before recovery writes the same records
// again. Only then does it show if something was asked or called without its record.
func (p *Process) judgeTurns() []Violation {
	seen, err := p.observeTurns(context.Background())
	return judge(TurnProperties, p.World.Journal(), &Observed{turns: seen, Err: err})
}

// judge observes the store and checks the properties.
func (p *Process) judge(recovered bool) []Violation {
	o := p.Observe()
	o.Recovered = recovered
	return Judge(p.World.Journal(), o)
}

// afterwards does what [Thoroughness] asks for a share of the images besides their recovery.
func (r *Run) afterwards(p *Process, s Scenario, n int, th Thoroughness) []Violation {
	if th.Again > 0 && n%th.Again == 0 {
		if bad := p.again(); len(bad) > 0 {
			return bad
		}
	}
	if th.Retry > 0 && n%th.Retry == 0 {
		s.play(p)
		o := p.Observe()
		if o.turns != nil {
			o.turns.Finished = true
		}
		return Judge(p.World.Journal(), o)
	}
	return nil
}

// again closes the store, recovers it once more and demands that nothing has changed (L3).
// It compares nothing if a server did not answer this time, or if a call came late: then
// the next recovery rightly sends again, or finds the effect.
func (p *Process) again() []Violation {
	before := p.Observe()
	h := historyOf(p.World.Journal())
	for _, c := range before.Doubts {
		if _, behaviour := licenceOf(c.Tool); h.unanswered(c.TraceID) || behaviour == Late {
			return nil
		}
	}
	if before.turns != nil && before.turns.waitsForNothing(before) {
		return nil
	}
	if err := p.DB.Close(); err != nil {
		return []Violation{{Property: "L3", Detail: "close: " + err.Error()}}
	}
	q, err := p.World.Start(p.Conf)
	if err != nil {
		return []Violation{{Property: "L3", Detail: "open: " + err.Error()}}
	}
	p.DB, p.RT, p.Turns, p.Work = q.DB, q.RT, q.Turns, q.Work
	if bad := p.recoverAll(); len(bad) > 0 {
		return bad
	}
	return sameLog(before, p.Observe())
}

func sameLog(a, b *Observed) (bad []Violation) {
	differ := func(id tga.ID, what string) {
		bad = append(bad, Violation{Property: "L3", Trace: id, Detail: "a second recovery changed " + what})
	}
	for id, s := range a.Traces {
		t := b.Traces[id]
		if t == nil || len(s.Entries) != len(t.Entries) {
			differ(id, "the number of entries")
			continue
		}
		for i := range s.Entries {
			if s.Entries[i].Digest != t.Entries[i].Digest {
				differ(id, fmt.Sprintf("entry %d", i+1))
			}
		}
		if plain(s.Record) != plain(t.Record) {
			differ(id, fmt.Sprintf("the ledger record: %+v, then %+v", plain(s.Record), plain(t.Record)))
		}
	}
	if len(b.Traces) != len(a.Traces) {
		differ(tga.ID{}, "the number of traces")
	}
	if a.turns != nil {
		sameTurns(a.turns, b.turns, differ)
	}
	return bad
}

// plain is a record without its attempt counters.
func plain(r *ledger.Record) ledger.Record {
	if r == nil {
		return ledger.Record{}
	}
	c := *r
	c.Attempts = ledger.Attempts{}
	return c
}

// resends counts the licensed re-sends after the first n events.
func (r *Run) resends(w *World, n int) {
	events := w.Journal()
	first := map[tga.ID]bool{}
	for i, e := range events {
		if e.Kind != Sent {
			continue
		}
		if first[e.Trace] && i >= n {
			r.Counts.add(&r.Counts.LicensedResends, 1)
		}
		first[e.Trace] = true
	}
}

// Sequences counts random sequences.
func (r *Run) Sequences(n int64) { r.Counts.add(&r.Counts.RapidSequences, n) }
