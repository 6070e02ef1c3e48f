package postgres

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/schemas/tga"
)

// health says whether the store may be used.
type health struct {
	frozen atomic.Pointer[tga.Error] // why appends are refused, nil = they are not
	noRing error                     // the same, because the store is sealed and open without its ring

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
	stop   chan struct{}      // closed when the store closes
	life   context.Context    // ends once the store has closed and no call is inside
	end    context.CancelFunc // of life
}

func (h *health) init() {
	h.stop = make(chan struct{})
	h.life, h.end = context.WithCancel(context.Background())
}

// enter admits a call; every nil is paired with one leave.
func (h *health) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return tga.Errorf(tga.StoreUnavailable, "the store is closed")
	}
	h.users.Add(1)
	return nil
}

func (h *health) leave() { h.users.Done() }

// enterToWrite is enter for a call that changes the store.
func (h *health) enterToWrite() error {
	if f := h.frozen.Load(); f != nil {
		return tga.Errorf(tga.StoreUnavailable, "the store is frozen: %w", error(f))
	}
	if h.noRing != nil {
		return h.noRing
	}
	return h.enter()
}

// close refuses new calls and waits for the calls that have entered. It returns false if the store was
// closed before.
func (h *health) close() bool {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return false
	}
	h.closed = true
	close(h.stop)
	h.mu.Unlock()
	h.users.Wait()
	h.end()
	return true
}

// waitFailed returns the error of a wait for another caller that failed.
func waitFailed(what string, id tga.ID, err error) error {
	if tga.CodeOf(err) == tga.StoreUnavailable {
		return err
	}
	return tga.Errorf(tga.StateLockAcquireFailed, "%s: %w", what, err).In(id)
}
