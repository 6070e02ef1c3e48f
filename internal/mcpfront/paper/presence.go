package paper

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Presence is a file that is locked for as long as this process, or one of its clients, lives.
// The kernel releases the lock the moment the process dies, so the log sees at once that it is
// gone. A file name is used only once.
type Presence struct {
	Path string
	file *os.File
	end  sync.Once
}

// Names of presences. A file gets the suffix .lock only after it was locked. So a .lock file whose
// lock is free is left over, and may be removed.
const (
	liveDir    = "live"
	liveSuffix = ".lock"
	liveMaking = ".new"
)

// Appear makes a presence in a state directory.
func Appear(state string) (*Presence, error) {
	dir, err := filepath.Abs(filepath.Join(state, liveDir))
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "make the directory of locks: %w", err)
	}
	path := filepath.Join(dir, rand.Text())
	f, err := mcpraw.TryLock(path + liveMaking)
	if err == nil && f == nil {
		err = errors.New("a lock of a new name is taken")
	}
	if err == nil {
		err = os.Rename(path+liveMaking, path+liveSuffix)
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "lock file: %w", err)
	}
	return &Presence{Path: path + liveSuffix, file: f}, nil
}

// Leave releases the lock. The file stays, so that the log can see that its lock is free.
func (p *Presence) Leave() {
	if p != nil {
		// Close releases the lock even if it returns an error, and nothing was written to the file.
		p.end.Do(func() { _ = p.file.Close() })
	}
}

// Remove releases the lock and removes the file. It is for a presence that the log does not look at
// any more.
func (p *Presence) Remove() {
	if p != nil {
		p.Leave()
		_ = os.Remove(p.Path) // if this fails, the next shim removes the file (Tidy)
	}
}

// Tidy removes the files that killed shims have left.
func Tidy(state string) error {
	dir := filepath.Join(state, liveDir)
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is none yet
	}
	if err != nil {
		return err
	}
	for _, e := range all {
		path := filepath.Join(dir, e.Name())
		if !strings.HasSuffix(e.Name(), liveSuffix) {
			continue
		}
		f, err := mcpraw.TryLock(path)
		if err != nil {
			return err
		}
		if f != nil {
			_ = os.Remove(path)
			_ = f.Close() // the lock was only taken to see whether it was free
		}
	}
	return nil
}
