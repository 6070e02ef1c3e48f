//go:build !unix

package mcp

import (
	"context"
	"log/slog"
	goruntime "runtime"
)

// commandsRun says that this platform supports a command as tool server. A command that outlives
// its parent could act beside its successor, and only Unix systems have the locks that prevent it.
const commandsRun = false

func startChild(context.Context, Options, *slog.Logger, func(method string)) (link, error) {
	return nil, notSent("a command as tool server does not run on %s", goruntime.GOOS)
}
