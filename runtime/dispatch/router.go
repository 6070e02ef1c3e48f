package dispatch

import (
	"context"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Router sends each call to the dispatcher of its tool_server, matched exactly. A
// call to another server is NOT_FOUND, and not sent.
type Router map[string]runtime.Dispatcher

// Dispatch implements [runtime.Dispatcher].
func (r Router) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	next, ok := r[call.Server]
	if !ok {
		return runtime.Reply{}, r.unknown(call)
	}
	return next.Dispatch(ctx, call)
}

// Check implements [runtime.Checker]: NOT_FOUND for a server that is not configured, unless
// a remote executor makes the call, which may reach servers that this process does not.
func (r Router) Check(ctx context.Context, call runtime.Call) error {
	next, ok := r[call.Server]
	if !ok {
		if call.Remote {
			return nil
		}
		return tga.Errorf(tga.NotFound, "no tool server of that name is configured").In(call.TraceID)
	}
	return runtime.Check(ctx, next, call)
}

// Prepare implements [runtime.Preparer].
func (r Router) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	next, ok := r[call.Server]
	if !ok {
		return nil, r.unknown(call)
	}
	return prepare(ctx, next, call)
}

func (r Router) unknown(call runtime.Call) error {
	return notSent(tga.NotFound, call, nil, "no tool server of that name is configured")
}
