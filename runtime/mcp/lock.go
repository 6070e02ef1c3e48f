//go:build unix

package mcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waitLock opens path and locks it, waiting until nobody else does or ctx ends.
//
// A flock belongs to the open file, not to the process: inherited by a child it is
// held until the child and all its descendants have closed it, which no kill of this
// process shortens.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	// Polled: a blocking flock cannot be given up when ctx ends.
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s is held by an earlier child: %w", path, context.Cause(ctx)), f.Close())
		}
	}
}
