//go:build unix

package wal

import (
	"io/fs"
	"syscall"
)

// linked reports whether a file may have more than one name.
func linked(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Nlink > 1
}
