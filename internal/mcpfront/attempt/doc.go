// Package attempt keeps the guarantee of an MCP front. It carries one call from begin to answer, whichever client
// makes the call and by whichever transport. It talks to the log itself, and to client and tool server through [Client].
//
// A call is begun, sent once, finished and answered, in this order. The table moves in loop.go lists the allowed
// transitions: [loop.inquire] begins the call with the log (durable), [loop.dispatch] makes the one send that a permit
// allows, and [Attempt.answered] finishes the call with the log (durable). Only then Done is set and the client gets
// its answer. A call that is taken up after a crash runs the same loop.
//
// # Invariants
//
//	begun    no tools/call is written without a permit for this attempt   [Attempt.work]      TestEverySendWasBegun
//	kept     an answer is durable before the client has it                [Attempt.answered]  TestAnswerIsDurableBeforeDelivery
//	once     one permit, one write; what may have been sent is in doubt   [Attempt.send]      TestServerThatDiesLeavesDoubt
//	repeat   the log decides which call is a repeat                       [Attempt.Begin]     TestTwoShimsOfOneProcessLoseNothing,
//	                                                                                          TestKilledBehindALauncher, TestRepeatOverHTTP
//	counted  a delivery is noted after the client has the answer,         [Desk.Deliver]      TestOccurrences, TestKillsAtEveryPoint
//	         and before the client's next call is sent                    [Attempt.send]      TestNextCallWaitsForTheNote
package attempt
