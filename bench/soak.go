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

// soak appends n single entries of 1 KiB with 64 writers and says, for every second,
// latencies, memory and what the store did beside. It shows what an average hides: the
// tail while logs rotate and tables are compacted, and memory that grows.
func soak(dir string, n int, out io.Writer) error {
	const writers = 64
	s, err := load.OpenStore(filepath.Join(dir, "soak"), 1<<10)
	if err != nil {
		return err
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
	seconds := 0
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
		seconds++
		fmt.Fprintf(out, "%6d  %7d  %6d  %6d  %6d  %12.1f  %7d  %11d\n", seconds, len(batch), batch[len(batch)/2].Microseconds(),
			batch[len(batch)*99/100].Microseconds(), batch[len(batch)-1].Microseconds(), float64(resident())/(1<<20),
			now.Flushes-before.Flushes, now.Compactions-before.Compactions)
		before = now
	}
	if err := s.DB.Close(); err != nil {
		return err
	}
	return failed
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
