// Package otlptest is an OpenTelemetry collector for tests: OTLP over HTTP, protobuf.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector keeps the telemetry that it receives.
type Collector struct {
	URL string

	http *httptest.Server
	hang chan struct{} // nil: the collector answers
	gone chan struct{}

	mu       sync.Mutex
	requests []Request
	spans    []Span
	points   []Point
	bad      []error
}

// Request is one request as it came in.
type Request struct {
	Path   string
	Header http.Header
}

// Span is a span with the attributes of its resource.
type Span struct {
	*trace.Span
	Attr, Resource map[string]string
}

// Point is a point of a metric. Value is the sum of a histogram, Count its number.
type Point struct {
	Name     string
	Attr     map[string]string
	Value    float64
	Count    uint64
	Spans    []string // of exemplars: ids of traces, in hexadecimal
	Resource map[string]string
}

// Start starts a collector. A collector that hangs accepts requests and does not answer them.
func Start(hang bool) *Collector {
	c := &Collector{gone: make(chan struct{}, 1<<10)}
	if hang {
		c.hang = make(chan struct{})
	}
	c.http = httptest.NewServer(http.HandlerFunc(c.serve))
	c.URL = c.http.URL
	return c
}

// Close releases hanging requests and ends the collector.
func (c *Collector) Close() {
	if c.hang != nil {
		close(c.hang)
	}
	c.http.Close()
}

// Gone receives a value for each hanging request that its sender gave up.
func (c *Collector) Gone() <-chan struct{} { return c.gone }

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	var err error
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(r.Body)
	}
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(body)
	}
	if err == nil {
		err = c.take(r, raw)
	}
	if c.hang != nil {
		select {
		case <-c.hang:
		case <-r.Context().Done():
			c.gone <- struct{}{}
		}
	}
	if err != nil {
		c.mu.Lock()
		c.bad = append(c.bad, err)
		c.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) take(r *http.Request, raw []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, Request{r.URL.Path, r.Header.Clone()})
	if got := r.Header.Get("Content-Type"); got != "application/x-protobuf" {
		return fmt.Errorf("%s: content type %q", r.URL.Path, got)
	}
	switch r.URL.Path {
	case "/v1/traces":
		var q collecttraces.ExportTraceServiceRequest
		if err := proto.Unmarshal(raw, &q); err != nil {
			return err
		}
		for _, rs := range q.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					c.spans = append(c.spans, Span{s, text(s.Attributes), text(rs.Resource.GetAttributes())})
				}
			}
		}
		return nil
	case "/v1/metrics":
		var q collectmetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(raw, &q); err != nil {
			return err
		}
		for _, rm := range q.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					c.points = append(c.points, points(m, text(rm.Resource.GetAttributes()))...)
				}
			}
		}
		return nil
	}
	return fmt.Errorf("nothing is at %s", r.URL.Path)
}

func points(m *metrics.Metric, resource map[string]string) (out []Point) {
	for _, d := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
		out = append(out, Point{m.Name, text(d.Attributes), d.GetAsDouble() + float64(d.GetAsInt()), 1, tracesOf(d.Exemplars), resource})
	}
	for _, d := range m.GetHistogram().GetDataPoints() {
		out = append(out, Point{m.Name, text(d.Attributes), d.GetSum(), d.Count, tracesOf(d.Exemplars), resource})
	}
	for _, d := range m.GetExponentialHistogram().GetDataPoints() {
		out = append(out, Point{m.Name, text(d.Attributes), d.GetSum(), d.Count, tracesOf(d.Exemplars), resource})
	}
	return out
}

func tracesOf(exemplars []*metrics.Exemplar) (out []string) {
	for _, e := range exemplars {
		out = append(out, hex.EncodeToString(e.TraceId))
	}
	return out
}

func text(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.Key] = fmt.Sprint(v.IntValue)
		default:
			out[kv.Key] = kv.Value.String()
		}
	}
	return out
}

// Requests returns the requests so far.
func (c *Collector) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Spans returns the spans of a name, in the order in which they came.
func (c *Collector) Spans(name string) (out []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// Points returns the points of a metric, in the order in which they came.
func (c *Collector) Points(name string) (out []Point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.points {
		if p.Name == name {
			out = append(out, p)
		}
	}
	return out
}

// Bad returns the errors of requests that could not be decoded.
func (c *Collector) Bad() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bad)
}
