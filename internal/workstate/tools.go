package workstate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Tools are functions of this process by name: a [runtime.Dispatcher] and a
// [runtime.Checker].
type Tools map[string]Tool

// Tool is a function of this process. See [Func].
type Tool struct {
	parse func(args []byte) (any, error)
	run   func(ctx context.Context, params any) (any, error)
}

// Func makes a tool of a function. Arguments with a member that P does not have are
// refused. A value that f returns becomes the answer, as JSON. An error of f becomes a
// failure with the error's code, or TOOL_ERROR; with [ErrFailed] the failure has a value
// too. If the context has ended, an error of f is returned as it is, and the call is in
// doubt: nobody knows what f did outside.
func Func[P any](f func(ctx context.Context, params P) (any, error)) Tool {
	return Tool{
		parse: func(args []byte) (any, error) {
			var p P
			err := strict(args, &p)
			return p, err
		},
		run: func(ctx context.Context, params any) (any, error) { return f(ctx, params.(P)) },
	}
}

// ErrFailed is a tool's own failure that comes with a value: the answer is not a success,
// so the tool's changes are undone.
var ErrFailed = errors.New("the tool failed")

// Expansion is the error of a tool that must first see more of the prompt. The tool's
// changes are undone, and the call ends as if it was never made: the error matches
// [runtime.ErrNotSent], so the same call may be made again.
type Expansion struct {
	Sections []string // to be made visible
	Reason   string
}

// Error implements error.
func (e *Expansion) Error() string {
	return "visibility expansion required: " + strings.Join(e.Sections, ", ") + ": " + e.Reason
}

// Check implements [runtime.Checker].
func (t Tools) Check(_ context.Context, call runtime.Call) error {
	if call.Remote {
		return nil // its executor has functions of its own
	}
	tool, ok := t[call.Tool]
	if !ok {
		return tga.Errorf(tga.NotFound, "no tool %q on %s", call.Tool, call.Server).In(call.TraceID)
	}
	if _, err := tool.parse(call.Args); err != nil {
		return tga.Errorf(tga.ValidationError, "arguments of %s: %w", call.Tool, err).In(call.TraceID)
	}
	return nil
}

// Dispatch implements [runtime.Dispatcher].
func (t Tools) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	if err := t.Check(ctx, call); err != nil {
		return runtime.Reply{}, errors.Join(runtime.ErrNotSent, err)
	}
	tool := t[call.Tool]
	params, err := tool.parse(call.Args)
	if err != nil {
		return runtime.Reply{}, errors.Join(runtime.ErrNotSent, err)
	}
	value, err := tool.run(ctx, params)
	var more *Expansion
	switch {
	case errors.As(err, &more):
		return runtime.Reply{}, errors.Join(runtime.ErrNotSent, err)
	case err != nil && ctx.Err() != nil:
		return runtime.Reply{}, err
	case err != nil:
		return failure(err, value), nil
	}
	result, err := json.Marshal(value)
	if err != nil {
		return failure(tga.Errorf(tga.ToolError, "the answer of %s has no JSON form: %w", call.Tool, err), nil), nil
	}
	return runtime.Reply{Status: tga.StatusSuccess, Result: result}, nil
}

// failure is the answer of a tool that failed.
func failure(err error, value any) runtime.Reply {
	r := runtime.Reply{Status: tga.StatusFailure, ErrorCode: string(codeOr(err, tga.ToolError)), ErrorMessage: clip.Bytes(err.Error(), 200)}
	if value != nil {
		if result, err := json.Marshal(value); err == nil {
			r.Result = result
		}
	}
	return r
}
