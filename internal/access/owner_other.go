//go:build !unix

package access

import "io/fs"

func owner(fs.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

func self() Process { return Process{} }

// SyncDir makes the names in a directory durable, where a directory can be synced.
func SyncDir(string) error { return nil }

// KeepOwner does nothing: there is no umask.
func KeepOwner() {}
