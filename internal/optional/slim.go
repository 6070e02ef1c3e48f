//go:build slim

package optional

import (
	"context"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/spans"
	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func without(what string) error {
	return tga.Errorf(tga.ValidationError, "this tgad was built with -tags slim, without %s: use the full one", what)
}

// Postgres, SQLite, SQLDriver, HasGRPC, GRPC, HasBucket, Bucket, Database and AddDatabase refuse. full.go says what they do without the tag.
func Postgres(string, string, sqlcheck.Config) (runtime.Verifier, error) {
	return nil, without("PostgreSQL")
}

func SQLite(string, sqlcheck.Config) (runtime.Verifier, error) { return nil, without("SQLite") }

func SQLDriver() (string, error) { return "", without("SQLite") }

func HasGRPC() error { return without("gRPC") }

func GRPC(string, GRPCOptions) (GRPCServer, error) { return nil, without("gRPC") }

func HasBucket() error { return without("a client of S3") }

func Bucket(BucketOptions) (bucket.Objects, error) { return nil, without("a client of S3") }

func Database(context.Context, string, string) (io.Closer, error) { return nil, without("SQLite") }

func AddDatabase(context.Context, *workstate.Registry, string, string) (io.Closer, error) {
	return nil, without("SQLite")
}

// Telemetry adds nothing. It warns if the environment asks for an exporter.
func Telemetry(_ context.Context, _ *emit.Options, _ func() prometheus.Gatherer, warn func(string)) (closed func(context.Context)) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
		if os.Getenv(name) != "" && warn != nil {
			warn(name + " is set, and this tgad was built with -tags slim, without an exporter: nothing is sent")
			break
		}
	}
	return func(context.Context) {}
}

// Spans makes no tracer. It warns if the environment asks for an exporter.
func Spans(ctx context.Context, _ func() spans.Options, _ func() prometheus.Gatherer, warn func(string)) (_ runtime.Tracer, closed func(context.Context)) {
	return nil, Telemetry(ctx, nil, nil, warn)
}
