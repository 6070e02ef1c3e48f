//go:build unix

package mcp

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
)

// TestSpanOfTheSendIsInMeta: the span is added to the other members of _meta, and only if there is a span.
func TestSpanOfTheSendIsInMeta(t *testing.T) {
	s := newScripted(t, "script", nil)
	for sc, want := range map[runtime.SpanContext]string{
		{}:                                    `"dev.tgad/attempt":1}`,
		{Traceparent: "tp", Tracestate: "ts"}: `"dev.tgad/attempt":1,"traceparent":"tp","tracestate":"ts"}`,
		{Traceparent: "tp", Baggage: `a="b"`}: `"dev.tgad/attempt":1,"traceparent":"tp","baggage":"a=\"b\""}`,
	} {
		r, err := s.Dispatch(runtime.WithSpanContext(t.Context(), sc), testCall("echo", "{}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := structured(t, r.Result); !strings.Contains(got, want) {
			t.Errorf("%+v: came back as %s, want %s", sc, got, want)
		}
	}
}
