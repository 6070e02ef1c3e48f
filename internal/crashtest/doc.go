// Package crashtest tests by crashing that no tool call is sent again in any crash window.
//
// A [World] is everything that outlives a process: a crashable file system, the tool
// servers, and the journal of what was sent, done and acknowledged. A [Process] is a store
// and a runtime in a world. A crash is an [Image]: file system and journal, copied under
// one lock before an operation, without a part of the unsynced data that the seed chooses.
// The recovery of every image is judged by the same [Properties], whichever tier made it.
//
// # Invariants
//
//	one moment  file system and journal of an image are of one moment   [World.Snapshot]   TestImageIsOfOneMoment
//	outside     the tool servers record what was sent and done          [World.Dispatch]   TestPropertiesFindWhatTheyName
//	able        each property can fail                                  [Properties]       TestPropertiesFindWhatTheyName
//	likewise    those of turns and of working state                    [TurnProperties]   TestTurnPropertiesFindWhatTheyName
//	                                                                   [WorkProperties]   TestWorkPropertiesFindWhatTheyName
//	tested      a bug planted in the code under test is found           [PlantedBugs]      torture -tiers planted
package crashtest
