//go:build linux

package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/engine"
)

// BenchmarkDiskLimit is a pwrite of 1 KiB and its fdatasync, one after another.
func BenchmarkDiskLimit(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Write(make([]byte, 16<<20)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	page := make([]byte, 1024)
	times := make([]time.Duration, 0, b.N)
	for i := range b.N {
		began := time.Now()
		if _, err := f.WriteAt(page, int64(i%16000)*1024); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	report(b, times)
}

// BenchmarkAppend is one synced append of one entry (a request of about 1 KiB, each in
// a trace of its own) by n writers at once.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		where   string
		writers int
	}{{"disk", 1}, {"disk", 64}, {"memory", 1}} {
		b.Run(fmt.Sprintf("%s/writers=%d", c.where, c.writers), func(b *testing.B) {
			o, dir := engine.Options{}, filepath.Join(b.TempDir(), "store")
			if c.where == "memory" {
				o = engine.Options{FS: vfs.NewMem(), FirstSegmentBytes: 64 << 10, MemTableBytes: 64 << 20}
			}
			db, err := engine.Open(dir, o)
			if err != nil {
				b.Fatal(err)
			}
			batches := make([]made, b.N)
			for i := range batches {
				batches[i] = spec{trace: id(uint64(i + 1)), args: `{"fill":"` + noise(uint64(i), 4) + `"}`}.make(b)
			}
			times := make([]time.Duration, b.N)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range c.writers {
				wg.Go(func() {
					for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
						m := batches[i]
						lease := acquire(b, db, m.request.TraceID)
						began := time.Now()
						append_(b, db, lease, m.batch(m.request))
						times[i] = time.Since(began)
						db.Release(lease)
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			report(b, times)
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1000, "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1000, "p99-µs")
}
