package onwire

import (
	"context"
	"iter"
	"strings"

	"github.com/tgad/tgad/runtime"
)

// SpanHeaders yields the values of ctx's span context that are set, each with the name of its header. What cannot
// stand in a header is left out: a mistake there is no reason for a call to fail.
func SpanHeaders(ctx context.Context) iter.Seq2[string, string] {
	sc := runtime.SpanContextOf(ctx)
	return func(yield func(name, value string) bool) {
		for _, h := range [...][2]string{{"traceparent", sc.Traceparent}, {"tracestate", sc.Tracestate}, {"baggage", sc.Baggage}} {
			if FitsHeader(h[1]) && !yield(h[0], h[1]) {
				return
			}
		}
	}
}

// FitsHeader reports whether a header, or metadata of gRPC, carries s unchanged: it is visible ASCII with blanks
// between, and not empty.
func FitsHeader(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && s == strings.TrimSpace(s)
}
