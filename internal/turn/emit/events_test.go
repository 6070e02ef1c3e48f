package emit_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/emit"
)

func decode(t *testing.T, e emit.Event) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal(e.JSON, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEventsAreCloudEvents: checks the attributes that CloudEvents 1.0 requires, their form, and
// the order of events.
func TestEventsAreCloudEvents(t *testing.T) {
	o := everything(t, nil)
	one, two := chain()
	o.emit(t, one, two)
	o.close(t)
	want := []struct {
		kind string
		at   int
	}{
		{"agent.turn.started", 0},
		{"tool.called", 510}, {"tool.completed", 600}, {"tool.called", 600}, {"tool.failed", 800},
		{"delegation.started", 810}, {"delegation.completed", 850},
		{"state.changed", 890},
		{"agent.turn.completed", 900},
	}
	if len(o.sink.events) != 2*len(want) {
		t.Fatalf("%d events", len(o.sink.events))
	}
	ids := map[string]bool{}
	name := regexp.MustCompile(`^[a-z0-9]+$`)
	for i, e := range o.sink.events {
		m := decode(t, e)
		for key, value := range m {
			if !name.MatchString(key) {
				t.Errorf("the attribute %q has a name that CloudEvents does not allow", key)
			}
			if s, ok := value.(string); key != "data" && (!ok || s == "") {
				t.Errorf("the attribute %q is %v", key, value)
			}
		}
		if m["specversion"] != "1.0" || m["source"] != "/agents/refund-desk" || m["datacontenttype"] != "application/json" || m["id"] != e.ID || m["type"] != e.Type {
			t.Errorf("event %d: %s", i, e.JSON)
		}
		if ids[e.ID] {
			t.Errorf("two events have the id %s", e.ID)
		}
		ids[e.ID] = true
		when, err := time.Parse(time.RFC3339, m["time"].(string))
		if err != nil || !strings.HasSuffix(m["time"].(string), "Z") {
			t.Errorf("event %d is of %v: %v", i, m["time"], err)
		}
		if i < len(want) {
			if e.Type != "io.ossa."+want[i].kind || !when.Equal(at(want[i].at)) {
				t.Errorf("event %d is %s at %v, want %v", i, e.Type, when, want[i])
			}
		}
	}
	if last := o.sink.events[17]; last.Type != "io.ossa.agent.turn.failed" {
		t.Errorf("the last event is %s", last.Type)
	}
}

// TestEventsNameTheirSpan: traceparent is the turn's span, or that of the tool.
func TestEventsNameTheirSpan(t *testing.T) {
	o := everything(t, nil)
	o.emit(t, full())
	o.close(t)
	for i, span := range map[int]string{
		0: o.span(t, "ossa.agent.turn", 0).SpanContext.SpanID().String(),
		4: o.span(t, "ossa.tool.call", 1).SpanContext.SpanID().String(),
		5: o.span(t, "ossa.delegation.handoff", 0).SpanContext.SpanID().String(),
	} {
		m := decode(t, o.sink.events[i])
		if parent, _ := m["traceparent"].(string); !strings.Contains(parent, "-"+span+"-01") {
			t.Errorf("event %d: traceparent %v, want span %s", i, m["traceparent"], span)
		}
	}
	// Without spans it is the caller's.
	sink := &memory{}
	m, err := emit.New(emit.Options{Sinks: []emit.Sink{sink}, Source: "urn:desk"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Emit(t.Context(), full()); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := decode(t, sink.events[0])
	if got["traceparent"] != full().SpanContext.Traceparent || got["tracestate"] != "vendor=1" || got["source"] != "urn:desk" {
		t.Errorf("without spans: %v", got)
	}
}

// TestEventsSayWhatBecameOfThings checks the data of each type.
func TestEventsSayWhatBecameOfThings(t *testing.T) {
	o := everything(t, nil)
	e := full()
	e.Parent = &turn.Parent{AgentID: "boss", InteractionID: id(9)}
	o.emit(t, e)
	o.close(t)
	at := func(i int, path ...string) any {
		var v any = decode(t, o.sink.events[i])["data"]
		for _, p := range path {
			m, ok := v.(map[string]any)
			if !ok {
				return nil
			}
			v = m[p]
		}
		return v
	}
	for i := range o.sink.events {
		for key, want := range map[string]any{"agent_id": "refund-desk", "agent_version": "2.4.1", "instance_id": "instance-1", "session_id": "session-1", "interaction_id": id(2).String(), "turn_number": 3.0} {
			if at(i, key) != want {
				t.Errorf("event %d: %s is %v", i, key, at(i, key))
			}
		}
	}
	for _, c := range []struct {
		i    int
		path string
		want any
	}{
		{0, "parent.agent_id", "boss"},
		{1, "tool.call_id", "call_1"},
		{1, "tool.status", nil},
		{2, "tool.status", "success"},
		{2, "tool.duration_ms", 90.0},
		{2, "tool.trace_id", id(12).String()},
		{4, "tool.status", "timeout"},
		{4, "tool.retries", 2.0},
		{4, "error.code", "TOOL_TIMEOUT"},
		{6, "delegation.target_agent", "support"},
		{6, "delegation.status", "success"},
		{6, "delegation.interaction_id", id(14).String()},
		{7, "state.transaction_id", "tx-1"},
		{7, "state.changes", 2.0},
		{7, "state.isolation_level", "serializable"},
		{8, "turn.usage.total_tokens", 120.0},
		{8, "turn.duration_ms", 900.0},
		{8, "turn.tool_calls", 2.0},
	} {
		if got := at(c.i, strings.Split(c.path, ".")...); got != c.want {
			t.Errorf("event %d: %s is %v, want %v", c.i, c.path, got, c.want)
		}
	}
}

// TestRepeatedEmissionHasTheSameIDs: if another process reports a turn again, it makes the same
// events and, with IDs, the same spans.
func TestRepeatedEmissionHasTheSameIDs(t *testing.T) {
	var events, spans [2][]string
	for i := range 2 {
		o := everything(t, nil)
		e := full()
		e.Delegations = append(e.Delegations, e.Delegations[0])
		o.emit(t, e)
		o.close(t)
		for _, ev := range o.sink.events {
			events[i] = append(events[i], string(ev.JSON))
		}
		for _, s := range o.spans.GetSpans() {
			spans[i] = append(spans[i], s.Name+s.SpanContext.TraceID().String()+s.SpanContext.SpanID().String())
		}
	}
	if !slices.Equal(events[0], events[1]) {
		t.Errorf("events\n%s\nand\n%s", events[0], events[1])
	}
	if !slices.Equal(spans[0], spans[1]) {
		t.Errorf("spans\n%s\nand\n%s", spans[0], spans[1])
	}
	slices.Sort(spans[0])
	if len(slices.Compact(spans[0])) != len(spans[1]) {
		t.Error("two spans have the same ids")
	}
}

// TestNamesAreCutShort: a name that a model made up does not fill the outputs.
func TestNamesAreCutShort(t *testing.T) {
	o := everything(t, nil)
	e := full()
	e.Tools[0].Name, e.Tools[0].Remote, e.Tools[0].CallID = strings.Repeat("é", 1<<16), "", strings.Repeat("x", 257)
	e.Tools[1].CallID = strings.Repeat("y", 256)
	o.emit(t, e)
	o.close(t)
	for _, ev := range o.sink.events {
		if len(ev.JSON) > 4096 {
			t.Errorf("an event of %d bytes", len(ev.JSON))
		}
	}
	if one := string(o.sink.events[1].JSON); !strings.Contains(one, `"`+strings.Repeat("x", 256)+`…"`) {
		t.Error("257 bytes are not cut to 256")
	}
	if two := string(o.sink.events[3].JSON); !strings.Contains(two, `"`+strings.Repeat("y", 256)+`"`) {
		t.Error("256 bytes are cut")
	}
	if got := attrs(o.span(t, "ossa.tool.call", 0))["ossa.tool.name"]; len(got) > 260 {
		t.Errorf("a tool's name of %d bytes", len(got))
	}
}
