//go:build unix

package mcpraw

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/schemas/tga"
)

// TryLock opens a file and locks it. It returns nil if another holder has the lock. The file is
// created if needed and never removed.
//
// A flock belongs to the open file, not to the process. If a child inherits the file, the lock is
// held until the child and all its descendants have closed it, even if this process is killed.
func TryLock(path string) (*os.File, error) {
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
	err = errors.Join(err, f.Close())
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, tga.Errorf(tga.StoreUnavailable, "lock %s: %w", path, err)
}

// WaitLock locks a file. It waits until the lock is free or ctx ends.
func WaitLock(ctx context.Context, path string) (*os.File, error) {
	// It polls, because a blocking flock cannot be interrupted when ctx ends.
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f, err := TryLock(path)
		if err != nil || f != nil {
			return f, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("a tool server that was started earlier still runs (%s is locked): %w", path, context.Cause(ctx))
		}
	}
}
