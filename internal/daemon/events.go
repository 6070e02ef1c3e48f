package daemon

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/runtime"
)

// maxEventTools limits the tools that have counts of their own, because a caller may name any
// number of tools. The events of all other tools are counted together, with empty names.
const maxEventTools = 500

// events counts the runtime's events: refused calls, and doubts that begin and end.
type events struct {
	counter *prometheus.CounterVec

	mu    sync.Mutex
	tools map[[2]string]bool // server and tool that have a count of their own
}

func newEvents() *events {
	return &events{
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tgad_call_events_total", Help: "Calls refused or not sent, sends in doubt, and doubts that ended, by tool and code.",
		}, []string{"event", "server", "tool", "code"}),
		tools: map[[2]string]bool{},
	}
}

func (v *events) count(e runtime.Event) {
	server, tool := v.named(e.Server, e.Tool)
	v.counter.WithLabelValues(string(e.Kind), server, tool, string(e.Code)).Inc()
}

func (v *events) named(server, tool string) (string, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name := [2]string{server, tool}
	switch {
	case v.tools[name]:
	case len(v.tools) < maxEventTools:
		v.tools[name] = true
	default:
		return "", ""
	}
	return server, tool
}

// observe is [runtime.Options.Observe].
func (d *Daemon) observe(e runtime.Event) {
	d.events.count(e)
	switch e.Kind {
	case runtime.EventSettled:
		d.timings.doubt.Observe(e.After.Seconds())
	case runtime.EventDoubt:
		if people := d.people.service.Load(); people != nil { // nil while the daemon is being opened
			people.Hear()
		}
	}
	about := []any{"trace", e.TraceID, "server", e.Server, "tool", e.Tool, "code", string(e.Code), "attempt", e.Attempt, "cause", e.Cause}
	if e.After != 0 {
		about = append(about, "after", e.After)
	}
	if traceID, spanID := spanIDs(e.Traceparent); traceID != "" {
		about = append(about, "trace_id", traceID, "span_id", spanID)
	}
	d.log.Info("call "+string(e.Kind), about...)
}
