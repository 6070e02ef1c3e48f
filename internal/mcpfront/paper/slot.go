//go:build unix

package paper

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// maxSlots bounds how many conversations with one tool server may share a state directory.
const maxSlots = 256

// Slot is a shim's place among the shims of the same tool server. This process holds the slot's
// own lock. The tool server inherits a second lock, which is held for as long as the tool server
// or one of its descendants lives, even after the shim was killed. Two living shims have
// different slots, so neither waits for the other's tool server. A shim that gets the slot of a
// killed one waits until that one's tool server has ended.
type Slot struct {
	Server  string // path of the lock that the tool server inherits
	Permits *Book  // permits in use, by trace: the next shim of the slot gives them up
	file    *os.File
}

// TakeSlot takes the first free slot of a tool server under a state directory.
func TakeSlot(dir, name string) (*Slot, error) {
	for n := range maxSlots {
		base := filepath.Join(dir, name+"."+strconv.Itoa(n))
		f, err := mcpraw.TryLock(base + ".shim.lock")
		if err != nil {
			return nil, err
		}
		if f != nil {
			permits, err := OpenBook(base + ".work.book")
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return &Slot{file: f, Server: base + ".server.lock", Permits: permits}, nil
		}
	}
	return nil, tga.Errorf(tga.LimitExceeded, "tool server %q: %d shims run already", name, maxSlots)
}

// Release frees the slot for another shim.
func (s *Slot) Release() {
	_ = s.Permits.Close()
	_ = s.file.Close()
}
