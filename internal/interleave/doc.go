// Package interleave explores every order in which the steps of a few actors can happen.
//
// The runtime's loop and the ledger's rule are the real code. The store is in memory (package
// memstore). The explorer plays the tool server, the network, the clock and the crashes. An
// actor stops before each thing it does to the store or to a tool. The explorer then decides
// who goes on, what the network does, when the process dies, and when time passes or the clock
// jumps. Two daemons of a scenario share the store, as those of a fleet do. It tries every
// order within the bounds of a scenario, and does not enter a state twice. An exploration is
// limited by a number of states, never by a time.
//
// # What is left out
//
// Three reductions keep the number of states small. None of them hides an outcome.
//
//   - A move whose outcome is known is not made again (steps_test.go).
//   - A try that left nothing behind counts as not made: the next try makes the same ids and
//     random numbers again. This is sound because a new id has only to differ from the ids that
//     something still holds: an actor holds those that it has appended and those in its memory
//     ([actor.keeps]), and the process remembers only ids of appended traces. [world.unique]
//     checks that no two artifacts have the same id.
//   - A message that nobody waits for arrives, or is lost, only when no actor can do anything
//     ([network.unseen]). If it arrived earlier, its receipt could be exchanged with each move
//     in between: nobody looks at the tool before, and no tick or clock step makes the time of
//     the receipt matter to it. The check that nothing happens twice depends on how many
//     messages arrive under a key, and not on when. Virtual time does not pass by itself
//     meanwhile, because a message on its way is something that can happen.
//
// TestForecastsSpareNoState compares the states with those of an exploration without the first
// reduction. TestReductionsSpareNoOutcome compares the outcomes with those of an exploration
// without the other two: what the logs and the ledger hold, what everybody was told, and what
// happened at the tool.
//
// All of it is test code: it needs testing/synctest, whose bubbles give it virtual time and
// tell it when every actor has stopped. docs/CRASH.md has the bounds, the number of states, and
// the planted bugs that only this tier finds.
package interleave
