// Package crashtest proves by crashing that no tool call is sent again in any crash
// window.
//
// A [World] is all that outlives a process: a crashable file system, the tool servers
// and the journal of what was sent, done and acknowledged. A [Process] is a store and
// a runtime in it. A crash is an [Image]: file system and journal, taken under one lock
// before an operation, with a seeded part of what was not synced lost. Recovery of an
// image is judged by one set of [Properties], whatever tier made it.
//
// # Invariants
//
//	one moment  file system and journal of an image are of one moment   [World.Snapshot]   TestImageIsOfOneMoment
//	outside     what was sent and done is told by the tool servers      [World.Dispatch]   TestPropertiesFindWhatTheyName
//	able        each property can fail                                  [Properties]       TestPropertiesFindWhatTheyName
//	likewise    those of turns and of working state                    [TurnProperties]   TestTurnPropertiesFindWhatTheyName
//	                                                                   [WorkProperties]   TestWorkPropertiesFindWhatTheyName
//	tested      a bug planted in the code under test is found           [PlantedBugs]      torture -tiers planted
package crashtest
