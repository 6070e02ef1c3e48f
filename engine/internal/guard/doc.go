// Package guard protects a Pebble store from what Pebble itself does not notice.
//
// Pebble replays a write-ahead log (WAL) up to the first chunk it cannot read, and
// a MANIFEST up to the first record it cannot read, and calls what follows the
// torn end of an unfinished write. Where that place was once durable, records that
// were acknowledged are gone without an error. For a log whose last record decides
// whether a tool is called again, that is the worst failure there is.
//
// Three independent remedies:
//
//   - [Scan] reads MANIFEST and WALs strictly, before Pebble does, and tells a torn
//     tail from a hole in what was durable.
//   - [Watermark] remembers, in a file of its own, how far the store was durable;
//     [Report.Verify] compares the two.
//   - [FS] orders the writes of a new MANIFEST so that a power cut inside Open
//     leaves a store that opens, keeps disk-health checks on, sizes log files
//     before use, and counts.
//
// # Order of use
//
//	fs := FS(base, FSOptions{Dir: dir, OnFlushed: …})
//	report, mark, err := Check(fs, dir)   // an error: open frozen, write nothing
//	w, err := OpenWatermark(fs, dir, storeID, report.Empty())
//	fs.PrepareSpares()
//	pebble.Open(dir, …FS: fs…)            // calls OnFlushed, which calls w.Flushed
//	… commit, synced; w.Advance(seqnum); wake the waiters …
//	db.Close(); w.Close(); fs.Close()
//
// A new store is flushed once before its first record: Pebble creates its first WAL
// before it raises the format version, and that log carries no sync offsets.
//
// # Invariants
//
//	no silent loss   what was acknowledged is replayed, or Scan, Verify or
//	                 Pebble refuses                [Scan] [Report.Verify]  TestEveryFlippedByteIsHarmlessOrRefused
//	no false alarm   the torn tail of writes that were never synced is not a
//	                 problem                       [Scan]                  TestTornTailIsNotCorruption
//	never backwards  the watermark only grows      [Watermark.Advance]     TestWatermarkNeverGoesBackwards
//	mark before ack  a WAL is reused only after its flush is in the watermark
//	                                               [FS]                    TestFlushIsMarkedBeforeItsLogIsReused
//	read only        Scan, ReadWatermark and Verify write nothing            TestScanWritesNothing
//
// # The disk
//
// What is assumed of it: a completed sync of a file makes its data durable, a
// completed sync of a directory its names; without a sync any subset of 512-byte
// sectors and of names may be there after a power cut; a 64-byte slot within one
// sector is written wholly or not at all, and if it is not, its checksum says so.
package guard
