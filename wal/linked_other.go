//go:build !unix

package wal

import "io/fs"

// linked reports whether a file may have more than one name. This system does not tell, so it
// always may.
func linked(fs.FileInfo) bool { return true }
