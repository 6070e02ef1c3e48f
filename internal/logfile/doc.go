// Package logfile reads what a store has left outside of itself: a sealed segment, an export or an
// evidence file. It verifies all of a file first and keeps in memory what a list shows of each trace; a
// trace that is asked for is read from the file and verified again. It answers as a daemon does, so that
// the same page shows both.
//
//	only read    the file is opened for reading, and no other is touched     [Open]        TestFilesAreOnlyRead
//	no worse     of a damaged file, what verified before the damage is shown [Open]        TestDamageIsSaidAndTheRestIsShown
//	proven       what changes while the file is open is found when it is read [File.Trace] TestChangedWhileOpen
package logfile
