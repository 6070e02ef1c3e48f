// Package logfile reads files that were made from a store: a sealed segment, an export or an evidence
// file. It first verifies the whole file, and keeps in memory what a list shows of each trace. When a
// trace is requested, it is read from the file and verified again. A File answers like a daemon, so that
// the same web page shows both.
//
//	only read    the file is opened for reading, and no other is touched     [Open]        TestFilesAreOnlyRead
//	no worse     of a damaged file, what verified before the damage is shown [Open]        TestDamageIsSaidAndTheRestIsShown
//	proven       a change while the file is open is found at the next read   [File.Trace]  TestChangedWhileOpen
package logfile
