package emit

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tgad/tgad/internal/turn"
)

// instruments are the metrics. Their labels are the agent, its version and the model. An id of a
// session, an interaction or an instance would make a new series for each value.
type instruments struct {
	invocations, turns, errors, tokensIn, tokensOut, toolCalls, toolErrors metric.Int64Counter

	latency metric.Float64Histogram
}

func newInstruments(p metric.MeterProvider) (*instruments, error) {
	meter := p.Meter(Scope, metric.WithSchemaURL(SchemaURL))
	i := &instruments{}
	var all []error
	for _, c := range []struct {
		to         *metric.Int64Counter
		name, what string
	}{
		{&i.invocations, metricInvocations, "Invocations of agents."},
		{&i.turns, metricTurns, "Turns that ended."},
		{&i.errors, metricErrors, "Turns that failed."},
		{&i.tokensIn, metricTokensIn, "Tokens given to models."},
		{&i.tokensOut, metricTokensOut, "Tokens made by models."},
		{&i.toolCalls, metricToolCalls, "Calls of tools."},
		{&i.toolErrors, metricToolErrors, "Calls of tools that failed or timed out."},
	} {
		var err error
		*c.to, err = meter.Int64Counter(c.name, metric.WithUnit("1"), metric.WithDescription(c.what))
		all = append(all, err)
	}
	var err error
	i.latency, err = meter.Float64Histogram(metricLatency, metric.WithUnit("ms"), metric.WithDescription("Time of a turn."))
	return i, errors.Join(append(all, err)...)
}

func (i *instruments) record(ctx context.Context, e *turn.Emission) {
	labels := func(model string) metric.MeasurementOption {
		return metric.WithAttributes(
			attribute.String(attrAgentID, agentID(e.Agent)),
			attribute.String(attrAgentVersion, agentVersion(e.Agent)),
			attribute.String(attrModel, model))
	}
	own := labels(e.Agent.Model.Model)
	if e.First {
		i.invocations.Add(ctx, 1, own)
	}
	i.turns.Add(ctx, 1, own)
	if e.Failure != nil {
		i.errors.Add(ctx, 1, own)
	}
	i.latency.Record(ctx, float64(e.Ended.Sub(e.Started).Microseconds())/1000, own)
	for _, inf := range e.Inferences {
		// Count under the model that was asked: the first model does not pay for its fallback.
		asked := labels(inf.Model)
		i.tokensIn.Add(ctx, inf.Usage.Input, asked)
		i.tokensOut.Add(ctx, inf.Usage.Output, asked)
	}
	for _, t := range e.Tools {
		i.toolCalls.Add(ctx, 1, own)
		if t.Status != turn.ToolSucceeded {
			i.toolErrors.Add(ctx, 1, own)
		}
	}
}
