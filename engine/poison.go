package engine

import (
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/schemas/tga"
)

// health is what decides whether the store may be used: open, frozen, closing, closed
// or poisoned.
//
// After a failed write or sync nothing is known of the bytes the kernel had: it may
// have dropped them and report success next time. So the first failure poisons the
// store for good, and only what a later Open finds on disk counts.
type health struct {
	log *slog.Logger

	mu       sync.Mutex
	cause    error         // of the poisoning, nil while healthy
	poisoned chan struct{} // closed with cause set

	frozen atomic.Pointer[tga.Error] // why nothing may be appended, nil = writable
	// restored says that the only reason is that the store was made from a backup.
	restored atomic.Bool
	opening  atomic.Bool // the store is being opened, see [health.failedOpen]
	begun    atomic.Bool // goroutines of the Pebble that is being opened may run

	breaking sync.Once
	broken   chan struct{} // closed when a goroutine of Pebble does not go on: it will never close

	gate    sync.Mutex
	closing bool
	users   int           // calls inside
	idle    chan struct{} // closed when closing and users is 0
	stop    chan struct{} // closed when closing
}

func (h *health) init(log *slog.Logger) {
	h.log = log
	h.poisoned, h.broken = make(chan struct{}), make(chan struct{})
	h.reopen()
}

func (h *health) reopen() {
	h.gate.Lock()
	defer h.gate.Unlock()
	h.closing, h.idle, h.stop = false, make(chan struct{}), make(chan struct{})
}

// poison records the first failure and wakes everybody who waits.
func (h *health) poison(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return
	}
	h.cause = err
	close(h.poisoned)
	h.log.Error("the store stops: a write or sync failed", "error", err)
}

// sick returns STORE_UNAVAILABLE once the store is poisoned.
func (h *health) sick() error {
	if why := h.failure(); why != nil {
		return tga.Errorf(tga.StoreUnavailable, "the store stopped: %w", why)
	}
	return nil
}

// failure is what poisoned the store, nil while nothing has.
func (h *health) failure() *tga.Error {
	select {
	case <-h.poisoned:
		h.mu.Lock()
		defer h.mu.Unlock()
		return tga.Errorf(tga.StoreUnavailable, "a write failed: %w", h.cause)
	default:
		return nil
	}
}

// enter admits a call; every nil is paired with one leave. A call made inside another
// one (in the body of a range over Entries, say) is refused once the store closes,
// so closing cannot wait for itself.
func (h *health) enter() error {
	if err := h.sick(); err != nil {
		return err
	}
	h.gate.Lock()
	defer h.gate.Unlock()
	if h.closing {
		return tga.Errorf(tga.StoreUnavailable, "the store is closed")
	}
	h.users++
	return nil
}

func (h *health) leave() {
	h.gate.Lock()
	defer h.gate.Unlock()
	if h.users--; h.closing && h.users == 0 {
		close(h.idle)
	}
}

// drain refuses new calls and waits for those inside. It reports false when the store
// is closing already.
func (h *health) drain() bool {
	h.gate.Lock()
	if h.closing {
		h.gate.Unlock()
		return false
	}
	h.closing = true
	close(h.stop)
	if h.users == 0 {
		close(h.idle)
	}
	h.gate.Unlock()
	<-h.idle
	return true
}

// stopped is closed when waiting has no more use: the store closes or is poisoned.
func (h *health) stopped() <-chan struct{} {
	h.gate.Lock()
	defer h.gate.Unlock()
	return h.stop
}

// writable returns why an append is refused, nil where it is not.
func (h *health) writable() error {
	if f := h.frozen.Load(); f != nil {
		return tga.Errorf(tga.StoreUnavailable, "the store is frozen: %w", error(f))
	}
	return nil
}

// waitFailed says why a wait ended: the store stopped, or ctx did.
func (h *health) waitFailed(what string, id tga.ID, err error) error {
	if sick := h.sick(); sick != nil {
		return sick
	}
	if err == error(tga.StoreUnavailable) {
		return tga.Errorf(tga.StoreUnavailable, "%s: the store is closed", what).In(id)
	}
	return tga.Errorf(tga.StateLockAcquireFailed, "%s: %w", what, err).In(id)
}

// freeze refuses writes from now on, for doubt or because the store is read-only.
func (h *health) freeze(doubt *tga.Error) {
	if doubt == nil {
		doubt = tga.Errorf(tga.PermissionDenied, "opened read-only")
	} else {
		h.log.Error("the store is frozen", "error", doubt)
		h.restored.Store(false)
	}
	h.frozen.Store(doubt)
}

// fatal is what Pebble's Fatalf panics with inside guarded.
type fatal struct{ msg string }

// guarded runs a call of Pebble. Pebble reports what it cannot go on after through
// Logger.Fatalf, which must not return: a failed sync would become a successful
// commit. Here that panic, and any other one of Pebble, poisons the store.
func (h *health) guarded(f func() error) (err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		cause, ok := r.(error)
		if f, isFatal := r.(fatal); isFatal {
			cause = errors.New(f.msg)
		} else if !ok {
			cause = fmt.Errorf("panic in pebble: %v", r)
		}
		h.poison(cause)
		err = h.sick()
	}()
	return f()
}

// awaited runs a call of Pebble that waits for Pebble's own goroutines, as a flush does.
// When one of those meets what it cannot go on after, the store is poisoned and the
// call may wait for ever; then nobody waits for the call.
func (h *health) awaited(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- h.guarded(f) }()
	select {
	case err := <-done:
		return err
	case <-h.poisoned:
	}
	select {
	case err := <-done: // it returned all the same
		return err
	default:
		return h.sick()
	}
}

// pebbleLog sends Pebble's messages to the store's logger.
type pebbleLog struct{ *health }

func (l pebbleLog) Infof(format string, args ...any) {
	l.log.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf poisons the store and does not return. In a goroutine of a caller it panics
// up to [health.guarded]; in one of Pebble's own, where nobody would recover, it ends that
// goroutine, so that an embedder's process lives on to see STORE_UNAVAILABLE.
func (l pebbleLog) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	cause := errors.New("pebble: " + msg)
	_ = l.failed(cause) // does not return where the panic would be a failure of pebble.Open
	l.poison(cause)
	if insideGuarded() {
		panic(fatal{"pebble: " + msg})
	}
	l.endGoroutine()
}

// endGoroutine ends a goroutine of Pebble's own. What it was doing stays marked as
// under way, so nobody does it again, and Pebble's Close would wait for it for ever.
func (h *health) endGoroutine() {
	h.breakOff()
	goruntime.Goexit()
}

// breakOff says that Pebble will never close.
func (h *health) breakOff() { h.breaking.Do(func() { close(h.broken) }) }

func insideGuarded() bool {
	var pcs [128]uintptr
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "engine.(*health).guarded") {
			return true
		}
		if !more {
			return false
		}
	}
}

// failedOpen decides what becomes of a failure in the goroutine that opens the store, and
// returns it where it may go back to Pebble. elsewhere is true in any other goroutine.
//
// pebble.Open cleans up when it fails: it closes the caches that its goroutines read through.
// Once it has flushed what it found in the logs there are such goroutines, for statistics of
// tables and for compactions; they go on, and panic over what is closed where nobody can
// recover (table_stats.go of v2.1.7 divides by the zero shards of a closed cache). So from the
// first flush on Pebble's Open never gets an error. It stands still where it is, what its
// goroutines use stays, and Open of the store returns what failed, for [health.awaited] does not
// wait for it. Its memory is lost until the process ends; [opened.release] cuts it off from the
// disk. Before the first flush there is no such goroutine, and the error goes back.
func (h *health) failedOpen(err error) (back error, elsewhere bool) {
	if !h.opening.Load() || !insideGuarded() {
		return err, true
	}
	if h.begun.Load() {
		h.stand(err)
	}
	return err, false
}

// stand poisons the store and keeps this goroutine for ever.
func (h *health) stand(err error) {
	h.breakOff()
	h.poison(err)
	select {}
}

// lost is told of a log or directory that was not written, see [guard.FSOptions].
func (h *health) lost(err error) {
	if _, elsewhere := h.failedOpen(err); elsewhere {
		h.stand(err)
	}
}

// failed is told of any other failed operation, see [guard.FSOptions].
func (h *health) failed(err error) error {
	err, _ = h.failedOpen(err)
	return err
}
