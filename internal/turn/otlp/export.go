package otlp

import (
	"context"
	"errors"
	"sync/atomic"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The exporters would report errors to a handler that the whole process shares. These wrappers
// send them to Options.Warn instead, only the first in a row: a collector that is gone would fill
// the screen.

func (p *Providers) teller(what string) func(error) error {
	var failing atomic.Bool
	return func(err error) error {
		late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
		switch {
		case err == nil:
			failing.Store(false)
		case late && p.closing.Load(): // Close reports it
		case !failing.Swap(true):
			p.warn(what + " are not sent: " + err.Error())
		}
		return nil
	}
}

type spans struct {
	sdktrace.SpanExporter
	tell func(error) error
}

func (s *spans) ExportSpans(ctx context.Context, list []sdktrace.ReadOnlySpan) error {
	return s.tell(s.SpanExporter.ExportSpans(ctx, list))
}

type metrics struct {
	sdkmetric.Exporter
	tell func(error) error
}

func (m *metrics) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	if len(rm.ScopeMetrics) == 0 {
		return nil // a process that ran no turn has no metrics
	}
	inBytes(rm)
	return m.tell(m.Exporter.Export(ctx, rm))
}
