// Package retention limits how long a store keeps the content of finished calls.
//
// A [Policy] is a list of rules. The first rule that matches a finished trace decides about it: the
// trace is kept, or it is erased some time after its end. Before it is erased, an export of it is
// written to the archive, read back and verified, unless the rule drops it. The proof of a trace (its
// entries and digests) stays in the store, and so does its idempotency key: see engine.DB.Erase.
//
// # Invariants
//
//	R1 first     what is erased, and not dropped, is whole in a durable file of the archive            [Policy.Run]   TestNothingIsErasedBeforeItIsArchived
//	R2 first     only the first matching rule decides, even if the trace is too young for it           [Policy.Run]   TestFirstRuleDecides
//	R3 finished  a trace that is not finished is not changed                                           engine         TestOpenCallsAreLeft
package retention
