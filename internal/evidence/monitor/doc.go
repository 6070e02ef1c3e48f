// Package monitor follows a store from outside, and notices when it takes something back.
//
// A store that signs checkpoints can show one tree to an auditor and another one to somebody else,
// or be put back to an older state together with all that it signed. Nobody inside can tell; who
// was told before and remembers can. A monitor remembers: it has the newest checkpoint that it was
// shown, asks again and again, and goes on only with evidence that the store grew from what it was.
// It checks each append itself, with the verifier of evidence files: signatures, proofs, digests,
// and what may follow what in a trace.
//
// # State
//
// One file, replaced as a whole: the origin, the checkpoint as it was signed, and how many of its
// appends were checked. It is durable before the next question. An alarm is written beside it, with
// both signed checkpoints where two contradict each other: they prove it to anybody. Until a person
// has removed that file the monitor does not go on, whoever starts it.
//
// # What is no alarm
//
// A store that does not answer, or stops in the middle of an answer, was killed or is being
// restarted: what it said is thrown away whole, and it is asked again.
//
// # Invariants
//
//	forward  the remembered checkpoint is replaced only by one that grew from it  [Monitor.Step]  TestMonitorSeesEachAttack
//	quiet    no crash of the store, wherever it falls, is an alarm                [Monitor.Step]  TestRestartsAreNoAlarm
//	lasting  an alarm is repeated until a person takes it away                    [Monitor.Step]  TestAlarmIsRepeated
//	alone    one process at a time has the state                                  [Open]          TestStateIsOfOneMonitor
//	whole    every append is checked once it is covered, over any size of pages   [Monitor.Step]  TestEveryAppendIsChecked
package monitor
