// Package evidence keeps the evidence of a store that is open: the Merkle tree over the order of
// its log, signed checkpoints of that tree, and copies of them at places outside. When the store is
// opened it compares the tree with every checkpoint that it can reach.
//
// No append waits for this package. One goroutine follows the log, a fraction of a second
// behind it. If the process dies, the part of the tree that is not written yet is made again from
// the log.
//
// # A store that was rolled back
//
// A checkpoint that the store's key signed says what the store had. If the log has fewer appends
// than that, or other ones, somebody put an older directory in its place or rewrote the log. Then
// [Open] freezes the store, with a reason that names both. A person may accept the loss
// ([Keeper.Accept]): the acceptance is signed and kept, and that checkpoint does not freeze the
// store again. A place that cannot be reached is logged, and the store works without it: the
// operator decides which places there are.
//
// # Invariants
//
//	behind     a checkpoint covers only appends that are durable in the log        [Keeper.follow]  TestCheckpointsCoverDurableAppends
//	compared   an outside checkpoint that the tree contradicts freezes the store   [Open]           TestRolledBackStoreIsFrozen
//	succeeded  a new key signs only after the old one handed over to it            [Open]           TestKeysAreHandedOver
//	kept back  a checkpoint of another key at a place is not overwritten           [place]          TestForeignPlaceIsLeftAlone
//	handed out a place that did not get the newest checkpoint gets it later, also   [Keeper.owes]    TestQuietStoreReachesItsPlaces,
//	           if nothing is appended, and also from another process                                TestStoppedHandOutIsFinished
//	goes on    after an error of the disk, checkpoints are made again once it      [Keeper.Run]     TestCheckpointsGoOnAfterAFailedDisk
//	           works, without a restart
//	at rest    [Read] writes nothing, and refuses a log that contradicts its        [Read]           TestStoreAtRest
//	           newest checkpoint
//	proved     each proof in a receipt was verified before it is returned          [Keeper.Receipt] TestReceipts, TestReceiptsAreVerified
package evidence
