package crashtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tgad/tgad/ledger"
)

// Tier is one part of a run, with its share of the time.
type Tier struct {
	Name  string
	Share int           // of the budget, in parts of the shares of all tiers that run
	Least time.Duration // what it gets even where its share of the budget is less
	Run   func(r *Run)
}

// allLicences are the licences that tools are named for.
var allLicences = []string{"park", "probe", "dedupe_key", "dedupe_args", "read_only", none}

// variant is one set-up that a life cycle is tried with.
type variant struct {
	licence string
	conf    Config
	name    string
}

// variants are every licence under every profile and supervisor.
func variants() (all []variant) {
	for _, profile := range []ledger.Profile{ledger.Strict, ledger.Spec93} {
		for _, impure := range []bool{false, true} {
			for _, licence := range allLicences {
				name := licence
				if profile == ledger.Spec93 {
					name += ", spec-9.3"
				}
				if impure {
					name += ", impure"
				}
				all = append(all, variant{licence, Config{Profile: profile, Impure: impure}, name})
			}
		}
	}
	return all
}

// shuffled puts a list into an order that the seed decides. So a run that ends early does
// not try the same few elements each time.
func shuffled[T any](seed uint64, list []T) []T {
	rand.New(rand.NewPCG(seed, 3)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// part runs f with a share (parts/of) of the time that the run has left.
func (r *Run) part(parts, of int, f func()) {
	whole := r.Deadline
	if !whole.IsZero() {
		left := time.Until(whole)
		r.Deadline = time.Now().Add(left * time.Duration(parts) / time.Duration(of))
	}
	f()
	r.Deadline = whole
}

// Mem is the exhaustive tier: every crash point of every life cycle in memory, then
// crashes inside recovery, parallel traces, torn writes, failed operations and
// concurrent callers. It repeats all of it with new seeds until its time is up; without a
// deadline it runs once.
func Mem(r *Run) {
	for round := uint64(0); ; round++ {
		seed := r.Seed + round
		// Faults come first: each later part gets a share of the time that the earlier ones leave.
		r.part(1, 4, func() { r.faults(seed) })
		r.part(3, 12, func() { r.single(seed) })
		r.part(1, 9, func() { r.production(seed) })
		r.part(1, 9, func() { r.archive(seed) })
		r.part(1, 9, func() { r.rewritten(seed) })
		r.part(1, 30, func() { r.checked(seed) })
		r.part(1, 30, func() { r.cleanPages(seed) })
		r.part(1, 60, func() { r.olderTable(seed) })
		r.part(2, 8, func() { r.parallel(seed) })
		r.part(1, 9, func() { r.pipelined(seed) })
		r.part(1, 12, func() { r.watched(seed) })
		r.part(1, 20, func() { r.transport(seed) })
		r.part(1, 20, func() { r.names(seed) })
		r.part(1, 6, func() { r.torn(seed) })
		r.part(1, 8, func() { r.Histories(Config{}, seed<<20, 500) })
		r.part(1, 1, func() { r.pairs(seed) })
		r.Say("round %d, seed %d: %d recoveries, %d double, %d triple", round, seed, r.Counts.Recoveries, r.Counts.DoubleCrashes, r.Counts.TripleCrashes)
		if r.Deadline.IsZero() || r.Over() {
			return
		}
	}
}

// Say prints a line about the progress, and keeps it for the run's result.
func (r *Run) Say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.said = append(r.said, line)
	r.mu.Unlock()
	if r.Out != nil {
		_, _ = fmt.Fprintln(r.Out, line) // progress: nobody depends on it
	}
}

func (r *Run) single(seed uint64) {
	for _, v := range shuffled(seed, variants()) {
		if !r.Over() {
			r.Explore(Scenario{Name: "single " + v.name, Conf: v.conf, Licences: []string{v.licence}, Steps: Steps}, seed, Losses, 1, Thoroughness{Depth: 1, Again: 16, Retry: 8})
		}
	}
}

func (r *Run) pairs(seed uint64) {
	for _, v := range shuffled(seed, variants()) {
		if !r.Over() {
			r.Explore(Scenario{Name: "pairs " + v.name, Conf: v.conf, Licences: []string{v.licence}, Steps: Core}, seed, Losses, 1, Thoroughness{Depth: 3, Nested: 1, Third: 997, Again: 64, Retry: 64})
		}
	}
}

// archive crashes around the sealing of a segment.
func (r *Run) archive(seed uint64) {
	r.Explore(Scenario{Name: "archive", Licences: []string{"park"}, Steps: Archive}, seed, []int{0, 70, 100}, 1, Thoroughness{Depth: 2, Nested: 211, Again: 16, Retry: 16})
}

// names opens a store several times, and crashes it before each sync that makes the names of
// files durable: a file whose bytes are on disk may be missing in the directory.
func (r *Run) names(seed uint64) {
	s := Scenario{Name: "names", Licences: []string{"park"}, Steps: Core}
	w := NewWorld(seed)
	var images []Image
	for range 3 {
		p, err := w.Start(s.Conf)
		if err != nil {
			return // Explore reports it
		}
		s.play(p)
		if err := p.DB.Close(); err != nil {
			return // likewise
		}
		w.OnPoint(func(p Point) {
			if p.Op == opSync && p.Path == Dir {
				r.Counts.add(&r.Counts.CrashPoints, 1)
				for loss := 10; loss < 100; loss += 10 {
					images = append(images, w.Snapshot(p, loss, nil))
				}
			}
		})
	}
	w.OnPoint(nil)
	r.each(len(images), func(i int) { r.recover(images[i], s, i, Thoroughness{Depth: 1}) })
}

// parallel runs 8 traces at a time.
func (r *Run) parallel(seed uint64) {
	for i := range uint64(4) {
		if !r.Over() {
			s := Scenario{Name: "parallel", Licences: []string{"park", "probe", "dedupe_key", "dedupe_args", "read_only", none, "park", "dedupe_key"}, Steps: Core, Parallel: true}
			r.Explore(s, seed<<8+i, Losses, 3, Thoroughness{Depth: 2, Nested: 101, Again: 64, Retry: 32})
		}
	}
}

// watched runs traces whose results are read while they are being made durable.
func (r *Run) watched(seed uint64) {
	s := Scenario{Name: "watched", Licences: []string{"park", "dedupe_key", "park", "read_only"}, Steps: Watched, Parallel: true}
	for i := range uint64(8) {
		if !r.Over() {
			r.Explore(s, seed<<8+i, []int{0, 100}, 1, Thoroughness{Depth: 1})
		}
	}
}

// production has the memtables and segments that a store has by default.
func (r *Run) production(seed uint64) {
	conf := Config{MemTable: 16 << 20, Segment: 4 << 20}
	r.Explore(Scenario{Name: "production size", Conf: conf, Licences: []string{"park"}, Steps: Core}, seed, []int{30}, 13, Thoroughness{Depth: 1, Retry: 2})
	conf = Config{MemTable: small, Segment: 256 << 10}
	r.Explore(Scenario{Name: "longer segments", Conf: conf, Licences: []string{"park", "dedupe_key"}, Steps: Steps}, seed, Losses, 2, Thoroughness{Depth: 1, Again: 32, Retry: 8})
}

func (r *Run) torn(seed uint64) {
	for i, licence := range allLicences {
		for _, parallel := range []bool{false, true} {
			if r.Over() {
				return
			}
			s := Scenario{Name: "torn", Licences: []string{licence, licence, "park", "dedupe_key"}, Steps: Core, Parallel: parallel}
			if !parallel {
				s.Licences = s.Licences[:1]
			}
			r.Torn(s, seed<<4+uint64(i), 61, Thoroughness{Depth: 1, Retry: 16})
		}
	}
}

func (r *Run) faults(seed uint64) {
	for _, licence := range []string{"park", "dedupe_key"} {
		if !r.Over() {
			r.Faults(Scenario{Name: "faults", Licences: []string{licence}, Steps: Core}, seed, whileRun, 1, Thoroughness{Depth: 1, Retry: 8})
		}
	}
	r.Faults(Scenario{Name: "faults while the store is made", Licences: []string{"park"}, Steps: func(l string) []Step { return Core(l)[:1] }}, seed, whileMade, 2, Thoroughness{Depth: 1})
	r.Faults(Scenario{Name: "faults while the store is opened", Licences: []string{"park"}, Steps: func(l string) []Step { return Core(l)[:1] }}, seed, whileOpened, 1, Thoroughness{Depth: 1})
}

// Corrupted is the corruption tier. Without a deadline it goes round once.
func Corrupted(r *Run) {
	for round := uint64(0); ; round++ {
		r.Corrupt(Scenario{Name: "corrupt", Licences: []string{"park", "dedupe_key"}, Steps: Core}, r.Seed+round, 400, nil)
		r.Say("corruption round %d: %d, silent %d", round, r.Counts.Corruptions, r.Counts.CorruptionsSilent)
		if r.Deadline.IsZero() || r.Over() {
			return
		}
	}
}
