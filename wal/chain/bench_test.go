package chain_test

import (
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// BenchmarkAppend is the CPU of an append on this package's side: link, check, encode
// one artifact of about 1 KiB.
func BenchmarkAppend(b *testing.B) {
	tr := chaintest.New(chaintest.Options{Entries: 2, Key: "order-1"})
	a := chaintest.Artifacts(chaintest.Options{Key: "order-1"})[2]
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		t := *tr.State
		e, err := t.Link(a, a.TS)
		if err != nil {
			b.Fatal(err)
		}
		entry := chain.Entry{LogEntry: e, Artifact: a}
		if err := t.Apply(&entry); err != nil {
			b.Fatal(err)
		}
		dst, _ = chain.AppendFrame(dst[:0], &entry)
	}
	b.ReportMetric(float64(len(dst)), "B/frame")
}

// BenchmarkReplay decodes and replays a trace of four entries, as a store's check does;
// BenchmarkSum hashes the same number of bytes.
func BenchmarkReplay(b *testing.B) {
	tr, frames, size := frames()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		_, err := chain.Replay(tr.ID, func(yield func(chain.Entry, error) bool) {
			for _, frame := range frames {
				if e, err := chain.DecodeFrame(frame, nil); !yield(e, err) {
					return
				}
			}
		}, nil)
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	_, frames, size := frames()
	b.SetBytes(int64(size))
	for b.Loop() {
		for _, frame := range frames {
			tga.Sum(frame)
		}
	}
}

func frames() (tr *chaintest.Trace, frames [][]byte, size int) {
	tr = chaintest.New(chaintest.Options{Key: "order-1", Documents: []chain.Document{document("/result", 8<<10)}})
	for i := range tr.Entries {
		frame, _ := chain.AppendFrame(nil, &tr.Entries[i])
		frames = append(frames, frame)
		size += len(frame)
	}
	return tr, frames, size
}
