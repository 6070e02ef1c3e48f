package assemble

import (
	"context"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/internal/spans"
	"github.com/tgad/tgad/runtime"
)

// Telemetry makes a tracer for the spans of calls, if the OTEL_ variables of the environment ask for spans;
// else nil. more, which may be nil, is called for metrics to send if they ask for metrics. mcp, which may be
// nil, says which tool servers speak MCP. warn is called with settings that cannot be followed; no call fails
// because of them. closed sends what is left, for some seconds at most.
func Telemetry(ctx context.Context, mcp func(server string) bool, more func() prometheus.Gatherer, warn func(string)) (_ runtime.Tracer, closed func(context.Context)) {
	return optional.Spans(ctx, func() spans.Options {
		if mcp == nil {
			mcp = func(string) bool { return false }
		}
		return spans.Options{NoBaggage: !propagates("baggage", warn), MCP: mcp}
	}, more, warn)
}

// propagates reads OTEL_PROPAGATORS, which says what is passed from the caller to tool servers. The
// trace context is always passed. Baggage can be left out. Other propagators are not supported.
func propagates(what string, warn func(string)) bool {
	list := os.Getenv("OTEL_PROPAGATORS")
	if list == "" {
		return true
	}
	found, context := false, false
	for _, p := range strings.Split(list, ",") {
		switch p = strings.TrimSpace(p); p {
		case "tracecontext":
			context = true
		case "baggage":
		default:
			warn("OTEL_PROPAGATORS names " + p + ", and only tracecontext and baggage are there")
		}
		found = found || p == what
	}
	if !context {
		warn("OTEL_PROPAGATORS leaves out tracecontext, which is passed on all the same")
	}
	return found
}
