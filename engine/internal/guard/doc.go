// Package guard has two things that a store needs besides its log: a mark that records how far
// the log was durable, and a fence between the store and its disk.
//
//   - [Watermark] remembers the newest group that was acknowledged. So a loss of records at the
//     end of the log is detected.
//   - [FS] lets nothing reach the disk once [Fenced.Shut] or [Fenced.Fence] was called. It also
//     hides from Pebble the errors on which Pebble would panic.
//
// # Invariants
//
//	never backwards  the watermark only grows      [Watermark.Advance]     TestWatermarkNeverGoesBackwards
//	read only        ReadWatermark writes nothing                          TestReadWatermarkWritesNothing
//
// # The disk
//
// Assumptions: a completed sync of a file makes its data durable, and a completed sync of a
// directory makes its names durable. Without a sync, any subset of the 512-byte sectors and of the
// names may survive a power cut. A 64-byte slot within one sector is written wholly or not at all;
// if it is not, its checksum shows that.
package guard
