//go:build !unix

package setup

import (
	"io/fs"
	"os"
)

// ownedLike does nothing: this platform has no file owners to set.
func ownedLike(*os.File, fs.FileInfo) error { return nil }
