// Package dispatch decorates a [runtime.Dispatcher] with what stands between the
// loop and one tool server: routing by server, a time-out per tool, a limit of calls
// at once, a circuit breaker, and transport retry.
//
// A stack for one server, from the outside in:
//
//	Timeout > Retry > Limit > Breaker > the transport
//
// Retry stands outside Limit, so that a call gives its place up while it backs off,
// and outside Breaker, so that each try counts.
//
// # Usage
//
// A [Router] has one such stack for each server and is itself the dispatcher of a runtime:
//
//	tools := dispatch.Router{"payments": dispatch.Timeout(
//		dispatch.Retry(dispatch.Limit(dispatch.Breaker(transport, dispatch.BreakerOptions{}), 16), dispatch.RetryOptions{Tries: 3}),
//		func(tool string) time.Duration { return 10 * time.Second })}
//	rt, err := runtime.New(db, tools, supervisor, options)
//
// [Retry] repeats only what certainly reached nobody. Whether a call that may have run is sent again
// is not decided here: that is the licence's, in package ledger.
//
// # Invariants
//
//	once    a call is repeated only after [runtime.ErrNotSent]       [Retry]            TestOnlyNotSentIsRetried
//	answer  what the transport said is what the caller is told      every decorator    TestAnswerSurvivesCancellation
//	unsent  a refusal before the transport is ErrNotSent            every decorator    TestRefusalsAreNotSent
//	check   what the transport can't send is asked before a write   every decorator    TestDecoratorsHandCheckOn
package dispatch

import (
	"context"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// prepare hands Prepare on to the decorated dispatcher where that has it. Without
// it, a decorator would hide the method.
func prepare(ctx context.Context, next runtime.Dispatcher, call runtime.Call) ([]chain.Attachment, error) {
	if p, ok := next.(runtime.Preparer); ok {
		return p.Prepare(ctx, call)
	}
	return nil, nil
}

// notSent is an error for a call that this package did not hand on.
func notSent(code tga.Code, call runtime.Call, cause error, format string, args ...any) error {
	args = append([]any{call.Tool, call.Server, call.Attempt}, append(args, onwire.NotSent(cause))...)
	return tga.Errorf(code, "%s on %s, attempt %d: "+format+": %w", args...).In(call.TraceID)
}
