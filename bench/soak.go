package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/bench/internal/load"
)

// second is one second of a soak.
type second struct {
	appends              int
	p50, p99, most       time.Duration
	resident             uint64 // bytes
	flushes, compactions uint64 // in that second
}

// soak appends n single entries of 1 KiB with 64 writers and says, for every second,
// latencies, memory and what the store did beside. It shows what an average hides: the
// tail while logs rotate and tables are compacted, and memory that grows.
func soak(dir string, n int, out io.Writer) ([]second, error) {
	const writers = 64
	s, err := load.OpenStore(filepath.Join(dir, "soak"), 1<<10)
	if err != nil {
		return nil, err
	}
	op := s.Append(writers).Op
	var left atomic.Int64
	left.Store(int64(n))
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				d, err := op(w)
				mu.Lock()
				took = append(took, d)
				if err != nil {
					failed = err
				}
				mu.Unlock()
				if err != nil {
					left.Store(0)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	fmt.Fprintln(out, "second  appends  p50 µs  p99 µs  max µs  resident MiB  flushes  compactions")
	var all []second
	before := s.DB.Stats()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
		case <-done:
			running = false
		}
		mu.Lock()
		batch := took
		took = nil
		mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		slices.Sort(batch)
		now := s.DB.Stats()
		sec := second{
			appends: len(batch), p50: batch[len(batch)/2], p99: batch[len(batch)*99/100], most: batch[len(batch)-1],
			resident: resident(), flushes: now.Flushes - before.Flushes, compactions: now.Compactions - before.Compactions,
		}
		before = now
		all = append(all, sec)
		fmt.Fprintf(out, "%6d  %7d  %6d  %6d  %6d  %12.1f  %7d  %11d\n", len(all), sec.appends, sec.p50.Microseconds(), sec.p99.Microseconds(),
			sec.most.Microseconds(), float64(sec.resident)/(1<<20), sec.flushes, sec.compactions)
	}
	if err := s.DB.Close(); err != nil {
		return nil, err
	}
	return all, failed
}

// resident is the memory that the process has in RAM, in bytes; 0 where the system does
// not say.
func resident() uint64 {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(raw) {
		if v, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.ParseUint(string(bytes.TrimSuffix(bytes.TrimSpace(v), []byte(" kB"))), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// plotSoak draws p50 and p99 over time, and a mark for each second in which a memtable
// was flushed.
func plotSoak(all []second) []byte {
	var b bytes.Buffer
	most := time.Millisecond
	for _, s := range all {
		most = max(most, s.p99)
	}
	x := func(i int) float64 {
		return plotLeft + (plotWidth-plotLeft-plotRight)*float64(i)/float64(max(len(all)-1, 1))
	}
	y := func(d time.Duration) float64 {
		return plotHeight - plotBottom - (plotHeight-plotTop-plotBottom)*float64(d)/float64(most)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="14">Append of 1 KiB, 64 writers, each second</text>`+"\n", plotLeft)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%.1f ms</text><text x="%d" y="%d" text-anchor="end">0</text>`+"\n",
		plotLeft-6, plotTop+4, most.Seconds()*1e3, plotLeft-6, plotHeight-plotBottom+4)
	fmt.Fprintf(&b, `<text x="%d" y="%d">%d s</text>`+"\n", plotWidth-plotRight-10, plotHeight-plotBottom+18, len(all))
	for i, s := range all {
		if s.flushes > 0 {
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#dddddd"/>`+"\n", x(i), x(i), plotTop, plotHeight-plotBottom)
		}
	}
	for n, series := range []struct {
		name string
		of   func(second) time.Duration
	}{{"p99", func(s second) time.Duration { return s.p99 }}, {"p50", func(s second) time.Duration { return s.p50 }}} {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, plotColours[n+1])
		for i, s := range all {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(i), y(series.of(s)))
		}
		fmt.Fprintf(&b, `"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotWidth-plotRight+12, plotTop+12+18*n, plotColours[n+1], series.name)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#888888">| a flush</text></svg>`+"\n", plotWidth-plotRight+12, plotTop+12+18*2)
	return b.Bytes()
}
