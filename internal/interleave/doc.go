// Package interleave explores every order in which a few actors can meet.
//
// The runtime's loop and the ledger's rule are the real ones; the store is in memory
// (package memstore), the tool server, the network, the clock and the crashes are the
// explorer's. An actor stops before each thing it does to the store or to a tool, and the
// explorer decides who goes on, what the network does, when the process dies, and when time
// passes or the clock jumps. It does so in every order, within the bounds of a scenario, and
// does not enter a state twice. How far it goes is a number of states, and never a time.
//
// # What is left out
//
// Three things keep the number of states down, and take no outcome away.
//
//   - A move whose outcome is known is not made again (steps_test.go).
//   - A try that left nothing behind is as if it had not been: the ids and random numbers that it
//     made are made again by the next one. An id has to differ from all that anything holds, and
//     an actor holds those that it has appended and those in its memory ([actor.keeps]). What the
//     process remembers of an id, it remembers of a trace that was appended. [world.unique] checks
//     that no two artifacts have one id.
//   - A message that nobody waits for arrives, or is lost, when no actor can do anything: where
//     nobody looks at the tool, and no tick or step makes one time another to it, a receipt
//     earlier can be exchanged with each move in between. It changes what the tool has done, and
//     nobody reads that before; its own check, that nothing happens twice, depends on how many
//     messages arrive under a key and not on when. No time passes by itself before, for a message
//     on its way is something that can happen ([network.unseen]).
//
// TestForecastsSpareNoState compares the states with those of an exploration without the first,
// and TestReductionsSpareNoOutcome the outcomes with those of one without the other two: what
// the logs and the ledger hold, what everybody was told, and what happened at the tool.
//
// All of it is test code: it stands on testing/synctest, whose bubbles give it virtual time
// and tell it when an actor has come to rest. docs/CRASH.md has the bounds, the number of
// states, and which planted bugs only this tier finds.
package interleave
