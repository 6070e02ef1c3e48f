package otlp_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/agent/otlptest"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/internal/turn/otlp"
	"github.com/tgad/tgad/schemas/tga"
)

// variables are all variables that the environment of the test itself could set.
var variables = []string{
	"OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER",
	"OTEL_TRACES_SAMPLER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
	"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
	"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
	"OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TIMEOUT",
}

// environment sets those variables and empties the others.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, v := range variables {
		t.Setenv(v, set[v])
	}
}

// warnings collects warnings.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}

var id = tga.ID{0x01, 0x9b, 6: 0x70, 8: 0x80, 15: 1}

// tell reports one turn.
func tell(t *testing.T, p *otlp.Providers) {
	t.Helper()
	m, err := emit.New(emit.Options{Tracer: p.Tracer, Meter: p.Meter})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := m.Emit(t.Context(), &turn.Emission{
		Agent: &turn.Agent{Name: "a"}, InvocationID: id, InteractionID: id, Started: now, Ended: now, First: true, Last: true,
	}); err != nil {
		t.Error(err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNothingSetIsNothingStarted: no provider and no goroutine, whatever else is set.
func TestNothingSetIsNothingStarted(t *testing.T) {
	before := goleak.IgnoreCurrent()
	for _, set := range []map[string]string{
		nil,
		{"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_HEADERS": "a=b", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
	} {
		environment(t, set)
		var w warnings
		p := otlp.FromEnvironment(t.Context(), otlp.Options{Warn: w.add})
		if p != nil || w.text() != "" {
			t.Errorf("%v: %+v, warned %q", set, p, w.text())
		}
		p.Close(t.Context())
		if err := goleak.Find(before); err != nil {
			t.Errorf("%v: %v", set, err)
		}
	}
}

// TestSettings: each signal goes where the environment says, with its headers, or is not sent,
// with a warning that names the variable and contains no header.
func TestSettings(t *testing.T) {
	const all, base = "/v1/metrics /v1/traces", "OTEL_EXPORTER_OTLP_"
	for _, c := range []struct {
		name  string
		set   map[string]string // URL stands for the collector's address
		paths string
		warns string
	}{
		{"both", map[string]string{base + "ENDPOINT": "URL"}, all, ""},
		{"slash at the end", map[string]string{base + "ENDPOINT": "URL/"}, all, ""},
		{"protocol", map[string]string{base + "ENDPOINT": "URL", base + "PROTOCOL": "http/protobuf"}, all, ""},
		{"gzip", map[string]string{base + "ENDPOINT": "URL", base + "COMPRESSION": "gzip"}, all, ""},
		{"spans alone", map[string]string{base + "TRACES_ENDPOINT": "URL/v1/traces"}, "/v1/traces", ""},
		{"metrics alone", map[string]string{base + "METRICS_ENDPOINT": "URL/v1/metrics"}, "/v1/metrics", ""},
		{"no metrics", map[string]string{base + "ENDPOINT": "URL", "OTEL_METRICS_EXPORTER": "none"}, "/v1/traces", ""},
		{"sampled out", map[string]string{base + "ENDPOINT": "URL", "OTEL_TRACES_SAMPLER": "always_off"}, "/v1/metrics", ""},
		{"its own wins", map[string]string{base + "ENDPOINT": "ftp://x", base + "TRACES_ENDPOINT": "URL/v1/traces", "OTEL_METRICS_EXPORTER": "none"}, "/v1/traces", ""},
		{"grpc", map[string]string{base + "ENDPOINT": "URL", base + "PROTOCOL": "grpc"}, "", base + "PROTOCOL is \"grpc\""},
		{"grpc for spans", map[string]string{base + "ENDPOINT": "URL", base + "TRACES_PROTOCOL": "grpc"}, "/v1/metrics", base + "TRACES_PROTOCOL is \"grpc\""},
		{"json", map[string]string{base + "ENDPOINT": "URL", base + "PROTOCOL": "http/json"}, "", "only http/protobuf is there"},
		{"another exporter", map[string]string{base + "ENDPOINT": "URL", "OTEL_TRACES_EXPORTER": "zipkin"}, "/v1/metrics", "OTEL_TRACES_EXPORTER is \"zipkin\""},
		{"no URL", map[string]string{base + "ENDPOINT": "localhost:4318"}, "", base + "ENDPOINT is no http or https URL"},
		{"bad headers", map[string]string{base + "ENDPOINT": "URL", base + "HEADERS": "secret"}, "", base + "HEADERS is no list"},
		{"bad resource", map[string]string{base + "ENDPOINT": "URL", "OTEL_RESOURCE_ATTRIBUTES": "x"}, all, "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(c.name, func(t *testing.T) {
			collector := otlptest.Start(false)
			defer collector.Close()
			set := map[string]string{base + "HEADERS": "authorization=Bearer%20t,x-tenant=acme"}
			for name, v := range c.set {
				set[name] = strings.Replace(v, "URL", collector.URL, 1)
			}
			environment(t, set)
			var w warnings
			p := otlp.FromEnvironment(t.Context(), otlp.Options{Warn: w.add})
			if p != nil {
				tell(t, p)
			}
			p.Close(t.Context())
			var paths []string
			for _, r := range collector.Requests() {
				paths = append(paths, r.Path)
				if r.Header.Get("Authorization") != "Bearer t" || r.Header.Get("X-Tenant") != "acme" {
					t.Errorf("headers %v", r.Header)
				}
			}
			slices.Sort(paths)
			if got := strings.Join(paths, " "); got != c.paths || len(collector.Bad()) > 0 {
				t.Errorf("came to %q, want %q; unreadable %v", got, c.paths, collector.Bad())
			}
			if got := w.text(); !strings.Contains(got, c.warns) || c.warns == "" && got != "" || strings.Contains(got, "secret") {
				t.Errorf("warned %q, want %q", got, c.warns)
			}
		})
	}
}

// TestResource: the environment names the sender; by default it is the program. Ids are those of
// the turn.
func TestResource(t *testing.T) {
	for _, c := range []struct{ service, attributes, want string }{
		{"", "", "tgad"}, {"desk", "", "desk"}, {"", "service.name=from,a=b", "from"}, {"desk", "service.name=from,a=b", "desk"},
	} {
		collector := otlptest.Start(false)
		environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_SERVICE_NAME": c.service, "OTEL_RESOURCE_ATTRIBUTES": c.attributes})
		p := otlp.FromEnvironment(t.Context(), otlp.Options{})
		tell(t, p)
		p.Close(t.Context())
		got, points := collector.Spans("ossa.agent.turn"), collector.Points("ossa.agent.turns")
		if len(got) != 1 || got[0].Resource["service.name"] != c.want || len(points) != 1 || points[0].Resource["service.name"] != c.want {
			t.Errorf("%+v: spans %v, points %v", c, got, points)
		} else if tga.ID(got[0].TraceId) != id {
			t.Errorf("trace %x, want the invocation's id", got[0].TraceId)
		} else if c.attributes != "" && got[0].Resource["a"] != "b" {
			t.Errorf("%+v: %v", c, got[0].Resource)
		}
		collector.Close()
	}
}

// TestHangingCollectorIsNotWaitedForLonger than the bound, although a request may take an hour.
// After that nothing is left running.
func TestHangingCollectorIsNotWaitedForLonger(t *testing.T) {
	before := goleak.IgnoreCurrent()
	collector := otlptest.Start(true)
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "3600000"})
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "3600000")
	var w warnings
	p := otlp.FromEnvironment(t.Context(), otlp.Options{Warn: w.add})
	tell(t, p)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close(context.Background())
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("it is waited for")
	}
	if len(collector.Requests()) != 2 {
		t.Errorf("%v came in, want spans and metrics", collector.Requests())
	}
	if got := w.text(); strings.Count(got, "spans are lost") != 1 || strings.Count(got, "metrics are lost") != 1 || strings.Count(got, "\n") != 1 {
		t.Errorf("warned %q", got)
	}
	for range 2 {
		select {
		case <-collector.Gone():
		case <-time.After(time.Minute):
			t.Fatal("a request is still under way")
		}
	}
	collector.Close()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// TestDeadCollectorIsWarnedOfOnce, however much there is to send.
func TestDeadCollectorIsWarnedOfOnce(t *testing.T) {
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	var w warnings
	p := otlp.FromEnvironment(t.Context(), otlp.Options{Warn: w.add})
	for range 3 {
		tell(t, p)
	}
	p.Close(t.Context())
	if got := w.text(); strings.Count(got, "spans are not sent") != 1 || strings.Count(got, "metrics are not sent") != 1 {
		t.Errorf("warned %q", got)
	}
}
