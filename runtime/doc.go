// Package runtime runs governed tool calls: it decides, marks, sends and records.
//
// It touches tools and never a disk: what must be durable goes through a [Store].
// One loop runs a fresh call and a recovered one. The loop is a switch on the trace's
// state alone, so from that state on a recovery does the same as an ordinary call.
//
// Each other subject (approvals, probes, timers, confirmation, remote executors and more) is
// one small type. A type holds the state and the locks of its subject, and references to the
// other types that it uses. Types that continue a call reach the loop through an interface,
// driver; none holds the Runtime. parts.go builds the types and connects them.
//
// # Usage
//
// A program opens a store, makes a [Runtime] on it and recovers what a crash left, before
// it makes calls:
//
//	db, err := engine.Open(dir, engine.Options{})
//	…
//	rt, err := runtime.New(db, dispatcher, supervisor, runtime.Options{Policy: policy})
//	…
//	found, err := rt.RecoverAll(ctx, 8)
//	…
//	res, err := rt.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: "order-1", Args: args})
//
// The program gives three things. A [Dispatcher] sends a call to its tool; packages
// runtime/mcp and runtime/dispatch/httpcall have two, and package runtime/dispatch puts
// time-outs and a breaker around one. A [Supervisor] approves or denies a request;
// [AllowAll] approves each. A [Policy] holds a tool's licence, which says what happens to
// a call in doubt; without a licence, a write call in doubt waits for a person.
//
// [Runtime.Call] returns an error if it has no effect to return. Match its code with
// errors.Is: tga.EffectInDoubt means that the call may have run; then [Runtime.InDoubt]
// lists it and [Runtime.Resolve] settles it. A [Result] with an effect says in State and
// Class how the call ended, and [Result.Err] turns a failure into an error.
//
// A program that sends calls itself asks with [Runtime.Begin], sends only if the answer is
// [BeginSend], and reports with [Runtime.Finish], [Runtime.NotSent] or [Runtime.GiveUp].
//
// # The argument
//
// A send needs an attempt in hand. An attempt comes into hand only when the append
// that names it returns, and then the attempt is durable. It leaves the hand before
// the send. So each durable attempt is sent at most once, and every send has a durable
// attempt. Therefore the attempts that may have been sent without an answer are exactly the
// durable attempts that have no durable effect; the ledger decides what happens to them.
//
// # Invariants
//
//	mark    no send without a durable attempt of this lease       [Runtime.run]   TestEverySendHasADurableAttempt
//	once    a recorded effect is served, the tool not contacted   ledger.Decide   TestRecordedEffectIsNeverRedispatched
//	doubt   an unknown error of a dispatcher is doubt             [Runtime.send]  TestUnknownErrorIsDoubt
//	record  an answer is appended whatever became of the caller   [Runtime.send]  TestAnswerIsRecordedAfterCancel
//	whole   an approval covers exactly the proposal that was sent chain.Trace.Apply TestArtifactLinks
package runtime
