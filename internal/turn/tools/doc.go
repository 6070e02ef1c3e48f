// Package tools finds an agent's tools and checks the arguments of their calls: phase 3
// of a turn and the first half of phase 5 (OSSA 0.2.9 §1). [Resolver] is a
// [turn.Resolver]; [Functions] is a tool server made of Go functions.
//
// # Invariants
//
//	order   tools stand in the manifest's order, whoever answers first   [Resolver.Resolve]   TestOrderIsTheManifests
//	left    what can't be used is left out with a warning, never fatal   [Resolver.Resolve]   TestUnavailableIsAWarning
//	shut    a schema reaches no file and no network                      [compile]            TestSchemaReachesNothing
//	exact   no digit of an argument is lost on its way to a check        [Resolver.Validate]  TestNumbersAreExact
//	names   a model's name for a tool is well-formed and unique          [names.give]         TestNames
//	drift   a definition that changed between two lists is reported      [source.settle]      TestDrift
//	fresh   what a server took back is not used after [Resolver.Invalidate]                   TestInvalidate
//
// # How a tool of a manifest becomes a governed call
//
// Every transport ends in a call with a tool_server and a tool_name. The host's dispatcher routes
// the call by tool_server:
//
//	function  Server (or "function") and Remote name a function of [Functions]
//	http      POST {the server's URL}/{Remote}, by package dispatch/httpcall, which gives
//	          a tool a path of its own where it is configured so
//	mcp       tools/call of Remote, by package runtime/mcp
//	grpc      the unary method Remote, "package.Service/Method", by package grpccall
//
// Tool servers of MCP and gRPC endpoints list their tools. An HTTP server cannot, so its tools
// have the schema that the manifest gives.
package tools
