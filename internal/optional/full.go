//go:build !slim

package optional

import (
	"context"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/backup/s3"
	"github.com/tgad/tgad/internal/spans"
	"github.com/tgad/tgad/internal/turn/emit"
	"github.com/tgad/tgad/internal/turn/otlp"
	"github.com/tgad/tgad/internal/turn/tools/grpccall"
	"github.com/tgad/tgad/internal/verify/pgcheck"
	"github.com/tgad/tgad/internal/verify/sqlcheck"
	"github.com/tgad/tgad/internal/verify/sqlitecheck"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/workstate/sqlitefile"
)

// Postgres makes a verifier that asks a PostgreSQL server.
func Postgres(dsn, passwordFile string, c sqlcheck.Config) (runtime.Verifier, error) {
	return pgcheck.New(pgcheck.Config{DSN: dsn, PasswordFile: passwordFile, Config: c})
}

// SQLite makes a verifier that asks a SQLite database.
func SQLite(file string, c sqlcheck.Config) (runtime.Verifier, error) {
	return sqlitecheck.New(sqlitecheck.Config{File: file, Config: c})
}

// SQLDriver is the driver of package database/sql for SQLite files.
func SQLDriver() (string, error) { return "sqlite", nil }

// HasGRPC returns an error if gRPC is left out of this build.
func HasGRPC() error { return nil }

// GRPC makes a tool server of the gRPC server at an address.
func GRPC(url string, o GRPCOptions) (GRPCServer, error) {
	return grpccall.New(url, grpccall.Options{
		DescriptorSet: o.DescriptorSet, Services: o.Services, MaxAnswer: o.MaxAnswer, Logger: o.Logger,
	})
}

// HasBucket returns an error if the client of S3 is left out of this build.
func HasBucket() error { return nil }

// Bucket prepares a bucket of a service that speaks the protocol of Amazon S3.
func Bucket(o BucketOptions) (bucket.Objects, error) { return s3.Open(s3.Options(o)) }

// Database opens a SQLite database as a resource of working state.
func Database(ctx context.Context, path, scratch string) (io.Closer, error) {
	return sqlitefile.Open(ctx, path, scratch)
}

// AddDatabase opens a SQLite database and adds it to a registry, under its type.
func AddDatabase(ctx context.Context, r *workstate.Registry, path, scratch string) (io.Closer, error) {
	f, err := sqlitefile.Open(ctx, path, scratch)
	if err != nil {
		return nil, err
	}
	return f, workstate.Add(r, f)
}

// Telemetry adds to o the exporters that the OTEL_ variables of the environment ask for. It calls warn for
// each setting that it cannot follow, and leaves that out. closed sends what is left, until its ctx
// ends and for some seconds at most. more, which may be nil, returns metrics to send as well, if the
// variables ask for metrics.
func Telemetry(ctx context.Context, o *emit.Options, more func() prometheus.Gatherer, warn func(string)) (closed func(context.Context)) {
	p := otlp.FromEnvironment(ctx, otlp.Options{Metrics: more, Warn: warn})
	if p != nil {
		o.Tracer, o.Meter = p.Tracer, p.Meter
	}
	return p.Close
}

// Spans makes a tracer for the spans of calls if the OTEL_ variables of the environment ask for one, else
// nil. It calls o for the tracer's options only then. The rest is as in [Telemetry].
func Spans(ctx context.Context, o func() spans.Options, more func() prometheus.Gatherer, warn func(string)) (_ runtime.Tracer, closed func(context.Context)) {
	var by emit.Options
	closed = Telemetry(ctx, &by, more, warn)
	if by.Tracer == nil {
		return nil, closed
	}
	return spans.New(by.Tracer, o()), closed
}
