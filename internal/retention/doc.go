// Package retention carries out how long a store keeps what finished calls carried.
//
// A [Policy] is a list of rules. The first rule that matches a finished trace decides about it: it is
// kept, or it is erased some time after its end. Before that an export of it is written to the
// archive, read back and verified, unless the rule drops it. What proves a trace stays in the store,
// and so does its key: see engine.DB.Erase.
//
// # Invariants
//
//	R1 first     what is erased, and not dropped, is whole in a file of the archive that is durable   [Policy.Run]   TestNothingIsErasedBeforeItIsArchived
//	R2 first rule decides about a trace alone, also while it is too young for that rule                [Policy.Run]   TestFirstRuleDecides
//	R3 finished  a trace that may still go on is left as it is                                         engine         TestOpenCallsAreLeft
package retention
