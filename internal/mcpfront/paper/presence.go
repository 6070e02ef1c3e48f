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

// Presence is a file that is locked for as long as somebody is there: this process, or one
// client of its. The kernel gives the lock back the moment the process dies, so the log
// sees at once who is gone. A name is used once.
type Presence struct {
	Path string
	file *os.File
	end  sync.Once
}

// Names of presences. A file has its last name only once it is locked: one of that name
// whose lock is free is left over, and may be removed.
const (
	liveDir    = "live"
	liveSuffix = ".lock"
	liveMaking = ".new"
)

// Appear makes a presence under a state directory.
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

// Leave gives the lock back. The file stays: who is asked about it finds it free.
func (p *Presence) Leave() {
	if p != nil {
		// Closing gives the lock up whatever it returns, and nothing is written to the file.
		p.end.Do(func() { _ = p.file.Close() })
	}
}

// Remove is for a presence that nobody asks about any more.
func (p *Presence) Remove() {
	if p != nil {
		p.Leave()
		_ = os.Remove(p.Path) // one that stays is tidied by the next shim
	}
}

// Tidy removes what killed shims have left.
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
			_ = f.Close() // it was only locked, to see whether anybody had it
		}
	}
	return nil
}
