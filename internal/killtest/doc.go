// Package killtest kills an engine in the middle of calls, and counts the charges that a world outside has
// seen. The engine is any program that speaks the protocol of package adapter. The world is a payment service
// in this process, which is never killed. It counts each charge when it makes it, and the engine cannot change
// the count.
//
// # What a run does
//
// A run makes calls one after the other. For each call it chooses a [Point], at which it sends SIGKILL to the
// process group of the adapter. It then starts the adapter again in the same directory, and repeats the call
// with its key, as a client does that got no answer. At the end it kills the adapter once more, starts it, and
// asks for the status of every key. [judge] compares the charges, the answer that the client got, and the last
// status.
//
// # Invariants
//
//	the world tells no lie    a charge is counted before any byte of its answer is sent  [world.charge]   TestWorldCounts
//	every fault is found      an engine that doubles, loses or lies is reported          [judge]          TestBadEnginesAreFound
//	a kill reaches all        the whole process group dies, and is waited for            [process.kill]   TestKillReachesTheGroup
package killtest
