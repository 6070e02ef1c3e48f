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

// maxSlots bounds how many shims of one tool server run beside each other on one machine
// and user.
const maxSlots = 256

// Slot is a shim's place among those of the same tool server. Its lock is this
// process's; the lock beside it is inherited by the tool server and outlives a killed
// shim for as long as the tool server or a descendant does. Two shims that both live
// have different slots, so one never waits for the other's tool server; a shim that
// follows a killed one gets its slot and waits for what it left.
type Slot struct {
	Server  string // path of the lock that the tool server inherits
	Permits *Book  // those that are out, by trace: a successor gives them up
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

// Release gives the slot to who comes next.
func (s *Slot) Release() {
	_ = s.Permits.Close()
	_ = s.file.Close()
}
