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

// spanIDs are the ids in a traceparent that a span of this process was given; "" where it is not
// recorded, for then nothing is found under them.
func spanIDs(traceparent string) (traceID, spanID string) {
	if len(traceparent) != len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") || strings.IndexByte("13579bdf", traceparent[54]) < 0 {
		return "", ""
	}
	return traceparent[3:35], traceparent[36:52]
}
