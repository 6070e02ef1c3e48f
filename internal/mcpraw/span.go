package mcpraw

import "github.com/tgad/tgad/schemas/tga"

// SpanMembers are the members of `_meta` that carry W3C Trace Context and Baggage, as headers do in HTTP.
var SpanMembers = [...]string{"traceparent", "tracestate", "baggage"}

// AppendSpan appends the members that have a value, in the order of [SpanMembers], each behind a comma.
// The one of the name except is left out: something else stands under it.
func AppendSpan(dst []byte, except string, values ...string) []byte {
	for i, name := range SpanMembers {
		if values[i] != "" && name != except {
			dst = append(tga.AppendString(append(dst, ','), name), ':')
			dst = tga.AppendString(dst, values[i])
		}
	}
	return dst
}
