package engine

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/filelock"
)

// Temporary indexes are directories under TMPDIR, locked by the process that uses them. A
// process that is killed leaves its directory behind; the next process that makes a temporary
// index removes it.
const (
	tempIndexPrefix = "tgad-index-"
	tempIndexLock   = "lock"
	tempIndexTries  = 100
)

// tempIndex is the temporary index of a store that is open for reading.
type tempIndex struct {
	dir  string
	lock *filelock.Dir
}

// makeTempIndex makes a directory and locks it. Before it is locked, another process may take it
// for one that was left behind and remove it; then makeTempIndex makes another one.
func makeTempIndex() (*tempIndex, error) {
	for try := 1; ; try++ {
		dir, err := os.MkdirTemp("", tempIndexPrefix)
		if err != nil {
			return nil, err
		}
		lock, err := filelock.TryDir(dir, tempIndexLock)
		if err == nil {
			if err = lock.Check(); err == nil {
				return &tempIndex{dir, lock}, nil
			}
			err = errors.Join(err, lock.Close())
		}
		taken := errors.Is(err, filelock.ErrHeld) || errors.Is(err, filelock.ErrLost) || errors.Is(err, fs.ErrNotExist)
		if !taken || try == tempIndexTries {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// remove removes the index. It releases the lock last, so that no other process removes the
// directory at the same time.
func (t *tempIndex) remove() error {
	if t == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(t.dir), t.lock.Close())
}

// sweep removes the temporary indexes of processes that were killed. It skips a directory that it
// cannot lock, which is in use, and the directories of other users.
func (t *tempIndex) sweep(log *slog.Logger) {
	if lock, err := filelock.TryDir(t.dir, tempIndexLock); err == nil {
		// A second lock succeeded, so locks on this system do not show which directories are in use.
		if err := lock.Close(); err != nil {
			log.Warn("the second lock of a temporary index stays", "dir", t.dir, "error", err)
		}
		return
	}
	above := filepath.Dir(t.dir)
	found, err := os.ReadDir(above)
	if err != nil {
		log.Warn("temporary indexes that were left behind are not looked for", "error", err)
	}
	for _, e := range found {
		dir := filepath.Join(above, e.Name())
		if !strings.HasPrefix(e.Name(), tempIndexPrefix) {
			continue
		}
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !access.Own(info) {
			continue
		}
		lock, err := filelock.TryDir(dir, tempIndexLock)
		if err != nil {
			continue
		}
		if err := (&tempIndex{dir, lock}).remove(); err != nil {
			log.Warn("a temporary index that was left behind stays", "dir", dir, "error", err)
			continue
		}
		log.Info("removed a temporary index that was left behind", "dir", dir)
	}
}
