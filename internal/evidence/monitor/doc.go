// Package monitor follows a store from outside, and notices when it takes something back.
//
// A store that signs checkpoints can show one tree to an auditor and another one to somebody else,
// or be rolled back together with all that it signed. The store itself cannot tell; somebody who
// remembers an earlier checkpoint can. A monitor remembers the newest checkpoint that the store
// showed it. It asks again and again, and accepts a newer one only with evidence that the tree grew
// from the one before. It checks each append itself, with the verifier of evidence files:
// signatures, proofs, digests, and the transitions of each trace.
//
// # State
//
// The state is one file, replaced as a whole: the origin, the signed checkpoint, and how many of
// its appends were checked. It is durable before the next request. An alarm is written beside it. If
// two checkpoints contradict each other, the alarm has both: their signatures prove it to anybody.
// No monitor of this state continues until a person has removed the alarm's file.
//
// # What is no alarm
//
// A store that does not answer, or stops in the middle of an answer, may have been killed or be
// restarting. The monitor drops the whole partial answer, and asks again.
//
// # Invariants
//
//	forward  the remembered checkpoint is replaced only by one that grew from it  [Monitor.Step]  TestMonitorSeesEachAttack
//	quiet    no crash of the store, wherever it falls, is an alarm                [Monitor.Step]  TestRestartsAreNoAlarm
//	lasting  an alarm is repeated until a person removes its file                 [Open]          TestAlarmIsRepeated
//	alone    one process at a time has the state                                  [Open]          TestStateIsOfOneMonitor
//	bounded  no answer takes more memory or time than there is for it             [Monitor.Step]  TestLongEvidenceIsNotTaken,
//	                                                                                              TestStoreThatHangsIsAskedAgain
//	whole    every covered append is checked, with pages of any size              [Monitor.Step]  TestEveryAppendIsChecked
package monitor
