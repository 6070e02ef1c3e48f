// Package attempt is the guarantee of an MCP front: what is done about one call, whoever makes it and on whatever way.
// It knows the log, and of clients and tool servers what a [Client] says.
//
// A call is begun, sent once, finished and answered, in this order. The table moves in loop.go says what may follow
// what: [loop.inquire] begins it with the log (durable), [loop.dispatch] makes the one send that a permit allows, and
// [Attempt.answered] finishes it with the log (durable). Only then Done is set, and the client has its answer. A call
// that is taken up after a crash runs the same loop.
//
// # Invariants
//
//	begun    no tools/call is written without a permit for this attempt   [Attempt.work]      TestEverySendWasBegun
//	kept     an answer is durable before the client has it                [Attempt.answered]  TestAnswerIsDurableBeforeDelivery
//	once     one permit, one write; what may have been sent is in doubt   [Attempt.send]      TestServerThatDiesLeavesDoubt
//	repeat   which call is a repeat is the log's to say                   [Attempt.Begin]     TestTwoShimsOfOneProcessLoseNothing,
//	                                                                                          TestKilledBehindALauncher, TestRepeatOverHTTP
//	counted  a call is noted as delivered after its answer was,           [Desk.Deliver]      TestOccurrences, TestKillsAtEveryPoint
//	         and before a call that came after it is sent                 [Attempt.send]      TestNextCallWaitsForTheNote
package attempt
