// Package grpccall sends tool calls to a gRPC server: unary methods, found by server reflection
// or in a FileDescriptorSet, with arguments and answers as JSON (the protobuf JSON mapping).
// [Server] is a [runtime.Dispatcher]; a tool_name is "package.Service/Method".
//
// It puts a call on the wire at most once. grpc-go sends a call again by itself in three cases,
// and each is prevented:
//
//   - A retry policy of the service config: retries and service configs are disabled, and
//     the resolver that is used has no config to give.
//   - A stream that the server says it has not processed (RST_STREAM with REFUSED_STREAM,
//     or a GOAWAY below it) is repeated once, whatever the options say. A stream whose
//     Context was asked for is not: that commits it to its first attempt.
//   - A stream that could not be begun on a transport is begun on the next. Nothing of the
//     call is on the wire then.
//
// Each dispatch has a connection of its own, so that no connection reaches its maximum age with a
// call on it.
//
// # Invariants
//
//	once      one dispatch, at most one stream on the wire            [Server.exchange]  TestOneStreamPerDispatch
//	unsent    ErrNotSent only before the stream is begun              [Server.exchange]  TestNotSent
//	doubt     a status that may hide an execution is no effect        [classify]         TestStatuses
//	exact     64-bit integers go through unharmed                     [types.encode]     TestIntegersAreExact
//	unary     a streaming method is not called                        [types.method]     TestStreamingIsRefused
//
// # Request
//
//	idempotency-key                              the call's key, the same for every attempt
//	tgad-trace-id, tgad-tool-call-id             ids
//	tgad-attempt                                 number of this attempt
//
// # Limits
//
// Compression and the proxies of the environment are not used. Fields of an answer that the
// descriptors do not know are left out of the result, and its summary says so.
package grpccall
