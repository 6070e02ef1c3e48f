// Package runtime runs governed tool calls: it decides, marks, sends and records.
//
// It touches tools and never a disk: what must be durable goes through a [Store].
// One loop runs a fresh call and a recovered one; it is a switch on the trace's state
// alone, so what recovery does is what an ordinary call does from that state on.
//
// # The argument
//
// A send needs an attempt in hand. An attempt comes into hand only when an append
// that names it has returned, which is when it is durable. It leaves the hand before
// the send. So each durable attempt is sent at most once, and no send is without one.
// An attempt that is durable and has no durable effect is therefore exactly what may
// have been sent; the ledger's decision says what that permits.
//
// # Invariants
//
//	mark    no send without a durable attempt of this lease       [Runtime.run]   TestEverySendHasADurableAttempt
//	once    a recorded effect is served, the tool not contacted   ledger.Decide   TestRecordedEffectIsNeverRedispatched
//	doubt   an unknown error of a dispatcher is doubt             [Runtime.send]  TestUnknownErrorIsDoubt
//	record  an answer is appended whatever became of the caller   [Runtime.send]  TestAnswerIsRecordedAfterCancel
//	whole   an approval covers exactly the proposal that was sent chain.Trace.Apply TestArtifactLinks
package runtime
