package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
)

// LockName is a file in a store's directory. Its lock says that a process has the store open.
const LockName = "tgad.lock"

// dirLock keeps other processes, and other opens of this one, out of a directory.
//
// Pebble's own lock is bound to the path that it was given and to the process, so the same
// directory can be opened twice through a symlink. dirLock is bound to the lock file itself, at
// the real path of the directory.
type dirLock struct {
	dir     *filelock.Dir
	witness *os.File // lock beside the witness file, nil without a witness
}

// lockDir resolves the directory's path and locks it. If fs is not the operating system's file
// system, no other process can see the directory, and Pebble's lock is enough.
func lockDir(fs vfs.FS, dir string) (string, *dirLock, error) {
	if vfs.Root(fs) != vfs.Default {
		return dir, nil, nil
	}
	absolute, err := filepath.Abs(dir)
	if err == nil {
		absolute, err = filepath.EvalSymlinks(absolute)
	}
	if err != nil {
		code := tga.StoreUnavailable
		if os.IsNotExist(err) {
			code = tga.NotFound
		}
		return "", nil, tga.Errorf(code, "open %s: %w", dir, err)
	}
	held, err := filelock.LockDir(absolute, LockName)
	if err != nil {
		code := tga.StoreUnavailable
		if errors.Is(err, filelock.ErrHeld) {
			code = tga.StateLockAcquireFailed
		}
		return "", nil, tga.Errorf(code, "open %s: %w", dir, err)
	}
	return absolute, &dirLock{dir: held}, nil
}

// watch checks every second that the lock file is still at the path where another process would
// lock it, until the function that it returns is called.
func (l *dirLock) watch(h *health, files *guard.Fenced) (end func()) {
	if l == nil {
		return nil
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				l.check(h, files)
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-ended
	})
}

// check stops the store if its lock is gone. A second process may have opened the directory, and
// if both wrote, the log would be damaged. After check nothing more reaches the disk.
func (l *dirLock) check(h *health, files *guard.Fenced) {
	if l == nil {
		return // no other process can see the directory
	}
	err := l.dir.Check()
	if err == nil {
		return
	}
	h.breakOff()
	h.poison(fmt.Errorf("the store's directory is no longer this process's alone: %w", err))
	files.Shut()
}

// release unlocks the directory. The lock file stays: if it were removed, two processes could
// lock two different files of the same name.
func (l *dirLock) release() error {
	if l == nil {
		return nil
	}
	err := l.dir.Close()
	if l.witness != nil {
		err = errors.Join(err, l.witness.Close())
	}
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "release the lock: %w", err)
	}
	return nil
}
