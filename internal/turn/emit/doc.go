// Package emit reports what a turn did: OpenTelemetry spans and metrics, log records and
// CloudEvents (OSSA 0.2.9 §1 phase 7).
//
// A turn is reported once, when it has ended, with the times at which its parts began and ended.
// By then all of it is durable, so nothing here can change what the turn did. A turn whose
// telemetry was cut off by a crash is reported again: its events have the same ids as before, and
// so have its spans if the provider uses [IDs]. Metrics count it twice.
//
// The words of users, models and tools are never sent: only names, ids, times, numbers and error
// codes are.
//
// # Invariants
//
//	harmless no error or panic of an output reaches the turn       [Emitter.Emit]  TestPanicsAreContained
//	bounded  Emit takes no longer than Options.Wait, and what      [Emitter.Emit]  TestStuckExporterDelaysNoLongerThanWait
//	         waits for a slow sink is bounded                      [queue]         TestSlowSinkDropsAndCounts
//	few      metrics carry three labels, none of them an id of     [instruments]   TestMetricsHaveThreeLabels
//	         an instance, session or interaction
//	same     a repeated emission makes the same event ids          [events]        TestRepeatedEmissionHasTheSameIDs
//	private  no content leaves                                     [events]        TestContentStaysInside
package emit
