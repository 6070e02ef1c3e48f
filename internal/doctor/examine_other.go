//go:build !unix

package doctor

import (
	"context"
	"iter"
	goruntime "runtime"

	"github.com/tgad/tgad/runtime/client"
)

// Examine only says that it does not run here: what it checks exists on Unix systems only.
func Examine(context.Context, *client.Client, string, string) iter.Seq[Finding] {
	return func(yield func(Finding) bool) {
		yield(Finding{"system", Bad, "tgad doctor does not run on " + goruntime.GOOS, "run it on Linux, where the daemon is"})
	}
}
