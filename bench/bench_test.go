package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// each runs a subject's operation b.N times in all, on as many goroutines as the subject has writers.
func each(b *testing.B, s *measure.Subject) {
	b.Helper()
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(goruntime.NumCPU() + 1))
	var left atomic.Int64
	left.Store(int64(b.N))
	var before uint64
	if s.Syncs != nil {
		before = s.Syncs()
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range s.Writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := s.Op(w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if s.Syncs != nil {
		b.ReportMetric(float64(s.Syncs()-before)/float64(b.N), "fsyncs/op")
	}
}

var sizes = map[int]string{256: "256B", 1 << 10: "1KiB", 16 << 10: "16KiB", 256 << 10: "256KiB"}

// writes runs f for several numbers of writers and sizes, named as benchstat groups them.
func writes(b *testing.B, f func(b *testing.B, writers, size int)) {
	for _, p := range []point{{1, 1 << 10}, {16, 1 << 10}, {64, 1 << 10}, {256, 1 << 10}, {1, 256}, {1, 16 << 10}, {1, 256 << 10}} {
		b.Run(fmt.Sprintf("sync=true/writers=%d/payload=%s", p.writers, sizes[p.size]), func(b *testing.B) { f(b, p.writers, p.size) })
	}
}

func BenchmarkLimit(b *testing.B) {
	writes(b, func(b *testing.B, writers, size int) {
		l, err := measure.NewLimit(b.TempDir(), 16<<20)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { closed(b, l.Close) })
		each(b, l.Subject(writers, size))
	})
}

func closed(b *testing.B, f func() error) {
	if err := f(); err != nil {
		b.Error(err)
	}
}

func newStore(b *testing.B, size int) *load.Store {
	s, err := load.OpenStore(filepath.Join(b.TempDir(), "store"), size)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { closed(b, s.DB.Close) })
	return s
}

func BenchmarkAppend(b *testing.B) {
	writes(b, func(b *testing.B, writers, size int) { each(b, newStore(b, size).Append(writers)) })
}

// BenchmarkSealedAppend is BenchmarkAppend in a store that seals each trace under its own key.
func BenchmarkSealedAppend(b *testing.B) {
	dir := b.TempDir()
	o := keyring.Options{KEK: keyring.KEK{File: filepath.Join(dir, "kek")}}
	if err := os.WriteFile(o.KEK.File, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := keyring.Create(filepath.Join(dir, "ring"), tga.ID{6: 0x70, 8: 0x80}, o); err != nil {
		b.Fatal(err)
	}
	ring, err := keyring.Open(filepath.Join(dir, "ring"), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { closed(b, ring.Close) })
	writes(b, func(b *testing.B, writers, size int) {
		db, err := engine.Open(filepath.Join(b.TempDir(), "store"), engine.Options{Keyring: ring})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { closed(b, db.Close) })
		s := &load.Store{DB: db, Size: size}
		each(b, s.Append(writers))
	})
}

func BenchmarkSubmit(b *testing.B) {
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprintf("sync=true/depth=%d/payload=1KiB", depth), func(b *testing.B) { each(b, newStore(b, 1<<10).Submit(depth)) })
	}
}

func BenchmarkFused(b *testing.B) {
	writes(b, func(b *testing.B, writers, size int) {
		fused, _ := newStore(b, size).Fused(writers)
		each(b, fused)
	})
}

func BenchmarkCall(b *testing.B) {
	writes(b, func(b *testing.B, writers, size int) {
		s, err := newStore(b, size).Call("call", writers, load.Noop)
		if err != nil {
			b.Fatal(err)
		}
		each(b, s)
	})
}

// BenchmarkCallSocket is a governed call over the daemon's socket. The tool is an HTTP server in this
// process.
func BenchmarkCallSocket(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("sync=true/writers=%d/payload=1KiB", writers), func(b *testing.B) {
			tool, err := newToolServer()
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { closed(b, tool.srv.Close) })
			s, err := serve(filepath.Join(b.TempDir(), "daemon"), tool.url, 1<<10, "", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { closed(b, s.close) })
			each(b, s.call(writers))
		})
	}
}

// BenchmarkOwnSide is the cost of an append without the store: canonical form, digest, link, checks and
// frame of one artifact.
func BenchmarkOwnSide(b *testing.B) {
	for _, size := range []int{256, 1 << 10, 16 << 10, 256 << 10} {
		b.Run("payload="+sizes[size], func(b *testing.B) {
			trace := load.New(size).Next()
			a := trace.MakeRequest()
			var frame []byte
			b.ReportAllocs()
			for b.Loop() {
				if err := a.Seal(); err != nil {
					b.Fatal(err)
				}
				e := chain.Entry{Artifact: a}
				if err := chain.NewTrace(trace.ID).Extend(&e, a.TS); err != nil {
					b.Fatal(err)
				}
				frame, _ = chain.AppendFrame(frame[:0], &e)
			}
			b.ReportMetric(float64(len(a.Canonical)), "B/artifact")
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		c, err := newChains(4, size)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("payload="+sizes[size], func(b *testing.B) {
			b.SetBytes(c.bytes())
			each(b, c.verify())
		})
		b.Run("payload="+sizes[size]+"/sha256", func(b *testing.B) {
			b.SetBytes(c.bytes())
			each(b, c.sha256())
		})
	}
}

// bytes is the size of one chain.
func (c *chains) bytes() int64 {
	n := 0
	for i, frame := range c.frames[0] {
		n += len(frame) + len(c.spills[0][i])
	}
	return int64(n)
}
