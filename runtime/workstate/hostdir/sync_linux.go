package hostdir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// canSyncAll says whether syncAll works on this system.
const canSyncAll = true

// syncAll makes everything on the file system of a directory durable.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
