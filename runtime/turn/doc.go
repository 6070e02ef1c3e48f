// Package turn runs whole turns of an agent: a message in, tools resolved, a model
// asked, its tool calls made, state persisted, telemetry out (OSSA 0.2.9 §1).
//
// A turn is journaled: it writes a chained stream of records into the store, one or more
// for each of its seven phases. A phase whose record is durable never runs again. A turn
// asks its model and calls its tools through package runtime, so an answer that is durable
// there is served and not asked for again.
//
// # Usage
//
// [New] makes a [Runner] on a store. [Options] has the agents, a [Model] for each provider
// and a [Resolver], which finds an agent's tools. Call [Runner.Recover] first: it continues
// the turns that a crash interrupted. Then [Runner.Run] takes a message:
//
//	res, err := runner.Run(ctx, turn.Request{Agent: "treasurer", SessionID: "s1", Message: []byte("pay invoice 7")})
//
// The result's Status says whether the turns have completed, have failed, or wait for a
// person. Settle a call that waits with [Runner.Settle], decide an escalation with
// [Runner.Decide], and continue with [Runner.Resume].
package turn
