//go:build !unix

package wal

import "io/fs"

// linked reports whether a file may have more than one name: that is not known here.
func linked(fs.FileInfo) bool { return true }
