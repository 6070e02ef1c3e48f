//go:build linux

package proc

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/crashtest"
)

// Tiers returns the ways to kill as tiers of package crashtest. Without a deadline a tier
// makes one pass over every place of one life. With a deadline it makes further passes with
// new seeds, which draw other pairs, samples and losses, until its time is up.
func Tiers() []crashtest.Tier {
	var all []crashtest.Tier
	for _, t := range tiers {
		all = append(all, crashtest.Tier{Name: t.name, Share: t.share, Run: t.run})
	}
	return all
}

// tier is one way to kill.
type tier struct {
	name  string
	share int
	// worlds yields what to do in one pass, at most sample places of each life.
	worlds func(b *bench, seed uint64) iter.Seq2[job, error]
}

// job runs and judges one world, or the worlds of one disk.
type job func(v *verdict) error

var tiers = []tier{
	{"proc", 2, killAtPoints},
	{"ptrace", 2, killAtSyscalls},
	{"double", 3, killTwice},
	{"servers", 1, killServers},
	{"stop", 1, stopAtPoints},
	{"powercut", 2, cutAtPoints},
	{"blocklog", 2, cutBlocks},
	{"soak", 2, soak},
}

// bench has what the worlds of a tier share.
type bench struct {
	*lab
	sample int    // the most places of a life that one pass takes; 0 = all
	bug    string // planted in the victims
	out    io.Writer
	over   func() bool
	stores string // where they lie, "" = beside the oracle
	// saveDir is where stores go that failed, "" = nowhere.
	saveDir string

	mu      sync.Mutex
	total   verdict
	skipped []string // what was left out, and why
}

// width is how many worlds run at once. Their processes mostly wait for the disk.
const width = 2

// maxFailures is the number of violations after which a tier ends.
const maxFailures = 50

// run runs the tier for a run of package crashtest.
func (t tier) run(r *crashtest.Run) {
	b := &bench{out: r.Out, over: r.Over, saveDir: r.SaveDir, stores: r.Stores}
	err := b.runTier(t, r.Seed, !r.Deadline.IsZero())
	if err != nil {
		b.total.bad = append(b.total.bad, crashtest.Violation{Property: "setup", Detail: err.Error(), Where: "tier " + t.name})
	}
	c := b.total.counts
	r.Counts.Add(&crashtest.Counts{
		CrashPoints: c.sigkills + c.powerCuts + c.blockLogImages, Recoveries: c.recoveries, IndexesLost: c.indexesLost, DoubleCrashes: c.doubleCrashes, TripleCrashes: c.tripleCrashes,
		Sigkills: c.sigkills, PowerCuts: c.powerCuts, BlockLogImages: c.blockLogImages, LicensedResends: c.licensedResends,
	})
	r.Say("%s: %d kills, %d stops, %d power cuts, %d block images, %d recoveries, %d of them without an index", t.name, c.sigkills, c.stops, c.powerCuts, c.blockLogImages, c.recoveries, c.indexesLost)
	for _, disk := range slices.Sorted(maps.Keys(c.disks)) {
		r.Say("%s: %d images of %s", t.name, c.disks[disk], disk)
	}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		r.Say("%s: at most %d MiB of memory here", t.name, used.Maxrss>>10)
	}
	if len(b.total.bad) > 0 {
		r.Found(b.total.bad...)
	}
}

func (b *bench) say(format string, args ...any) {
	if b.out != nil {
		_, _ = fmt.Fprintf(b.out, format+"\n", args...) // progress: nobody depends on it
	}
}

// skip notes, once, why something is left out.
func (b *bench) skip(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	if !slices.Contains(b.skipped, why) {
		b.skipped = append(b.skipped, why)
		b.say("left out: %s", why)
	}
}

// runTier makes one pass or, with repeat, passes until the run is over. An error means that
// it could not go on; violations are no error.
func (b *bench) runTier(t tier, seed uint64, repeat bool) (err error) {
	dir, err := os.MkdirTemp("", "crash-") // short: it holds a socket
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if b.lab, err = newLab(dir); err != nil {
		return err
	}
	b.lab.saveDir, b.lab.stores = b.saveDir, dir
	if b.stores != "" {
		if b.lab.stores, err = os.MkdirTemp(b.stores, "crash-"); err != nil {
			return errors.Join(err, b.lab.close())
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.lab.stores)) }()
	}
	defer func() { err = errors.Join(err, b.lab.close()) }()
	for ; ; seed++ {
		did, err := b.pass(t, seed)
		if err != nil || !repeat || !did || b.done() {
			return err
		}
	}
}

func (b *bench) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over() || len(b.total.bad) >= maxFailures
}

// pass runs the worlds of one seed, width at a time.
func (b *bench) pass(t tier, seed uint64) (did bool, err error) {
	var (
		wg     sync.WaitGroup
		slots  = make(chan struct{}, width)
		failed error // of a job, under b.mu
	)
	for j, e := range t.worlds(b, seed) {
		slots <- struct{}{}
		b.mu.Lock()
		err = errors.Join(failed, e)
		b.mu.Unlock()
		if err != nil || did && b.done() {
			break
		}
		did = true
		wg.Go(func() {
			defer func() { <-slots }()
			var v verdict
			e := j(&v)
			b.mu.Lock()
			defer b.mu.Unlock()
			failed = errors.Join(failed, e)
			b.total.counts.add(v.counts)
			b.total.bad = append(b.total.bad, v.bad...)
		})
	}
	wg.Wait()
	return did, errors.Join(err, failed)
}

func (b *bench) rand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// places draws at most b.sample of the numbers 1..n.
func (b *bench) places(n int, seed, stream uint64) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	b.rand(seed, stream).Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	if b.sample > 0 && b.sample < n {
		all = all[:b.sample]
	}
	return all
}

// counts are what worlds did.
type counts struct {
	recoveries, indexesLost, sigkills, doubleCrashes, tripleCrashes, stops, powerCuts, blockLogImages, licensedResends int64

	disks map[string]int64 // images of each file system
}

// on counts an image of a file system.
func (c *counts) on(disk string) {
	if c.disks == nil {
		c.disks = map[string]int64{}
	}
	c.disks[disk]++
}

func (c *counts) add(d counts) {
	c.recoveries += d.recoveries
	c.indexesLost += d.indexesLost
	c.sigkills += d.sigkills
	c.doubleCrashes += d.doubleCrashes
	c.tripleCrashes += d.tripleCrashes
	c.stops += d.stops
	c.powerCuts += d.powerCuts
	c.blockLogImages += d.blockLogImages
	c.licensedResends += d.licensedResends
	for disk, n := range d.disks {
		for range n {
			c.on(disk)
		}
	}
}

// verdict is what was found in one world.
type verdict struct {
	counts counts
	bad    []crashtest.Violation
}

func (v *verdict) fail(w *world, property, format string, args ...any) {
	v.bad = append(v.bad, crashtest.Violation{Property: property, Detail: fmt.Sprintf(format, args...), Where: w.where()})
}

// judge adds what package crashtest finds.
func (v *verdict) judge(w *world, o *crashtest.Observed) {
	for _, bad := range crashtest.Judge(w.events, o) {
		bad.Where = w.where()
		v.bad = append(v.bad, bad)
	}
}
