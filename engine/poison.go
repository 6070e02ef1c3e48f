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

// health decides whether the store may be used: it is open, frozen, closing, closed or
// poisoned.
//
// After a failed write or sync it is unknown what the kernel did with the bytes: it may have
// dropped them and may report success next time. So the first failure poisons the store for
// good, and only what a later Open finds on disk counts.
type health struct {
	log *slog.Logger

	mu       sync.Mutex
	cause    error         // of the poisoning, nil while healthy
	poisoned chan struct{} // closed with cause set

	frozen atomic.Pointer[tga.Error] // why appends are refused, nil = writable
	// restored says that the store is frozen only because it was made from a backup.
	restored atomic.Bool
	opening  atomic.Bool // the store is being opened, see [health.failedOpen]
	begun    atomic.Bool // goroutines of the Pebble that is being opened may be running

	breaking sync.Once
	broken   chan struct{} // closed when a goroutine of Pebble has stopped for good, so that Pebble never closes

	gate    sync.Mutex
	closing bool
	users   int           // calls inside
	idle    chan struct{} // closed when closing is set and users is 0
	stop    chan struct{} // closed when closing is set
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

// poison records the first failure and wakes every waiting call.
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

// failure returns the error that poisoned the store, nil if the store is not poisoned.
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

// enter admits a call; the caller pairs every nil with one leave. Once the store closes, enter
// refuses every call, also one made inside another call, for example in the body of a range
// over Entries. So closing cannot wait for itself.
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

// stopped returns a channel that is closed when the store begins to close.
func (h *health) stopped() <-chan struct{} {
	h.gate.Lock()
	defer h.gate.Unlock()
	return h.stop
}

// writable returns why appends are refused, nil if they are not.
func (h *health) writable() error {
	if f := h.frozen.Load(); f != nil {
		return tga.Errorf(tga.StoreUnavailable, "the store is frozen: %w", error(f))
	}
	return nil
}

// waitFailed returns the error of a wait that ended because the store stopped or ctx ended.
func (h *health) waitFailed(what string, id tga.ID, err error) error {
	if sick := h.sick(); sick != nil {
		return sick
	}
	if err == error(tga.StoreUnavailable) {
		return tga.Errorf(tga.StoreUnavailable, "%s: the store is closed", what).In(id)
	}
	return tga.Errorf(tga.StateLockAcquireFailed, "%s: %w", what, err).In(id)
}

// freeze refuses writes from now on: because of doubt, or, if doubt is nil, because the store
// was opened read-only.
func (h *health) freeze(doubt *tga.Error) {
	if doubt == nil {
		doubt = tga.Errorf(tga.PermissionDenied, "opened read-only")
	} else {
		h.log.Error("the store is frozen", "error", doubt)
		h.restored.Store(false)
	}
	h.frozen.Store(doubt)
}

// fatal is the value with which [pebbleLog.Fatalf] panics inside guarded.
type fatal struct{ msg string }

// guarded runs a call of Pebble. Pebble reports an error that it cannot handle through
// Logger.Fatalf. That function must not return, because Pebble would then report a commit
// whose sync failed as successful. So Fatalf panics, and guarded turns that panic, or any
// other panic of Pebble, into the poisoning of the store.
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

// awaited runs a call of Pebble that waits for Pebble's own goroutines, as a flush does. If
// one of these goroutines fails for good, the store is poisoned and the call may never return;
// awaited then returns without it.
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

// Fatalf poisons the store and does not return. In a goroutine of a caller it panics, and
// [health.guarded] recovers. In a goroutine of Pebble's own nobody would recover, so Fatalf
// ends that goroutine: the process goes on, and its calls get STORE_UNAVAILABLE.
func (l pebbleLog) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	cause := errors.New("pebble: " + msg)
	_ = l.failed(cause) // does not return if the panic would make pebble.Open fail
	l.poison(cause)
	if insideGuarded() {
		panic(fatal{"pebble: " + msg})
	}
	l.endGoroutine()
}

// endGoroutine ends a goroutine of Pebble's own. Its work stays marked as under way, so
// Pebble does not do it again, and Pebble's Close would wait for it forever.
func (h *health) endGoroutine() {
	h.breakOff()
	goruntime.Goexit()
}

// breakOff records that Pebble will never close.
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

// failedOpen handles a failure in the goroutine that opens the store. It returns the error if
// Pebble may get it. elsewhere is true in any other goroutine.
//
// When pebble.Open fails, it closes the caches through which its goroutines read. After its first
// flush there are such goroutines, for statistics of tables and for compactions. They continue,
// and they panic on the closed caches in a place where nobody can recover (table_stats.go of
// v2.1.7 divides by the zero shards of a closed cache). So from the first flush on, pebble.Open
// must not get an error: failedOpen blocks its goroutine forever, and the caches stay open.
// [health.awaited] does not wait for that goroutine, so Open of the store returns the error. The
// memory of that Pebble is lost until the process ends; [opened.release] cuts it off from the
// disk. Before the first flush there is no such goroutine, and the error goes back to Pebble.
func (h *health) failedOpen(err error) (back error, elsewhere bool) {
	if !h.opening.Load() || !insideGuarded() {
		return err, true
	}
	if h.begun.Load() {
		h.stand(err)
	}
	return err, false
}

// stand poisons the store and blocks this goroutine forever.
func (h *health) stand(err error) {
	h.breakOff()
	h.poison(err)
	select {}
}

// lost is called when a log or a directory could not be written, see [guard.FSOptions].
func (h *health) lost(err error) {
	if _, elsewhere := h.failedOpen(err); elsewhere {
		h.stand(err)
	}
}

// failed is called after any other failed operation, see [guard.FSOptions].
func (h *health) failed(err error) error {
	err, _ = h.failedOpen(err)
	return err
}
