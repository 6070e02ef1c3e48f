//go:build !unix

package setup

import (
	"io/fs"
	"os"
)

// ownedLike does nothing: owners are not told apart here.
func ownedLike(*os.File, fs.FileInfo) error { return nil }
