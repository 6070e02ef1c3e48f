// Package dispatch decorates a [runtime.Dispatcher] with the layers between the loop and
// one tool server: routing by server, a time-out per tool, a limit of concurrent calls,
// a circuit breaker, and transport retry.
//
// A stack for one server, from the outside in:
//
//	Timeout > Retry > Limit > Breaker > the transport
//
// Retry is outside Limit, so that a call gives up its place while it backs off,
// and outside Breaker, so that the breaker counts each try.
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
// [Retry] repeats only what certainly reached nobody. This package does not decide whether a call
// that may have run is sent again: the licence decides that, in package ledger.
//
// # Invariants
//
//	once    a call is repeated only after [runtime.ErrNotSent]       [Retry]            TestOnlyNotSentIsRetried
//	answer  the caller gets the answer of the transport unchanged   every decorator    TestAnswerSurvivesCancellation
//	unsent  a refusal before the transport is ErrNotSent            every decorator    TestRefusalsAreNotSent
//	check   a call that can't be sent is refused before a write     every decorator    TestDecoratorsHandCheckOn
package dispatch

import (
	"context"

	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// prepare passes Prepare on to the decorated dispatcher, if that is a Preparer. Without
// this, a decorator would hide the method.
func prepare(ctx context.Context, next runtime.Dispatcher, call runtime.Call) ([]chain.Attachment, error) {
	if p, ok := next.(runtime.Preparer); ok {
		return p.Prepare(ctx, call)
	}
	return nil, nil
}

// notSent returns the error for a call that this package did not pass on.
func notSent(code tga.Code, call runtime.Call, cause error, format string, args ...any) error {
	args = append([]any{call.Tool, call.Server, call.Attempt}, append(args, onwire.NotSent(cause))...)
	return tga.Errorf(code, "%s on %s, attempt %d: "+format+": %w", args...).In(call.TraceID)
}
