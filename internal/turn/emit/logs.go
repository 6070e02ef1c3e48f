package emit

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/internal/turn"
)

// logs writes a record of the turn, and one for each question and call that failed.
func (m *Emitter) logs(ctx context.Context, e *turn.Emission, c contexts) {
	log := func(level slog.Level, text string, of trace.SpanContext, attrs ...slog.Attr) {
		attrs = append(attrs,
			slog.String("agent_id", agentID(e.Agent)),
			slog.String("session_id", e.SessionID),
			slog.String("interaction_id", e.InteractionID.String()),
			slog.Uint64("turn_number", uint64(e.TurnNumber)))
		if of.IsValid() {
			attrs = append(attrs, slog.String("trace_id", of.TraceID().String()), slog.String("span_id", of.SpanID().String()))
		}
		m.opts.Logger.LogAttrs(trace.ContextWithSpanContext(ctx, of), level, text, attrs...)
	}
	for n, i := range e.Inferences {
		if i.Failure != nil {
			log(slog.LevelWarn, "model failed", nth(c.inferences, n, c.turn),
				slog.String("model", i.Model), slog.String("code", string(i.Failure.Code)), slog.String("error", m.message(i.Failure)))
		}
	}
	for n, t := range e.Tools {
		if t.Status != turn.ToolSucceeded {
			log(slog.LevelWarn, "tool failed", nth(c.tools, n, c.turn),
				slog.String("tool", shown(t.Name)), slog.String("status", string(t.Status)), slog.String("code", codeOf(t.Failure)), slog.String("error", m.message(t.Failure)))
		}
	}
	attrs := []slog.Attr{
		slog.Float64("duration_ms", float64(e.Ended.Sub(e.Started).Microseconds())/1000),
		slog.Int64("input_tokens", e.Usage.Input),
		slog.Int64("output_tokens", e.Usage.Output),
		slog.Int("tool_calls", len(e.Tools)),
		slog.Int("state_changes", e.State.Changes),
	}
	if e.Failure != nil {
		log(slog.LevelError, "turn failed", c.turn, append(attrs, slog.String("code", string(e.Failure.Code)), slog.String("error", m.message(e.Failure)))...)
		return
	}
	log(slog.LevelInfo, "turn completed", c.turn, attrs...)
}

// nth returns a part's span context, or the turn's if the part has none.
func nth(list []trace.SpanContext, n int, otherwise trace.SpanContext) trace.SpanContext {
	if n < len(list) {
		return list[n]
	}
	return otherwise
}

func codeOf(f *turn.Failure) string {
	if f == nil {
		return ""
	}
	return string(f.Code)
}

// message returns as much of a failure as may be sent.
func (m *Emitter) message(f *turn.Failure) string {
	if f == nil {
		return ""
	}
	if m.opts.WithMessages {
		return f.Error()
	}
	return string(f.Code)
}
