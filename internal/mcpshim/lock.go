//go:build unix

package mcpshim

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// maxSlots bounds how many shims of one tool server run beside each other on one machine
// and user.
const maxSlots = 256

// slot is a shim's place among those of the same tool server. Its lock is this
// process's; the lock beside it is inherited by the tool server and outlives a killed
// shim for as long as the tool server or a descendant does. Two shims that both live
// have different slots, so one never waits for the other's tool server; a shim that
// follows a killed one gets its slot and waits for what it left.
type slot struct {
	file  *os.File
	child string // path of the lock that the tool server inherits
	work  *book  // the permits that are out, by trace: a successor gives them up
}

func takeSlot(dir, name string) (*slot, error) {
	for n := range maxSlots {
		base := filepath.Join(dir, name+"."+strconv.Itoa(n))
		f, err := mcpraw.TryLock(base + ".shim.lock")
		if err != nil {
			return nil, err
		}
		if f != nil {
			work, err := openBook(base + ".work.book")
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return &slot{file: f, child: base + ".server.lock", work: work}, nil
		}
	}
	return nil, tga.Errorf(tga.LimitExceeded, "tool server %q: %d shims run already", name, maxSlots)
}

func (s *slot) release() {
	_ = s.work.close()
	_ = s.file.Close()
}
