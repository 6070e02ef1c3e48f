package daemon

import (
	"context"
	"strings"

	"github.com/tgad/tgad/runtime"
)

// underCaller returns ctx with the span context of the request's headers, if the daemon makes spans.
// It does not check them: invalid headers are ignored when the first span begins.
func (q *request) underCaller(ctx context.Context) context.Context {
	if !q.d.traces {
		return ctx
	}
	h := q.r.Header
	sc := runtime.SpanContext{Tracestate: strings.Join(h.Values("Tracestate"), ","), Baggage: strings.Join(h.Values("Baggage"), ",")}
	if at := h.Values("Traceparent"); len(at) == 1 { // with two headers, the parent is not known
		sc.Traceparent = at[0]
	}
	return runtime.WithSpanContext(ctx, sc)
}

// spanIDs are the ids in the traceparent of a span of this process. They are "" if the span is not
// recorded, because a reader would find nothing under them.
func spanIDs(traceparent string) (traceID, spanID string) {
	if len(traceparent) != len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") || strings.IndexByte("13579bdf", traceparent[54]) < 0 {
		return "", ""
	}
	return traceparent[3:35], traceparent[36:52]
}
