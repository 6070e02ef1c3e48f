package emit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// IDs is an id generator for an OpenTelemetry tracer provider (sdktrace.WithIDGenerator). With it
// the ids of this package's spans are derived from the turn's ids, so a turn that is reported
// again after a crash makes the same spans. Other spans have random ids. Without IDs the tree of
// spans is the same, but its ids are new each time.
type IDs struct{}

type idsKey struct{}

type ids struct {
	trace trace.TraceID // of a span without parent
	span  trace.SpanID
}

// NewIDs returns the ids of a span without parent.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if want, ok := ctx.Value(idsKey{}).(ids); ok && want.trace.IsValid() {
		return want.trace, want.span
	}
	var t trace.TraceID
	rand.Read(t[:]) // never fails: crypto/rand
	return t, random()
}

// NewSpanID returns the id of a span in a trace.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if want, ok := ctx.Value(idsKey{}).(ids); ok {
		return want.span
	}
	return random()
}

func random() trace.SpanID {
	var s trace.SpanID
	for !s.IsValid() {
		rand.Read(s[:]) // never fails: crypto/rand
	}
	return s
}

// derive returns the ids of the nth span of a name in a turn or invocation.
func derive(of tga.ID, name string, n int) ids {
	b := append([]byte("tgad span v1\x00"), of[:]...)
	b = binary.BigEndian.AppendUint32(append(b, name...), uint32(n))
	sum := sha256.Sum256(b)
	want := ids{trace: trace.TraceID(sum[:16]), span: trace.SpanID(sum[16:24])}
	if name == spanInvoke {
		want.trace = trace.TraceID(of) // so that an invocation's own id finds its trace
	}
	return want
}

// partIDs returns the ids of the span of a part. They depend on nothing that is known only when
// the turn has ended, such as the number of parts before it.
func partIDs(e *turn.Emission, of turn.Part) ids {
	if of.ToolCall != "" {
		return derive(e.InteractionID, spanTool+" "+of.ToolCall, 0)
	}
	return derive(of.Question, spanChat, 0)
}

// withIDs returns a context that makes [IDs] use these ids.
func withIDs(ctx context.Context, as ids) context.Context {
	return context.WithValue(ctx, idsKey{}, as)
}
