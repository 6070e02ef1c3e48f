package main

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/tgad/tgad/internal/memstore"
	"github.com/tgad/tgad/internal/spans"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// dropped is an exporter that drops all spans.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                          { return nil }

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTraced runs calls alternately in blocks of 200: without a Tracer, and with spans that an exporter
// drops. The store is in memory, so that processor time is measured and not the disk.
func BenchmarkTraced(b *testing.B) {
	provider := trace.NewTracerProvider(trace.WithBatcher(dropped{}))
	defer func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	tool := runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"paid":true}`)}, nil
	})
	var took [2]time.Duration
	var calls [2]int
	const block = 200
	for n := 0; n < b.N; n += block {
		for i, tracer := range []runtime.Tracer{nil, spans.New(provider, spans.Options{})} {
			// Each block has its own store: one store that grows would slow the later blocks.
			rt, err := runtime.New(memstore.Open(&memstore.Disk{}, time.Now), tool, runtime.AllowAll, runtime.Options{
				Tracer: tracer, Policy: func(string, string) runtime.Policy {
					return runtime.Policy{Licence: ledger.Licence{Kind: ledger.Park}, LicenceSet: true}
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			before := processorTime()
			for k := range block {
				if _, err := rt.Call(context.Background(), runtime.Request{Server: "payments", Tool: "charge", Args: []byte(`{"amount":100}`), Key: fmt.Sprint(k)}); err != nil {
					b.Fatal(err)
				}
			}
			took[i] += processorTime() - before
			calls[i] += block
		}
	}
	b.ReportMetric(float64(took[0].Nanoseconds())/float64(calls[0]), "cpu-ns/call-off")
	b.ReportMetric(float64(took[1].Nanoseconds())/float64(calls[1]), "cpu-ns/call-on")
	b.ReportMetric(float64(took[1])/float64(took[0]), "on/off")
}
