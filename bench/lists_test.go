package main

import (
	"context"
	"encoding/binary"
	"iter"
	"os"
	"strconv"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/search/sqlite"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// many is a store with the given number of calls, one each second: of 100 tools of 10 servers; one in a
// hundred failed.
type many uint64

func (m many) Cursor() uint64 { return uint64(m) }

func (m many) Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error] {
	return func(yield func(chain.Leaf, error) bool) {
		for i := after + 1; i <= uint64(m); i++ {
			if !yield(chain.Leaf{Index: i, TraceID: numbered(i)}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(chain.Leaf{}, ctx.Err())
	}
}

func (m many) Traces(_ context.Context, _ tga.ID) iter.Seq2[chain.Listed, error] {
	return func(yield func(chain.Listed, error) bool) {
		for i := uint64(1); i <= uint64(m); i++ {
			if !yield(chain.Listed{Listing: chain.Listing{OpenTrace: chain.OpenTrace{TraceID: numbered(i)}}}, nil) {
				return
			}
		}
	}
}

func (m many) Load(_ context.Context, id tga.ID) (*chain.Trace, error) {
	i := binary.BigEndian.Uint64(id[8:])
	t := chain.NewTrace(id)
	t.Namespace, t.Head.State = tga.DefaultNamespace, tga.Completed
	if i%100 == 0 {
		t.Head.State = tga.Failed
	}
	t.Entries = []tga.LogEntry{{TS: tga.Millis(1_700_000_000_000 + 1000*i)}}
	t.Request = &tga.Artifact{Request: &tga.ActionRequest{
		Proposal: tga.Proposal{ToolServer: "server-" + strconv.FormatUint(i%10, 10), ToolName: "tool-" + strconv.FormatUint(i%100, 10)}, IdempotencyKey: "key-" + strconv.FormatUint(i, 10),
	}}
	return t, nil
}

func numbered(i uint64) (id tga.ID) {
	binary.BigEndian.PutUint64(id[8:], i)
	return id
}

// BenchmarkLists asks an index of lists for a page of a hundred. The index has TGAD_TRACES calls, by default
// 100,000. The cost of a page must not grow with the store.
func BenchmarkLists(b *testing.B) {
	n := many(100_000)
	if text := os.Getenv("TGAD_TRACES"); text != "" {
		i, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		n = many(i)
	}
	dir := b.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	x := search.New(ctx, search.Options{Table: sqlite.In(dir, "sqlite"), Store: n})
	var over sync.WaitGroup
	over.Go(func() { x.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		over.Wait()
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	})
	for x.Behind() > 0 { // the question makes it without a rest
		_, _ = x.Find(ctx, search.Query{Limit: 1})
	}
	half := tga.Millis(1_700_000_000_000 + 500*uint64(n))
	for _, c := range []struct {
		name string
		search.Query
	}{
		{"newest", search.Query{}},
		{"middle", search.Query{After: search.Mark{Since: half, Trace: numbered(uint64(n) / 2)}}},
		{"tool", search.Query{Tool: "tool-7"}},
		{"server and tool", search.Query{Server: "server-7", Tool: "tool-7"}},
		{"state", search.Query{States: []tga.State{tga.Failed}}},
		{"state and time", search.Query{States: []tga.State{tga.Failed}, Until: half}},
		{"state that tool never had", search.Query{States: []tga.State{tga.Failed}, Tool: "tool-7"}},
		{"key", search.Query{Key: "key-77"}},
		{"class that nothing has", search.Query{Class: ledger.ClassRetryable}},
	} {
		c.Limit = 100
		b.Run(c.name, func(b *testing.B) {
			rows := 0
			for b.Loop() {
				page, err := x.Find(ctx, c.Query)
				if err != nil {
					b.Fatal(err)
				}
				rows = len(page)
			}
			b.ReportMetric(float64(rows), "rows")
		})
	}
}
