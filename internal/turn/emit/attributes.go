package emit

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn"
)

// mostName bounds a name that a model or a provider made up.
const mostName = 256

func shown(s string) string {
	if len(s) <= mostName {
		return s
	}
	return clip.Bytes(s, mostName) + "…"
}

func agentID(a *turn.Agent) string {
	return cmp.Or(a.ID, a.Name)
}

func agentVersion(a *turn.Agent) string {
	return cmp.Or(a.Version, "0.0.0")
}

// identity returns the attributes that every span has.
func identity(e *turn.Emission) []attribute.KeyValue {
	kv := []attribute.KeyValue{
		attribute.String(attrSystem, system),
		attribute.String(attrAgentID, agentID(e.Agent)),
		attribute.String(attrAgentName, e.Agent.Name),
		attribute.String(attrAgentVersion, agentVersion(e.Agent)),
		attribute.String(attrInstanceID, e.InstanceID),
		attribute.String(attrSessionID, e.SessionID),
		attribute.String(attrInteractionID, e.InteractionID.String()),
		attribute.Int64(attrTurnNumber, int64(e.TurnNumber)),
	}
	if e.Parent != nil {
		kv = append(kv,
			attribute.String(attrParentAgent, e.Parent.AgentID),
			attribute.String(attrParentTurn, e.Parent.InteractionID.String()))
	}
	return kv
}

func turnAttributes(e *turn.Emission) []attribute.KeyValue {
	return append(usageAttributes(e.Usage), attribute.String(attrModel, e.Agent.Model.Model))
}

func usageAttributes(u turn.Usage) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.Int64(attrInputTokens, u.Input),
		attribute.Int64(attrOutputTokens, u.Output),
		attribute.Int64(attrTotalTokens, u.Total),
	}
}

func chatAttributes(i turn.Inference) []attribute.KeyValue {
	kv := append(usageAttributes(i.Usage),
		attribute.String(attrModel, i.Model),
		attribute.String(attrCall, i.TraceID.String()),
		attribute.Int64(attrRetries, max(int64(i.Attempt)-1, 0)))
	p := i.Parameters
	if p.MaxTokens != nil {
		kv = append(kv, attribute.Int64(attrMaxTokens, *p.MaxTokens))
	}
	if p.Temperature != nil {
		kv = append(kv, attribute.Float64(attrTemperature, *p.Temperature))
	}
	if p.TopP != nil {
		kv = append(kv, attribute.Float64(attrTopP, *p.TopP))
	}
	for name, v := range map[string]string{
		attrResponseID: i.ResponseID, attrResponseModel: i.Answered, attrFinishReason: string(i.Finish),
	} {
		if v != "" {
			kv = append(kv, attribute.String(name, shown(v)))
		}
	}
	return kv
}

func toolAttributes(t turn.ToolExecution) []attribute.KeyValue {
	kv := []attribute.KeyValue{
		attribute.String(attrToolName, shown(t.Name)),
		attribute.String(attrToolType, string(t.Transport)),
		attribute.String(attrToolSource, toolSource(t)),
		attribute.Int(attrRetries, t.Retries),
	}
	if t.Remote != "" {
		kv = append(kv, attribute.String(attrCapability, t.Remote))
	} else {
		kv = append(kv, attribute.String(attrCapability, shown(t.Name)))
	}
	if !t.TraceID.IsZero() {
		kv = append(kv, attribute.String(attrCall, t.TraceID.String()))
	}
	return kv
}

// toolSource returns where a tool comes from as transport://server/tool, or only how it was found
// if no server is known.
func toolSource(t turn.ToolExecution) string {
	if t.Server == "" || t.Transport == "" {
		return string(t.Source)
	}
	remote := cmp.Or(t.Remote, t.Name)
	return string(t.Transport) + "://" + t.Server + "/" + shown(remote)
}

func (m *Emitter) stateAttributes(e *turn.Emission) []attribute.KeyValue {
	kv := []attribute.KeyValue{
		attribute.String(attrStateMode, string(e.State.Mode)),
		attribute.String(attrStateStorage, m.opts.Storage),
	}
	if e.State.TTL > 0 {
		kv = append(kv, attribute.Int64(attrStateTTL, int64(e.State.TTL.Seconds())))
	}
	return kv
}
