// Package wal is the log of a store on disk. The log is the source of truth: every index
// beside it can be deleted and rebuilt from it.
//
// # What a log is
//
// A log is a chain of records over numbered segments. A record is one commit group: the
// operations of every append that became durable together, under one checksum, with one
// write and one sync. An operation sets or removes the row of a key. Its value may be as
// long as a record has room for. The value is part of the chain and stays for ever. A body
// is not part of the chain: the operation holds only the body's checksum, so the body can
// be compressed, moved or erased without touching anything else. This package does not
// interpret keys and values. The package that appends them does.
//
// # Usage
//
// [Create] makes a log in an empty directory, and [Log.Append] writes one group. Its operations
// are durable when it returns. Show none of them to anybody before that.
//
//	ops.PutBody(key, value, body)
//	group.Add(&ops, wal.MaxRecord)
//	position, err := log.Append(&group)
//
// An existing log is opened in three steps. [Open] finds its segments. [Log.Scan] passes every
// whole record to the caller, and the [Tail] it returns says where the log ends and whether
// records are missing. [Log.Resume] makes that end durable, and then appends may follow. A
// reader leaves out the third step. This package only reports a missing record. Package engine
// decides what it means.
//
// # Files
//
//	<n>            a raw segment, n in sixteen digits: written over, never extended
//	<n>.<g>.z      the same segment packed, generation g: see [Log.Rewrite]
//	spare packing  files that are being made; what a crash leaves of them is made anew
//
// A raw segment has its full length before it is used. Its identity is synced before its
// name, and its name before any record is written. See [Identity], and the formats above
// appendIdentity, header, [Op], link and packed.
//
// # Which bytes are accepted as a record
//
// A header's checksum begins with the salt of this use of the file, the number of the
// segment and the offset. It covers the checksum of the operations; the operations hold the
// checksum of each body; and the next record holds the checksum of this header. So bytes are
// a record only at the offset and in the order in which they were written. These are not
// accepted: records that an earlier use left in the file, records that were copied, and a
// body that contains the log's own bytes. No length is used before its checksum is verified.
//
// # What the end of a log means
//
// One group is written at a time, and only after the group before it was synced. So a torn
// group (one that is not whole) can only be the last, and it was not acknowledged. If any
// part of a later record is found, the missing record before it was acknowledged, and
// [Tail.Doubt] says so. If a group was cut off together with everything behind it, this
// package cannot tell that the group ever existed. A caller can tell if it keeps the newest
// acknowledged [Position] elsewhere.
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
