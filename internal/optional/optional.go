// Package optional is the one place where tgad links what is heavy and what many can do
// without: SQLite, PostgreSQL, gRPC, the exporters of OpenTelemetry and a client of S3, together a
// quarter of the binary. The build tag slim leaves them out:
//
//	make build TAGS=slim
//
// A slim tgad refuses a configuration that needs one of them, with VALIDATION_ERROR. It does so
// when the file is read, before anything is opened. What it can't send to a collector of
// OpenTelemetry is not sent, with a warning, as everywhere in telemetry.
package optional

import (
	"log/slog"

	"github.com/tgad/tgad/internal/turn/tools"
	"github.com/tgad/tgad/runtime"
)

// GRPCOptions are what a configuration says of a gRPC server.
type GRPCOptions struct {
	DescriptorSet string   // the path of a FileDescriptorSet; "" = server reflection
	Services      []string // those that are listed as tools; nil = all
	MaxAnswer     int      // bytes of an answer's JSON that are kept
	Logger        *slog.Logger
}

// BucketOptions say which bucket keeps a backup, and where; what is "" the environment says.
type BucketOptions struct {
	Address         string // s3://BUCKET/PREFIX
	Endpoint        string // URL of the service
	Region          string
	CredentialsFile string
	CAFile          string
}

// GRPCServer is one gRPC server as a tool server.
type GRPCServer interface {
	runtime.Dispatcher
	tools.Lister
}
