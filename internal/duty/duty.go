// Package duty assigns work that only one process of a store may do at a time, and keeps the state of that work. Each
// delivery of audit records and each receiver of notices is a duty.
//
// # Invariants
//
//	one   one process of a store is on duty, except for what a process had under way when it was cut off   [Duty.While]  TestDeliverersAreKilled
//	kept  only the process on duty changes the kept state, and its successor finds the newest              [Duty.Keep]   TestStaleProcessRemembersNothing
package duty

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// Duty is one piece of such work. Several goroutines may call its methods.
type Duty interface {
	// Take tries to put this process on duty. It returns the kept state, nil if there is none, and whether this process is on
	// duty. mine may be true even with an error: then the kept state cannot be read. Take may be called again.
	Take(ctx context.Context) (kept []byte, mine bool, err error)
	// Keep stores the state that the next process on duty finds. [ErrLost]: another process is on duty.
	Keep(ctx context.Context, kept []byte) error
	// While returns a context that ends when it is no longer certain that this process is on duty.
	While(ctx context.Context) (context.Context, context.CancelFunc)
	// Leave ends the duty of this process, so that another one can take it.
	Leave(ctx context.Context) error
}

// ErrLost: another process is on duty, or may be.
var ErrLost = errors.New("another process is on duty, or may be")

// File is a duty of a store that only one process can open. The kept state is in a file.
type File string

// Take implements [Duty].
func (f File) Take(context.Context) (kept []byte, mine bool, err error) {
	kept, err = access.ReadFile(string(f))
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
