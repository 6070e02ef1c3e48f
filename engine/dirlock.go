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

// LockName is the file in a store's directory whose lock says that a process has the store.
const LockName = "tgad.lock"

// dirLock keeps other processes, and other opens of this one, out of a directory.
//
// Pebble's own lock is bound to the path it was given and to the process: the same
// directory by a symlink can be opened twice. This one is bound to the file itself,
// at the directory's real path.
type dirLock struct {
	dir     *filelock.Dir
	witness *os.File // lock beside the witness, nil without one
}

// lockDir resolves the directory's path and locks it. Where fs is not the operating
// system's, nobody else can see the directory and Pebble's lock is enough.
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

// watch looks every second whether the lock is still where another process would look
// for it, until the function that it returns is called.
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

// check stops the store where its lock is gone: a second process may have opened the
// directory, and what both write is the log of neither. Nothing reaches the disk after.
func (l *dirLock) check(h *health, files *guard.Fenced) {
	if l == nil {
		return // nobody else can see the directory
	}
	err := l.dir.Check()
	if err == nil {
		return
	}
	h.breakOff()
	h.poison(fmt.Errorf("the store's directory is no longer this process's alone: %w", err))
	files.Shut()
}

// release gives the directory up. The file stays: removing it would let two processes
// lock two files of one name.
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
