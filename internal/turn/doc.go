// Package turn runs whole turns of an agent: a message in, tools resolved, a model
// asked, its tool calls made, state persisted, telemetry out (OSSA 0.2.9 §1).
//
// A turn is journaled: it writes a chained stream of records into the store, one or more
// for each of its seven phases. A phase whose record is durable never runs again. A turn
// asks its model and calls its tools through package runtime, so an answer that is durable
// there is served and not asked for again.
//
// Package runtime/turn shows other modules what they need of it.
package turn
