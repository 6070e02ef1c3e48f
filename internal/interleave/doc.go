// Package interleave explores every order in which a few actors can meet.
//
// The runtime's loop and the ledger's rule are the real ones; the store is in memory
// (package memstore), the tool server, the network, the clock and the crashes are the
// explorer's. An actor stops before each thing it does to the store or to a tool, and the
// explorer decides who goes on, what the network does, when the process dies, and when time
// passes or the clock jumps. It does so in every order, within the bounds of a scenario, and
// does not enter a state twice. How far it goes is a number of states, and never a time.
//
// All of it is test code: it stands on testing/synctest, whose bubbles give it virtual time
// and tell it when an actor has come to rest. docs/CRASH.md has the bounds, the number of
// states, and which planted bugs only this tier finds.
package interleave
