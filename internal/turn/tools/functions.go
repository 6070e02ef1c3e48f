package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxOutput is how many bytes of a function's output are kept. Of a longer output only length and
// digest are kept.
const MaxOutput = 64 << 20

// Function is a tool that is a Go function of this process.
type Function struct {
	Description string
	InputSchema json.RawMessage // nil accepts every object
	// Call gets the arguments, a canonical JSON object, and returns JSON. [CallOf] identifies the
	// call.
	//
	// An error is the tool's failure, final and recorded, with the code of a [*tga.Error]. An
	// error that wraps [runtime.ErrNotSent] says that nothing was done and nothing will be. An
	// error after ctx ended leaves the call in doubt: the function was cut short.
	Call func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)
}

// Functions is a tool server made of functions, by tool_name. Do not change it once it is in use.
//
// A crash of the process may end a function at any point, so the licences mean what they mean for
// any tool: a function that may run twice needs a licence that says so.
type Functions map[string]Function

var (
	_ runtime.Dispatcher = Functions{}
	_ runtime.Checker    = Functions{}
	_ Lister             = Functions{}
)

// ListTools implements [Lister].
func (f Functions) ListTools(context.Context) ([]mcpraw.Tool, error) {
	list := make([]mcpraw.Tool, 0, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		schema := f[name].InputSchema
		if len(schema) == 0 {
			schema = json.RawMessage(anyObject)
		}
		definition, err := json.Marshal(struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"inputSchema"`
		}{name, f[name].Description, schema})
		if err != nil {
			return nil, tga.Errorf(tga.SchemaViolation, "function %q: input schema: %w", name, err)
		}
		list = append(list, mcpraw.Tool{Name: name, Definition: definition})
	}
	return list, nil
}

// Check implements [runtime.Checker].
func (f Functions) Check(_ context.Context, call runtime.Call) error {
	if fn, ok := f[call.Tool]; !ok || fn.Call == nil {
		return tga.Errorf(tga.NotFound, "%s on %s: no such function", call.Tool, call.Server).In(call.TraceID)
	}
	return nil
}

// returned is the result of a function.
type returned struct {
	output json.RawMessage
	err    error
	stack  []byte // where it panicked
}

// Dispatch implements [runtime.Dispatcher]. A function that does not return when its context ends
// is left running, and its call is in doubt.
func (f Functions) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	fn, ok := f[call.Tool]
	if !ok || fn.Call == nil {
		return runtime.Reply{}, tga.Errorf(tga.NotFound, "%s on %s: no such function: %w", call.Tool, call.Server, runtime.ErrNotSent).In(call.TraceID)
	}
	if err := ctx.Err(); err != nil {
		return runtime.Reply{}, tga.Errorf(tga.ToolTimeout, "%s on %s: %w", call.Tool, call.Server, errors.Join(runtime.ErrNotSent, err)).In(call.TraceID)
	}
	back := make(chan returned, 1)
	go func() {
		var r returned
		ended := false
		defer func() {
			if !ended { // a panic, or runtime.Goexit, for which recover returns nil
				r.err, r.stack = fmt.Errorf("panic: %v", recover()), debug.Stack()
			}
			back <- r
		}()
		r.output, r.err = fn.Call(ctx, slices.Clone(call.Args))
		ended = true
	}()
	select {
	case r := <-back:
		return r.reply(ctx, call, MaxOutput)
	case <-ctx.Done():
	}
	select {
	case r := <-back: // both happened: an answer is never dropped because the time is over
		return r.reply(ctx, call, MaxOutput)
	default:
	}
	return runtime.Reply{}, tga.Errorf(tga.ToolTimeout, "%s on %s, attempt %d: the function has not returned: %w",
		call.Tool, call.Server, call.Attempt, context.Cause(ctx)).In(call.TraceID)
}

func (r returned) reply(ctx context.Context, call runtime.Call, limit int) (runtime.Reply, error) {
	switch {
	case errors.Is(r.err, runtime.ErrNotSent):
		return runtime.Reply{}, fmt.Errorf("%s on %s: %w", call.Tool, call.Server, r.err)
	case r.err != nil && ctx.Err() != nil:
		return runtime.Reply{}, tga.Errorf(tga.ToolTimeout, "%s on %s, attempt %d: the function was cut short: %w",
			call.Tool, call.Server, call.Attempt, r.err).In(call.TraceID)
	case r.err != nil && call.Attempt > 1:
		// This attempt failed. An attempt before it may have run, and its outcome is unknown.
		return runtime.Reply{}, tga.Errorf(tga.ToolError, "%s on %s, attempt %d failed, an earlier one may have run: %w",
			call.Tool, call.Server, call.Attempt, r.err).In(call.TraceID)
	case r.err != nil:
		reply := failure(codeOf(r.err, tga.ToolError), "%v", r.err)
		reply.Summary = clip.Runes(string(r.stack), maxReason)
		return reply, nil
	case len(r.output) > limit:
		return runtime.Reply{
			Status: tga.StatusSuccess, Class: ledger.ClassCommitted, Truncated: true,
			ResultBytes: int64(len(r.output)), ResultDigest: tga.Sum(r.output),
			Summary: fmt.Sprintf("output of %d bytes, at most %d are kept", len(r.output), limit),
		}, nil
	case !json.Valid(r.output):
		// The function ran to its end, so its effect has happened. Only its answer is unusable.
		reply := failure(tga.ToolError, "output of %d bytes is no JSON", len(r.output))
		reply.Status, reply.Class, reply.Result = tga.StatusError, ledger.ClassCommitted, r.output
		return reply, nil
	}
	return runtime.Reply{Status: tga.StatusSuccess, Result: r.output}, nil
}

// maxMessage is the longest error text of an effect (docs/FORMAT.md).
const maxMessage = 200

func failure(code tga.Code, format string, args ...any) runtime.Reply {
	return runtime.Reply{Status: tga.StatusFailure, ErrorCode: string(code), ErrorMessage: clip.Runes(fmt.Sprintf(format, args...), maxMessage)}
}
