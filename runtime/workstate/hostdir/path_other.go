//go:build !unix

package hostdir

import (
	"os"
)

const noWait = 0

// syncPath syncs a file; a directory can't be synced here.
func syncPath(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func isNotDir(error) bool { return false }
func isNoFile(error) bool { return false }
func isNoLink(error) bool { return false }
