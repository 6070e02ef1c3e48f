// Package turn runs whole turns of an agent. A message comes in; the turn resolves its tools,
// asks a model, makes the tool calls that the model asks for, persists state and emits telemetry
// (OSSA 0.2.9 §1).
//
// A turn is journaled: it writes a chained stream of records into the store, one or more for each
// of its seven phases. A phase whose record is durable never runs again. A turn asks its model
// and calls its tools through package runtime. An answer that is durable there is served, and the
// model or tool is not asked again.
//
// Package runtime/turn exports what other modules need of this package.
package turn
