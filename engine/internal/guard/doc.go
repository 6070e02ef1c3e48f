// Package guard has what a store needs beside its log: a mark of how far the log was
// durable, kept apart from it, and a fence between the store and its disk.
//
//   - [Watermark] remembers the newest group that was acknowledged. Damage cannot take a
//     record from the end of the log without being noticed.
//   - [FS] lets nothing reach the disk any more once [Fenced.Shut] or [Fenced.Fence] was
//     called, and keeps from Pebble the errors that it would panic over.
//
// # Invariants
//
//	never backwards  the watermark only grows      [Watermark.Advance]     TestWatermarkNeverGoesBackwards
//	read only        ReadWatermark writes nothing                          TestReadWatermarkWritesNothing
//
// # The disk
//
// What is assumed of it: a completed sync of a file makes its data durable, a
// completed sync of a directory its names; without a sync any subset of 512-byte
// sectors and of names may be there after a power cut; a 64-byte slot within one
// sector is written wholly or not at all, and if it is not, its checksum says so.
package guard
