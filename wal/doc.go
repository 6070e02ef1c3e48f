// Package wal is the log of a store on disk: what is in it is what happened, and every
// index beside it can be thrown away and made again.
//
// # What a log is
//
// A log is a chain of records over numbered segments. A record is one commit group: the
// operations of every append that became durable together, under one checksum, with one
// write and one sync. An operation sets or removes the row of a key. Its value, of any
// length that a record takes, is part of the chain and stays for ever. A body is not part
// of the chain: its operation names its checksum, so it can be compressed, moved or erased
// without touching anything else. What a key or a value means is the business of the
// package that appends it.
//
// # Usage
//
// [Create] makes a log in an empty directory, and [Log.Append] writes one group. Its operations
// are durable when it returns, and nothing of them may be shown before.
//
//	ops.PutBody(key, value, body)
//	group.Add(&ops, wal.MaxRecord)
//	position, err := log.Append(&group)
//
// A log that is there is opened in three steps. [Open] finds its segments. [Log.Scan] passes every
// whole record on, and its [Tail] says where the log ends and whether something is missing.
// [Log.Resume] makes that end durable and lets appends follow. Who wants only to read leaves the
// third step out. Package engine decides what a missing record means: this package only tells.
//
// # Files
//
//	<n>            a raw segment, n in sixteen digits: written over, never extended
//	<n>.<g>.z      the same segment packed, generation g: see [Log.Rewrite]
//	spare packing  files that are being made; what a crash left of them is made anew
//
// A raw segment has its full length before it is used, its identity is synced before its
// name is, and its name before a record is written. See [Identity], and the formats above
// appendIdentity, header, [Op], link and packed.
//
// # Which bytes are believed
//
// A header's checksum begins with the salt of this use of the file, the number of the
// segment and the offset. It covers the checksum of the operations, and those name that of
// each body; the next record names it. So a record stands where it was written, in the
// order in which it was written, or it is none: what an earlier use left in the file, a
// record that was copied, and a body that holds the log's own bytes are not taken for one.
// No length is believed before the checksum over it was right.
//
// # What the end of a log means
//
// One group is on its way at a time, and it is written after the one before was synced. So
// a torn group can only be the last, and was not acknowledged. Where anything of a later
// record is found, what is missing before it was acknowledged, and [Tail.Doubt] says so.
// A group that was cut off together with everything behind it cannot be told from one that
// never was: a caller that keeps the newest acknowledged [Position] elsewhere can tell.
//
// # Invariants
//
//	whole      what Append acknowledged is read again          [Log.Append]   TestCrashBetweenAnyTwoWrites, TestEveryFailureStopsTheLog
//	told       damage is an error, a doubt, or an earlier end  [Log.Scan]     TestDamageIsTold, TestLostMiddleIsNoTornTail, TestDamageOfPackedIsTold
//	torn       half a group is no group, and no doubt          [Log.Scan]     TestTornGroupIsNone, TestHeaderBehindTornBodiesIsALoss
//	use        recycled and copied bytes are no records        [Identity]     TestRecycledBytesAreNoRecords, TestTornBodyWithARecordIsNone
//	durable    what was once read as the end stays             [Log.Resume]   TestLastRecordIsDurableAfterOpen, TestLastRecordIsWrittenAgain
//	same       a packed segment reads as the raw one did       [Log.Rewrite]  TestRewrittenSegmentReadsAsBefore, TestCrashInARewrite
//	reading    who reads a segment has its file to the end     [Log.Read]     TestReaderKeepsItsFile, TestRewriteWaitsForPins
//	evidence   a damaged body is not rewritten away            [Log.Rewrite]  TestDamagedBodyIsNotRewritten
package wal
