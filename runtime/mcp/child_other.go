//go:build !unix

package mcp

import (
	"context"
	"log/slog"
	goruntime "runtime"
)

// commandsRun says that a tool server can be a command here. A command that outlives its
// parent would act beside its successor, and only Unix systems have the locks that prevent it.
const commandsRun = false

func startChild(context.Context, Options, *slog.Logger, func(method string)) (link, error) {
	return nil, notSent("a command as tool server does not run on %s", goruntime.GOOS)
}
