// Package engine keeps TGA execution logs. It stores them in a log of its own (package wal).
// Pebble holds an index, which is computed from that log.
//
// It owns durability: when [DB.Append] returns nil, the artifacts, their entries, the
// notes and the ledger record are on disk, or none is. It knows nothing of tools;
// package runtime decides what to append. It is the only importer of Pebble.
//
// # Usage
//
// Most programs open a store, give it to package runtime and close it:
//
//	db, err := engine.Open(dir, engine.Options{})
//	…
//	defer db.Close()
//
// [Open] makes the store if the directory does not exist. One process at a time has a
// store open; another one gets STATE_LOCK_ACQUIRE_FAILED. After STORE_UNAVAILABLE, close
// the store and open it again: the open finds out what the disk has.
//
// A program that appends itself takes the lease of a trace with [DB.Acquire], appends with
// [DB.Append] and gives the lease back with [DB.Release]. [DB.Load] and [DB.Entries] read a
// trace, [DB.Follow] reads all traces in their global order, [DB.Check] checks the whole
// store, and [DB.Backup] copies it while it is open.
//
// # What a crash may do
//
// An append is part of one record of the log, and each record has one sync; appends that
// wait at the same time share a record. The power may fail at any write: the next [Open]
// finds every acknowledged append, and finds an append under way whole or not at all. If
// several appends to one trace are under way ([DB.Submit]), it finds the first few of them.
// If an acknowledged append is missing (a damaged log, a restored backup), the open
// detects it before it writes anything, and the store opens frozen.
//
// A failed write or sync poisons the store: the outcome of the failed append is unknown,
// and every later call returns STORE_UNAVAILABLE. Nothing is tried again, because the
// kernel may have dropped the bytes and may report success next time. Only the next Open
// finds out what is on disk.
//
// # Assumptions about the disk
//
// A completed fdatasync of a file makes its bytes durable. A completed fsync of a directory
// makes its names durable. Damage to bytes at rest is detected, not repaired. A roll-back of
// the whole directory to an earlier state of itself is detected only with a head that is
// kept elsewhere, see [Witness].
//
// # Invariants
//
//	I1 append-only   entry and note keys are written once           [DB.Append]  [DB.Check]       TestAppendNeverOverwrites
//	   begun once    a trace taken for new is not in the store     newTraces    [DB.Check]       TestTraceIsBegunOnce
//	I2 once          a key is reserved by one trace at a time       [DB.Append]  [DB.Check]       TestLedgerRule, TestOneReservationAmongRacers
//	I4 checkpoints   digest and entry agree, or it is skipped       [DB.LatestCheckpoint] [DB.Check] TestCheckpoints
//	I5 chain         entry n names the digest of n-1                [chain.Trace.Link] [chain.Trace.Apply] FuzzReplayTamper
//	I6 one writer    an append needs the current epoch              [DB.Append]  storetest        TestAppendOrderOfChecks, TestEpochsRiseOverRestarts
//	I7 atomicity     one record per append, all or nothing          [DB.Append]  [DB.Check]       TestCrashBetweenWrites
//	   durability    synced before its answer                       [Ticket.Wait] crashtest       TestOneSyncPerAppend, TestFailedSyncPoisons
//	   order         N+1 of a trace is durable only if N is         committer    crashtest        TestPowerCutKeepsWhatTicketsSaid
//	   visibility    readers see only durable appends               locks, tails, committer       TestNoReaderSeesAnUnsyncedBatch, TestNothingIsSaidOfAQueuedAppend
//	   one process   one opener of a directory, by any path         [Open]                         TestTwoProcessesOneStore
//	   derived       ledger, open index, order are f(entries,notes) [DB.Append]  [DB.Check]       TestCheckFindsEveryDamagedKey
//	   no gap        the order is shown up to its durable prefix    [DB.Follow]  [DB.Check]       TestFollowYieldsEveryAppendOnce
//	   doubt         missing acknowledgements freeze the store      [Open]                         TestLostAcknowledgementsFreezeTheStore
//	   archive       entries go only after their segment is durable [DB.SealTraces] [DB.Check]    TestHalfDoneArchivingIsFinishedAtOpen
//	   sealed        with a ring no artifact or document is in the clear [DB.Append]             TestSealedStoreHasNoValueOnDisk
//	   keyless       without its ring a store answers no call        [DB.Append], [DB.Record]     TestStoreWithoutItsRing
//	   erased        no erased content is left on the disk           [DB.Erase]   [DB.Check]      TestErasedIsNowhere
//	   erasing       an erasure that was begun is finished           [Open]                       TestCrashInAnErasure
//
// # Parts
//
// An opening inspects the disk, opens the log and its index, and becomes a [DB]; if it fails, it
// gives back what it took. A DB has two groups of parts: standing, which lasts from Open to Close,
// and opened, which [DB.Unfreeze] replaces. Each part holds references to the parts that it needs,
// and the comments at its locks say why concurrent use is safe. The parts are: traces and records
// (the locks of an append, and the caches), the committer, index (with reading, for one view of
// it), rewriting, sealer, eraser, leases, keyFilter, health. [DB.Append] and the functions that it
// calls are methods of DB, because they use nearly all of the parts.
//
// # The state store of Talos 9.3
//
// The seven operations of its §9.3.2, and the functions of this package that do them:
//
//	load_state(trace_id)                 [DB.State]; [DB.Load] with the artifacts
//	append_log_entry(entry)              [DB.Append], with [chain.NewArtifact.Entry] for a complete entry
//	list_log_entries(trace_id, after)    [DB.Entries]
//	write_checkpoint(checkpoint)         [DB.WriteCheckpoint], made from the log and not taken from the caller
//	load_latest_checkpoint(trace_id)     [DB.LatestCheckpoint]
//	acquire_trace_lock(trace_id)         [DB.Acquire]
//	release_trace_lock(trace_id)         [DB.Release]
//
// Package keyspace defines the layout of keys; docs/FORMAT.md describes the values.
package engine
