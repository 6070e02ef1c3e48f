package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// cost is what an append of 1 KiB costs, independent of the disk and the machine: counts, and
// CPU in units of a loop that runs between the appends in the same process.
type cost struct {
	Allocs float64 `json:"allocs"`
	Bytes  float64 `json:"bytes_written,omitempty"`
	Syncs  float64 `json:"syncs,omitempty"`
	CPU    float64 `json:"cpu_units,omitempty"`
}

// costs are those figures by the name of what they are about.
type costs map[string]cost

// costFile has the figures that a build is compared with.
const costFile = "bench/cost.json"

//go:embed cost.json
var committed []byte

// Factors by which figures may grow before a build fails. Counts are the same in each run, to
// a percent. CPU is not: on a machine with other work, runs of one program were 10 % below to
// 22 % above the first, and processors differ in what they do fast. So the bound of CPU is
// wide, and finds only large regressions.
const (
	grownCount = 1.10
	grownCPU   = 1.50
)

const (
	costAppends = 512 // in one repetition
	costRepeats = 100 // repetitions; the best of them counts
)

// checkCost measures, and fails if a figure has grown too much.
func checkCost(out io.Writer) error {
	var want costs
	if err := json.Unmarshal(committed, &want); err != nil {
		return fmt.Errorf("%s: %w", costFile, err)
	}
	got, err := measureCosts()
	if err != nil {
		return err
	}
	return compareCosts(got, want, out)
}

// compareCosts prints both, and fails if got has grown too much over want.
func compareCosts(got, want costs, out io.Writer) error {
	if len(want) == 0 {
		return fmt.Errorf("%s has no figures", costFile)
	}
	for name, w := range want {
		if w.Allocs == 0 {
			return fmt.Errorf("%s has no allocations of %s", costFile, name)
		}
	}
	grown := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		g, w := got[name], want[name]
		for _, f := range []struct {
			what      string
			got, want float64
			most      float64
		}{
			{"allocations", g.Allocs, w.Allocs, grownCount},
			{"bytes written", g.Bytes, w.Bytes, grownCount},
			{"syncs", g.Syncs, w.Syncs, grownCount},
			{"CPU, in units", g.CPU, w.CPU, grownCPU},
		} {
			if f.want == 0 {
				continue // there is nothing to compare with
			}
			verdict := "ok"
			if !(f.got > 0 && f.got <= f.want*f.most*(1+1e-9)) { // what was not measured is none
				verdict, grown = fmt.Sprintf("MORE than %.0f %% above what is committed", 100*(f.most-1)), grown+1
			}
			if _, err := fmt.Fprintf(out, "%-12s %-14s %9.3f  committed %9.3f  %+5.1f %%  %s\n",
				name, f.what, f.got, f.want, 100*(f.got/f.want-1), verdict); err != nil {
				return err
			}
		}
	}
	if grown > 0 {
		return fmt.Errorf("%d figures of an append have grown; where that is meant: go run ./bench -renew-cost", grown)
	}
	return nil
}

// renewCost writes the figures of this program to the file that builds are compared with.
func renewCost() error {
	got, err := measureCosts()
	if err != nil {
		return err
	}
	for name, c := range got {
		got[name] = cost{round3(c.Allocs), round3(c.Bytes), round3(c.Syncs), round3(c.CPU)}
	}
	b, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(costFile, append(b, '\n'), 0o644)
}

func round3(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }

// measureCosts measures appends that each wait for their own sync, and 16 that share one. The
// store is in memory, and everything runs on one processor: so no idle processor looks for
// work, and the groups are the same each time.
func measureCosts() (costs, error) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	out := costs{}
	for _, depth := range []int{1, 16} {
		c, err := measureCost(depth)
		if err != nil {
			return nil, err
		}
		out[fmt.Sprintf("append_%d", depth)] = c
	}
	allocs, err := measureSocketCost()
	out["begin_socket"] = cost{Allocs: allocs}
	return out, err
}

const (
	costBegins       = 128 // in one repetition
	costBeginRepeats = 20
)

// measureSocketCost counts the allocations of a begin through a daemon's socket, on both sides.
// The rest of its cost is the kernel's, and differs from machine to machine.
func measureSocketCost() (best float64, err error) {
	dir, err := os.MkdirTemp("", "tgad")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := serve(dir, "http://127.0.0.1:1", 1<<10, "", func(o *engine.Options) {
		o.FS, o.FirstSegmentBytes, o.LowWaterBytes = vfs.NewMem(), 256<<20, 1
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	best = math.Inf(1)
	for n := range costBeginRepeats {
		c, err := s.trips()[1].count(s.client, costBegins)
		if err != nil {
			return 0, err
		}
		if n > 0 { // the first fills pools and caches
			best = min(best, c.allocs)
		}
	}
	return best, nil
}

func measureCost(depth int) (cost, error) {
	fs := &counter{FS: vfs.NewMem()}
	// The segment is so large that no repetition fills half of it: the engine would then prepare the next one.
	db, err := engine.Open("store", engine.Options{FS: fs, FirstSegmentBytes: 256 << 20, LowWaterBytes: 1})
	if err != nil {
		return cost{}, err
	}
	inf := math.Inf(1)
	best, unit := cost{inf, inf, inf, inf}, inf
	for n := range costRepeats {
		c, err := repeatCost(db, fs, depth)
		if err != nil {
			return cost{}, fmt.Errorf("%w (close: %v)", err, db.Close())
		}
		unit = min(unit, calibrate())
		if n > 0 { // the first fills pools and caches
			best = cost{min(best.Allocs, c.Allocs), min(best.Bytes, c.Bytes), min(best.Syncs, c.Syncs), min(best.CPU, c.CPU)}
		}
	}
	// Both figures are the best of the same seconds, with the least disturbance by other work.
	best.CPU /= unit
	return best, db.Close()
}

// repeatCost makes a fixed number of appends with artifacts that were sealed before. Its CPU
// is in seconds.
func repeatCost(db *engine.DB, fs *counter, depth int) (cost, error) {
	var ready []*load.Trace
	m := load.New(1 << 10)
	for range costAppends / 4 {
		t := m.Next()
		for _, make := range steps(t) {
			if err := make().Seal(); err != nil {
				return cost{}, err
			}
		}
		ready = append(ready, t)
	}
	goruntime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector's CPU follows from the allocations, which are counted
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	bytes, syncs, cpu := fs.bytes.Load(), fs.syncs.Load(), cpuTime()
	for group := range slices.Chunk(ready, depth) {
		if err := appendReady(db, group); err != nil {
			return cost{}, err
		}
	}
	cpu = cpuTime() - cpu
	bytes, syncs = fs.bytes.Load()-bytes, fs.syncs.Load()-syncs
	goruntime.ReadMemStats(&after)
	per := func(x float64) float64 { return x / costAppends }
	return cost{per(float64(after.Mallocs - before.Mallocs)), per(float64(bytes)), per(float64(syncs)), per(cpu)}, nil
}

// steps returns the functions that make the artifacts of a trace. Each needs the artifacts
// before it to be sealed.
func steps(t *load.Trace) []func() *tga.Artifact {
	return []func() *tga.Artifact{t.MakeRequest, t.MakeDecision, t.MakeCall, t.MakeEffect}
}

func made(t *load.Trace) [4]*tga.Artifact {
	return [4]*tga.Artifact{t.Request, t.Decision, t.Call, t.Effect}
}

// appendReady appends the four entries of each trace. It submits the entries with the same
// number of all traces together, and then waits for them.
func appendReady(db *engine.DB, traces []*load.Trace) error {
	ctx := context.Background()
	leases, tickets := make([]chain.Lease, len(traces)), make([]engine.Ticket, len(traces))
	for i, t := range traces {
		var err error
		if leases[i], err = db.Acquire(ctx, t.ID); err != nil {
			return err
		}
		defer db.Release(leases[i])
	}
	for n := range 4 {
		for i, t := range traces {
			var err error
			if tickets[i], err = db.Submit(ctx, leases[i], chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: made(t)[n]}}}); err != nil {
				return err
			}
		}
		for i := range tickets {
			if _, err := tickets[i].Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// calibrate returns the CPU time of one unit, in seconds: digests, checksums and copies of
// about as many bytes as in an append.
func calibrate() float64 {
	const units = 400
	src, dst := bytes.Repeat([]byte("tgad"), 1<<10), make([]byte, 4<<10)
	start := cpuTime()
	sum := uint32(0)
	for range units {
		digest := sha256.Sum256(src)
		sum = crc32.Update(sum, castagnoli, src)
		copy(dst, src)
		dst[sum%4096] = digest[0]
	}
	took := cpuTime() - start
	goruntime.KeepAlive(dst)
	return took / units
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// cpuTime is what this process has used, in seconds.
func cpuTime() float64 {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0 // then no figure is above zero, which a check refuses
	}
	return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
}

// counter counts what is written to the files of a store, and how often they are synced.
type counter struct {
	vfs.FS
	bytes, syncs atomic.Int64
}

func (c *counter) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := c.FS.Create(name, category)
	return c.counted(f, err)
}

func (c *counter) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.OpenReadWrite(name, category, opts...)
	return c.counted(f, err)
}

func (c *counter) counted(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return f, err
	}
	return &countedFile{f, c}, nil
}

type countedFile struct {
	vfs.File
	c *counter
}

func (f *countedFile) Write(b []byte) (int, error) {
	f.c.bytes.Add(int64(len(b)))
	return f.File.Write(b)
}

func (f *countedFile) WriteAt(b []byte, at int64) (int, error) {
	f.c.bytes.Add(int64(len(b)))
	return f.File.WriteAt(b, at)
}

func (f *countedFile) Sync() error {
	f.c.syncs.Add(1)
	return f.File.Sync()
}

func (f *countedFile) SyncData() error {
	f.c.syncs.Add(1)
	return f.File.SyncData()
}
