// Package turn runs whole turns of an agent: a message in, tools resolved, a model
// asked, its tool calls made, state persisted, telemetry out (OSSA 0.2.9 §1).
//
// A turn is journaled: a chained stream of records in the store, one or more for each of
// its seven phases. A phase whose record is durable is never run again. The model is asked
// and tools are called through package runtime, so what is durable there is served.
package turn
