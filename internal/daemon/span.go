package daemon

import (
	"context"
	"strings"

	"github.com/tgad/tgad/runtime"
)

// underCaller returns ctx with the span context that the request came with, where the daemon makes
// spans. What is no span context counts as none when the first span begins.
func (q *request) underCaller(ctx context.Context) context.Context {
	if !q.d.traces {
		return ctx
	}
	h := q.r.Header
	sc := runtime.SpanContext{Tracestate: strings.Join(h.Values("Tracestate"), ","), Baggage: strings.Join(h.Values("Baggage"), ",")}
	if at := h.Values("Traceparent"); len(at) == 1 { // two name no parent
		sc.Traceparent = at[0]
	}
	return runtime.WithSpanContext(ctx, sc)
}
