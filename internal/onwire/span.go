package onwire

import (
	"context"
	"iter"
	"strings"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// SpanNames are the names of the parts of a span context on the wire (W3C Trace Context and Baggage): of HTTP headers,
// of gRPC metadata, and of members of `_meta` in MCP.
var SpanNames = [...]string{"traceparent", "tracestate", "baggage"}

// SpanFields yields the parts of a span context that are set, each with its name.
func SpanFields(sc runtime.SpanContext) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for i, value := range [len(SpanNames)]string{sc.Traceparent, sc.Tracestate, sc.Baggage} {
			if value != "" && !yield(SpanNames[i], value) {
				return
			}
		}
	}
}

// SpanOf returns a span context. It calls get for each part, with the part's name.
func SpanOf(get func(name string) string) runtime.SpanContext {
	return runtime.SpanContext{Traceparent: get(SpanNames[0]), Tracestate: get(SpanNames[1]), Baggage: get(SpanNames[2])}
}

// SpanHeaders yields the values of ctx's span context that are set, each with the name of its header. It leaves out
// values that a header cannot carry, because a bad span context is no reason for a call to fail.
func SpanHeaders(ctx context.Context) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for name, value := range SpanFields(runtime.SpanContextOf(ctx)) {
			if FitsHeader(value) && !yield(name, value) {
				return
			}
		}
	}
}

// AppendSpan appends the parts that are set as members of a JSON object, each after a comma. It leaves out the part
// with the name except, because the object has another member with that name.
func AppendSpan(dst []byte, except string, sc runtime.SpanContext) []byte {
	for name, value := range SpanFields(sc) {
		if name != except {
			dst = append(tga.AppendString(append(dst, ','), name), ':')
			dst = tga.AppendString(dst, value)
		}
	}
	return dst
}

// FitsHeader reports whether a header, or gRPC metadata, carries s unchanged: s is not empty, and is visible ASCII
// with blanks only inside.
func FitsHeader(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && s == strings.TrimSpace(s)
}
