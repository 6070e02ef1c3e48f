// Package ledger decides whether a tool call may be sent.
//
// It owns the idempotency record, the licences (what an operator states about repeating a tool's
// calls), the outcome classes and the dispatch decision. It is pure: a record is a function of the
// entries and notes of the trace that reserved its key, and a decision is a function of a record,
// the call, its holder and the licence.
//
// # Usage
//
// Before it sends a call, a program reads the record of the call's [Key], fills a [Query] with what
// it knows of the request, the holder and the clock, and calls [Decide]. The [Decision] says what to
// do:
//
//	d := ledger.Decide(ledger.Query{Record: record, Trace: trace, Request: digest, Licence: licence, …})
//	if d.Action == ledger.Send { // mark attempt d.Attempt, make it durable, send
//
// [FromTrace] makes the record of a trace from its entries and notes. [DeriveKey] makes a key for a
// caller that has none. The values of [LicenceKind] are what an operator can state about a tool.
//
// # Invariants
//
//	once     a settled record is served, never sent             [Decide]           TestDecisionGrid
//	doubt    an attempt without an effect is never "not sent"   [Decide]           TestDecisionGrid
//	mark     each send has its own attempt number, in order     [Record.ApplyNote] TestAttemptsAreNumberedWithoutGap
//	unsent   no attempt is taken out of doubt twice             [Record.ApplyNote] TestNotSentTwiceIsRefused
//	foreign  a remote executor's call is only ever sent by one  [Decide]           TestDecisionGrid
//	same     one key, one request digest                        [Decide]           TestDecisionGrid
//	fold     a record is what its trace's log says              [FromTrace]        engine.DB.Check
//	form     a record has one byte form                         [DecodeRecord]     FuzzDecodeRecord
package ledger
