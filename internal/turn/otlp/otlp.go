// Package otlp sends the telemetry of package emit to an OpenTelemetry collector, if the standard
// environment variables ask for it (OpenTelemetry 1.x, OTLP exporter configuration).
//
// # Invariants
//
//	silent   nothing set: no provider, no goroutine, no connection  [FromEnvironment] TestNothingSetIsNothingStarted
//	harmless a wrong setting or a dead collector is a warning       [FromEnvironment] TestSettings
//	bounded  the end takes no longer than FlushTimeout              [Providers.Close] TestHangingCollectorIsNotWaitedForLonger
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tgad/tgad/internal/turn/emit"
)

// FlushTimeout bounds how long [Providers.Close] waits for a collector.
const FlushTimeout = 3 * time.Second

// protobuf is the only supported protocol.
const protobuf = "http/protobuf"

// Options are the settings that the environment does not have.
type Options struct {
	// Service is the service.name if neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES gives
	// one; "" = tgad.
	Service string
	// Metrics returns more metrics, if the environment asks for metrics; nil means no more.
	Metrics func() prometheus.Gatherer
	// Warn is called with what keeps telemetry from being sent, never with the value of a header.
	// Any goroutine may call it; nil discards.
	Warn func(text string)
}

// Providers send spans and metrics to a collector. A nil *Providers sends nothing.
type Providers struct {
	// Tracer and Meter are for [emit.Options]; nil if the environment does not ask for that
	// signal.
	Tracer trace.TracerProvider
	Meter  metric.MeterProvider

	warn    func(string)
	closing atomic.Bool
	traces  *sdktrace.TracerProvider
	meters  *sdkmetric.MeterProvider
	spans   *otlptrace.Exporter
}

// FromEnvironment makes the providers that the environment asks for, nil if it asks for none. A
// signal is sent if OTEL_EXPORTER_OTLP_ENDPOINT or the signal's own variable of that kind is set,
// unless OTEL_SDK_DISABLED is true or OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER is none.
// Headers, certificates, compression, time-outs, batches, intervals, sampler and resource come
// from the environment too.
//
// A setting that cannot be followed (another protocol, an invalid address) turns its signal off,
// with a warning: telemetry fails nothing else. A collector is contacted only when there is
// something to send.
func FromEnvironment(ctx context.Context, o Options) *Providers {
	p := &Providers{warn: o.Warn}
	if p.warn == nil {
		p.warn = func(string) {}
	}
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil
	}
	spans, metrics := p.wanted("TRACES", "spans"), p.wanted("METRICS", "metrics")
	if !spans && !metrics {
		return nil
	}
	res := p.resource(ctx, o.Service)
	if spans {
		p.sendSpans(ctx, res)
	}
	if metrics {
		p.sendMetrics(ctx, res, o.Metrics)
	}
	if p.Tracer == nil && p.Meter == nil {
		return nil
	}
	return p
}

// wanted says whether a signal is asked for and can be sent. For a setting that they cannot use,
// the exporters would take a default, which is a collector that nobody named.
func (p *Providers) wanted(signal, what string) bool {
	endpoint, from := setting(signal, "ENDPOINT")
	if endpoint == "" {
		return false
	}
	switch by := strings.TrimSpace(os.Getenv("OTEL_" + signal + "_EXPORTER")); by {
	case "", "otlp":
	case "none":
		return false
	default:
		p.warn(fmt.Sprintf("%s are not sent: OTEL_%s_EXPORTER is %.40q, and only otlp is there", what, signal, by))
		return false
	}
	if protocol, from := setting(signal, "PROTOCOL"); protocol != "" && protocol != protobuf {
		p.warn(fmt.Sprintf("%s are not sent: %s is %.40q, and only %s is there", what, from, protocol, protobuf))
		return false
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		p.warn(fmt.Sprintf("%s are not sent: %s is no http or https URL", what, from))
		return false
	}
	if headers, from := setting(signal, "HEADERS"); !usable(headers) {
		p.warn(fmt.Sprintf("%s are not sent: %s is no list of name=value", what, from))
		return false
	}
	return true
}

// setting returns a setting of a signal, and the variable that has it: the signal's own variable,
// else the one for all signals.
func setting(signal, name string) (value, from string) {
	for _, from = range []string{"OTEL_EXPORTER_OTLP_" + signal + "_" + name, "OTEL_EXPORTER_OTLP_" + name} {
		if value = strings.TrimSpace(os.Getenv(from)); value != "" {
			return value, from
		}
	}
	return "", ""
}

// usable says that headers can be parsed. The exporters print headers that cannot be parsed, and
// headers contain credentials.
func usable(headers string) bool {
	if headers == "" {
		return true
	}
	for _, h := range strings.Split(headers, ",") {
		name, value, ok := strings.Cut(h, "=")
		if _, err := url.PathUnescape(value); !ok || strings.TrimSpace(name) == "" || err != nil {
			return false
		}
	}
	return true
}

func (p *Providers) resource(ctx context.Context, service string) *resource.Resource {
	service = cmp.Or(service, "tgad")
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		p.warn("OTEL_RESOURCE_ATTRIBUTES can't be used as it is: " + err.Error())
	}
	return res
}

func (p *Providers) sendSpans(ctx context.Context, res *resource.Resource) {
	// Do not retry: what a collector refuses is lost, and Close is not delayed.
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		p.warn("spans are not sent: " + err.Error())
		return
	}
	p.spans = exporter
	p.traces = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&spans{SpanExporter: exporter, tell: p.teller("spans")}),
		sdktrace.WithIDGenerator(emit.IDs{}), sdktrace.WithResource(res))
	p.Tracer = p.traces
}

func (p *Providers) sendMetrics(ctx context.Context, res *resource.Resource, more func() prometheus.Gatherer) {
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))
	if err != nil {
		p.warn("metrics are not sent: " + err.Error())
		return
	}
	tell := p.teller("metrics")
	var with []sdkmetric.PeriodicReaderOption
	if more != nil {
		with = append(with, sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(gathered{more(), tell}))))
	}
	reader := sdkmetric.NewPeriodicReader(&metrics{Exporter: exporter, tell: tell}, with...)
	p.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	p.Meter = p.meters
}

// Close sends what is left, until ctx ends and for at most FlushTimeout, and ends the providers.
// Telemetry that is not sent by then is lost, with a warning.
func (p *Providers) Close(ctx context.Context) {
	if p == nil {
		return
	}
	p.closing.Store(true)
	ctx, cancel := context.WithTimeout(ctx, FlushTimeout)
	defer cancel()
	var wg sync.WaitGroup
	if p.traces != nil {
		wg.Go(func() {
			p.lost(ctx, "spans", p.traces.Shutdown(ctx))
			// If the shutdown did not end in time, a request is still under way: cut it off. A
			// second shutdown of the exporter does nothing, and its error says nothing new.
			_ = p.spans.Shutdown(ctx)
		})
	}
	if p.meters != nil {
		wg.Go(func() { p.lost(ctx, "metrics", p.meters.Shutdown(ctx)) })
	}
	wg.Wait()
}

func (p *Providers) lost(ctx context.Context, what string, err error) {
	switch {
	case ctx.Err() != nil:
		p.warn(what + " are lost: the collector does not answer in time")
	case err != nil:
		p.warn(what + " are lost: " + err.Error())
	}
}
