package emit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/internal/turn"
)

// Event is a CloudEvent 1.0.
type Event struct {
	ID   string
	Type string
	JSON []byte // structured mode, one line without its end
}

// envelope is the structured form (CloudEvents 1.0, JSON format). Its members are in the order in
// which a reader needs them.
type envelope struct {
	SpecVersion string `json:"specversion"`
	ID          string `json:"id"`
	Source      string `json:"source"`
	Type        string `json:"type"`
	Subject     string `json:"subject"`
	Time        string `json:"time"`
	ContentType string `json:"datacontenttype"`
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
	Data        data   `json:"data"`
}

// data is the content of events: the turn's identity, and what the event's type requires.
type data struct {
	AgentID       string       `json:"agent_id"`
	AgentVersion  string       `json:"agent_version"`
	InstanceID    string       `json:"instance_id"`
	SessionID     string       `json:"session_id"`
	InteractionID string       `json:"interaction_id"`
	TurnNumber    uint32       `json:"turn_number"`
	Parent        *turn.Parent `json:"parent,omitempty"`

	Turn       *turnData       `json:"turn,omitempty"`
	Tool       *toolData       `json:"tool,omitempty"`
	State      *stateData      `json:"state,omitempty"`
	Delegation *delegationData `json:"delegation,omitempty"`
	Error      *errorData      `json:"error,omitempty"`
}

type turnData struct {
	Model      string      `json:"model"`
	Usage      turn.Usage  `json:"usage"`
	ToolCalls  int         `json:"tool_calls"`
	DurationMS float64     `json:"duration_ms"`
	Phases     []phaseData `json:"phases"`
}

type phaseData struct {
	Phase      turn.Phase `json:"phase"`
	DurationMS float64    `json:"duration_ms"`
}

type toolData struct {
	CallID     string          `json:"call_id"`
	Name       string          `json:"tool_name"`
	TraceID    string          `json:"trace_id,omitempty"`
	Status     turn.ToolStatus `json:"status,omitempty"`
	Retries    int             `json:"retries"`
	DurationMS float64         `json:"duration_ms,omitempty"`
}

type stateData struct {
	Mode        string `json:"mode"`
	Isolation   string `json:"isolation_level"`
	Transaction string `json:"transaction_id"`
	Changes     int    `json:"changes"`
}

type delegationData struct {
	Type          turn.DelegationType `json:"type"`
	Target        string              `json:"target_agent"`
	InteractionID string              `json:"interaction_id"`
	Status        string              `json:"status,omitempty"`
	DurationMS    float64             `json:"duration_ms,omitempty"`
}

type errorData struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

// eventWriter makes the events of one turn.
type eventWriter struct {
	m     *Emitter
	e     *turn.Emission
	count map[string]int
	out   []Event
	err   error
}

// events returns the events of a turn, in the order in which they happened, as far as the turn
// knows. An event's id consists of the interaction, the event's type and its number among the
// events of that type: the same emission makes the same ids.
func (m *Emitter) events(e *turn.Emission, c contexts) ([]Event, error) {
	w := &eventWriter{m: m, e: e, count: map[string]int{}}
	w.add(eventTurnStarted, e.Started, c.turn, data{})
	for n, t := range e.Tools {
		sc := nth(c.tools, n, c.turn)
		d := toolData{CallID: shown(t.CallID), Name: shown(t.Name), Retries: t.Retries}
		if !t.TraceID.IsZero() {
			d.TraceID = t.TraceID.String()
		}
		called := d
		called.Retries = 0
		w.add(eventToolCalled, t.Started, sc, data{Tool: &called})
		d.Status, d.DurationMS = t.Status, millis(t.Ended.Sub(t.Started))
		if t.Status == turn.ToolSucceeded {
			w.add(eventToolCompleted, t.Ended, sc, data{Tool: &d})
		} else {
			w.add(eventToolFailed, t.Ended, sc, data{Tool: &d, Error: w.failure(t.Failure)})
		}
	}
	for n, g := range e.Delegations {
		sc := nth(c.delegations, n, c.turn)
		d := delegationData{Type: g.Type, Target: g.Target, InteractionID: g.InteractionID.String()}
		started := d
		w.add(eventDelegationStarted, g.Started, sc, data{Delegation: &started})
		d.Status, d.DurationMS = "success", millis(g.Ended.Sub(g.Started))
		if g.Failure != nil {
			d.Status = "error"
		}
		w.add(eventDelegationCompleted, g.Ended, sc, data{Delegation: &d, Error: w.failure(g.Failure)})
	}
	if e.State.Transaction != "" && e.State.Changes > 0 {
		w.add(eventStateChanged, e.State.SaveEnded, c.turn, data{State: &stateData{
			Mode: string(e.State.Mode), Isolation: string(e.State.Isolation), Transaction: e.State.Transaction, Changes: e.State.Changes,
		}})
	}
	t := &turnData{Model: e.Agent.Model.Model, Usage: e.Usage, ToolCalls: len(e.Tools), DurationMS: millis(e.Ended.Sub(e.Started)), Phases: []phaseData{}}
	for _, p := range e.Phases {
		t.Phases = append(t.Phases, phaseData{p.Phase, millis(p.Ended.Sub(p.Started))})
	}
	if e.Failure != nil {
		w.add(eventTurnFailed, e.Ended, c.turn, data{Turn: t, Error: w.failure(e.Failure)})
	} else {
		w.add(eventTurnCompleted, e.Ended, c.turn, data{Turn: t})
	}
	return w.out, w.err
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (w *eventWriter) failure(f *turn.Failure) *errorData {
	if f == nil {
		return nil
	}
	d := &errorData{Code: string(f.Code)}
	if w.m.opts.WithMessages {
		d.Message = f.Message
	}
	return d
}

func (w *eventWriter) add(kind string, at time.Time, sc trace.SpanContext, d data) {
	e := w.e
	d.AgentID, d.AgentVersion = agentID(e.Agent), agentVersion(e.Agent)
	d.InstanceID, d.SessionID, d.InteractionID = e.InstanceID, e.SessionID, e.InteractionID.String()
	d.TurnNumber, d.Parent = e.TurnNumber, e.Parent
	env := envelope{
		SpecVersion: "1.0",
		ID:          fmt.Sprintf("%s.%s.%d", e.InteractionID, strings.TrimPrefix(kind, "io.ossa."), w.count[kind]),
		Source:      w.m.opts.Source,
		Type:        kind,
		Subject:     e.InteractionID.String(),
		Time:        at.UTC().Format(time.RFC3339Nano),
		ContentType: "application/json",
		Data:        d,
	}
	w.count[kind]++
	if env.Source == "" {
		env.Source = "/agents/" + url.PathEscape(agentID(e.Agent))
	}
	env.Traceparent, env.Tracestate = header(e, sc)
	raw, err := json.Marshal(env)
	if err != nil {
		if w.err == nil {
			w.err = fmt.Errorf("event %s: %w", env.ID, err)
		}
		return
	}
	w.out = append(w.out, Event{ID: env.ID, Type: kind, JSON: raw})
}

// header returns the distributed tracing extension: the context of the part's span, or the
// caller's context if there are no spans.
func header(e *turn.Emission, sc trace.SpanContext) (parent, state string) {
	if !sc.IsValid() {
		sc = trace.SpanContextFromContext(incoming(context.Background(), e))
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return carrier["traceparent"], carrier["tracestate"]
}
