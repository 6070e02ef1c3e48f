// Package duty is what one process of a store does at a time, with what it must remember of it: each delivery of audit
// records, each receiver of notices.
//
// # Invariants
//
//	one   of the processes of a store, one is on duty; but for what it had under way when it was cut off   [Duty.While]  TestDeliverersAreKilled
//	kept  only the process on duty moves what is kept, and its successor finds the newest                  [Duty.Keep]   TestStaleProcessRemembersNothing
package duty

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// Duty is one of them. Its methods may be called by several goroutines.
type Duty interface {
	// Take asks that this process be on duty. It returns what was kept, nil where nothing was, and whether this process is on
	// duty: also beside an error, where what was kept cannot be read. It may be called again.
	Take(ctx context.Context) (kept []byte, mine bool, err error)
	// Keep has who is on duty next find kept. [ErrLost]: another process is on duty.
	Keep(ctx context.Context, kept []byte) error
	// While returns a context that ends when it is not certain any more that this process is on duty.
	While(ctx context.Context) (context.Context, context.CancelFunc)
	// Leave lets another process go on duty.
	Leave(ctx context.Context) error
}

// ErrLost: another process is on duty, or may be.
var ErrLost = errors.New("another process is on duty, or may be")

// File is a duty of a store that one process has. What is kept is in a file.
type File string

// Take implements [Duty].
func (f File) Take(context.Context) (kept []byte, mine bool, err error) {
	kept, err = os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		kept, err = nil, access.MkdirDurable(filepath.Dir(string(f)))
	}
	return kept, true, err
}

// Keep implements [Duty]: a crash leaves the old or the new file.
func (f File) Keep(_ context.Context, kept []byte) error {
	return checkpoint.Replace(checkpoint.Disk, string(f), kept)
}

// While implements [Duty].
func (f File) While(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// Leave implements [Duty].
func (f File) Leave(context.Context) error { return nil }
