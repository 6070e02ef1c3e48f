// Package evidence keeps the evidence of a store that is open: the Merkle tree over the order of
// its log, signed checkpoints of that tree, and copies of them at places outside. When the store is
// opened it compares the tree with every checkpoint that it can reach.
//
// Nothing here is on the way of an append. One goroutine follows the log, a fraction of a second
// behind it. What it has not written when a process dies is made again from the log.
//
// # A store that was rolled back
//
// A checkpoint that the store's key signed says what the store had. Where the log has fewer appends
// than that, or others, somebody put an older directory in its place or rewrote the log: [Open]
// freezes the store, with both named. A person may accept that ([Keeper.Accept]); what was accepted
// is signed, kept, and freezes no more. A place that cannot be reached is logged and does not keep
// the store from its work: who must be asked is for the operator to say.
//
// # Invariants
//
//	behind     a checkpoint covers nothing that is not durable in the log          [Keeper.follow]  TestCheckpointsCoverDurableAppends
//	compared   an outside checkpoint that the tree contradicts freezes the store   [Open]           TestRolledBackStoreIsFrozen
//	succeeded  a new key signs only after the old one handed over to it            [Open]           TestKeysAreHandedOver
//	kept back  what a place has of somebody else is not written over               [place]          TestForeignPlaceIsLeftAlone
//	handed out a place that could not be given the newest checkpoint gets it later, [Keeper.owes]    TestQuietStoreReachesItsPlaces,
//	           whether anything is appended or not, and by whichever process                        TestStoppedHandOutIsFinished
//	at rest    who only reads a store writes nothing, and believes no log that      [Read]           TestStoreAtRest
//	           contradicts its newest checkpoint
//	proved     a receipt is given with a proof that holds                          [Keeper.Receipt] TestReceipts, TestReceiptsAreVerified
package evidence
