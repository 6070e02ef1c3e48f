package state_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var bg = context.Background()

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

var session = state.Scope{Mode: state.Session, ID: "s"}

// tb is the common part of a test and a property test.
type tb interface {
	Helper()
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

// world is a space in a store on a file system of the test's, with the test's clock.
type world struct {
	tb
	disk  vfs.FS
	db    *engine.DB
	store runtime.Store // db, or the test's wrapper of it
	space *state.Space
	ring  engine.Keyring // nil: the store seals nothing
	dir   string         // "" is "store"

	mu  sync.Mutex
	now time.Time
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{tb: t, disk: vfs.NewMem(), now: time.UnixMilli(1_000_000)}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) options() engine.Options {
	return engine.Options{FS: w.disk, Keyring: w.ring, MemTableBytes: 1 << 20, CacheBytes: 1 << 20, FirstSegmentBytes: 64 << 10}
}

func (w *world) open() {
	w.Helper()
	var err error
	w.db, err = engine.Open(cmp.Or(w.dir, "store"), w.options())
	must(w, err)
	w.store = w.db
	w.use(w.db)
}

// use makes a space in a store.
func (w *world) use(store runtime.Store) {
	w.store = store
	w.space = state.Open(store, state.Options{Clock: w.clock})
}

func (w *world) close() {
	if w.db == nil {
		return
	}
	report, err := w.db.Check(bg)
	if err != nil || len(report.Problems) > 0 {
		w.Errorf("check: %v %v", report.Problems, err)
	}
	must(w, w.db.Close())
	w.db = nil
}

func (w *world) reopen() {
	w.Helper()
	w.close()
	w.open()
}

// append appends attachments, as a turn does.
func (w *world) append(ctx context.Context, list []chain.Attachment) error {
	return appendTo(ctx, w.store, list)
}

func appendTo(ctx context.Context, store runtime.Store, list []chain.Attachment) error {
	if len(list) == 0 {
		return nil
	}
	lease, err := store.Acquire(ctx, newID())
	if err != nil {
		return err
	}
	defer store.Release(lease)
	_, err = store.Append(ctx, lease, chain.Batch{Attachments: list})
	return err
}

func (w *world) begin(scope state.Scope, level state.Isolation) *tx {
	w.Helper()
	t, err := w.space.Begin(bg, scope, level)
	must(w, err)
	return &tx{w, t}
}

// tx is a transaction whose operations must succeed.
type tx struct {
	w *world
	*state.Tx
}

func (t *tx) set(key, value string) *tx { return t.setFor(key, value, 0) }

func (t *tx) setFor(key, value string, ttl time.Duration) *tx {
	t.w.Helper()
	must(t.w, t.Set(key, json.RawMessage(value), ttl))
	return t
}

func (t *tx) add(key, value string) *tx {
	t.w.Helper()
	must(t.w, t.Append(key, json.RawMessage(value)))
	return t
}

func (t *tx) del(key string) *tx {
	t.w.Helper()
	must(t.w, t.Delete(key))
	return t
}

// get returns the value of a key, "" where it is absent.
func (t *tx) get(key string) string {
	t.w.Helper()
	v, err := t.Get(key)
	must(t.w, err)
	return string(v)
}

func (t *tx) exists(key string) bool {
	t.w.Helper()
	ok, err := t.Exists(key)
	must(t.w, err)
	return ok
}

func (t *tx) wants(key, want string) {
	t.w.Helper()
	if got := t.get(key); got != want {
		t.w.Errorf("%s is %q, want %q", key, got, want)
	}
}

func (t *tx) try() error { return t.Commit(bg, t.w.append) }

func (t *tx) commit() {
	t.w.Helper()
	must(t.w, t.try())
}

// stored checks what is committed under a key of the session.
func (w *world) stored(key, want string) {
	w.Helper()
	t := w.begin(session, state.ReadCommitted)
	defer t.Discard()
	t.wants(key, want)
}

// items counts what the store has of state.
func (w *world) items() int {
	w.Helper()
	n := 0
	for _, err := range w.db.Attachments(bg, chain.AttachStream, nil) {
		must(w, err)
		n++
	}
	return n
}

func must(t tb, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t tb, err error, want tga.Code) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// wantConflict checks that a commit was refused for these keys.
func wantConflict(t tb, err error, keys ...string) {
	t.Helper()
	wantCode(t, err, tga.StateConflict)
	var c *state.Conflict
	if !errors.As(err, &c) || !slices.Equal(c.Keys, keys) {
		t.Errorf("%v, want a conflict about %q", err, keys)
	}
}
