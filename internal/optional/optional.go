// Package optional is the only package through which tgad links large modules that many users do
// not need: SQLite, PostgreSQL, gRPC, the exporters of OpenTelemetry and a client of S3. Together
// they are a quarter of the binary. The build tag slim leaves them out:
//
//	make build TAGS=slim
//
// A slim tgad refuses a configuration that needs one of them, with VALIDATION_ERROR. It does so
// when it reads the file, before it opens anything. It sends nothing to a collector of
// OpenTelemetry; if the environment names one, it warns.
package optional

import (
	"log/slog"

	"github.com/tgad/tgad/internal/turn/tools"
	"github.com/tgad/tgad/runtime"
)

// GRPCOptions are the settings of a gRPC server.
type GRPCOptions struct {
	DescriptorSet string   // the path of a FileDescriptorSet; "" = server reflection
	Services      []string // the services that are listed as tools; nil = all
	MaxAnswer     int      // bytes of an answer's JSON that are kept
	Logger        *slog.Logger
}

// BucketOptions say which bucket has a backup. An empty field is taken from the environment.
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
