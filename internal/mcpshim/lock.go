//go:build unix

package mcpshim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

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
		f, err := tryLock(base + ".shim.lock")
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

// tryLock locks a file; nil where somebody else has it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "lock file: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, tga.Errorf(tga.StoreUnavailable, "lock %s: %w", path, err)
}

// waitLock locks a file, waiting until nobody else has it or ctx ends.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	// Polled: a blocking flock cannot be given up when ctx ends.
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f, err := tryLock(path)
		if err != nil || f != nil {
			return f, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("a tool server that an earlier shim started still runs (%s is locked): %w", path, context.Cause(ctx))
		}
	}
}
