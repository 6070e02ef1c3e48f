package state

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Tx is a handle of a transaction, which may have several. Its methods may be called from any
// number of goroutines, for example by tool calls that run at once. After Commit or Discard every
// read or write returns STATE_INVALID_TRANSITION.
type Tx struct {
	*txn
	// The fields are guarded by scope.mu.
	ops []Op // made through this handle
	// own has the keys whose read is in ops, and lists says that a list of the keys is. The reads
	// of a handle whose call fails are not repeated, so another handle cannot rely on them.
	own   map[string]bool
	lists bool
}

// txn is what the handles of a transaction share.
type txn struct {
	ctx      context.Context // for its reads, as in database/sql
	scope    *scope
	level    Isolation
	id       tga.ID
	began    tga.Millis
	snapshot uint64 // the pinned version that it reads; only if level.snapshot

	// The rest is guarded by scope.mu.
	status  Status
	busy    bool // a commit is under way
	gone    bool // discarded while busy
	final   []Change
	applied bool // set by Apply: what it read may be older than snapshot

	reads      map[string]seen // first read of each key; only if level.snapshot
	listed     bool            // Keys was called
	writes     map[string]*write
	keys       map[string]bool // keys that count for MaxKeys
	undo       []undone
	savepoints []place
	bytes      int    // bytes of its operations, for MaxBytes
	made       uint64 // number of the newest operation
}

// seen is what the first read of a key found.
type seen struct {
	version uint64 // 0: the key was absent
	expires tga.Millis
}

// usable returns an error unless the transaction is open. The caller holds scope.mu.
func (t *txn) usable() error {
	if t.status != Pending || t.busy {
		status := string(t.status)
		if t.busy {
			status = "being committed"
		}
		return tga.Errorf(tga.StateInvalidTransition, "transaction %s is %s", t.id, status)
	}
	return t.scope.space.healthy()
}

// Get returns the value of a key as canonical JSON, nil if the key is absent. The JSON value null
// is not nil.
func (t *Tx) Get(key string) (json.RawMessage, error) {
	found, err := t.GetMany([]string{key})
	return found[key], err
}

// GetMany returns the values of those keys that are not absent, all at one instant. More than
// MaxKeys keys are LIMIT_EXCEEDED.
func (t *Tx) GetMany(keys []string) (map[string]json.RawMessage, error) {
	found, err := t.look(keys)
	if err != nil {
		return nil, err
	}
	out := make(map[string]json.RawMessage, len(found))
	for key, v := range found {
		out[key] = bytes.Clone(v.value)
	}
	return out, nil
}

// Exists says that a key has a value.
func (t *Tx) Exists(key string) (bool, error) {
	found, err := t.look([]string{key})
	return len(found) > 0, err
}

// Keys returns the keys that have a value, in order. It counts as a read of each key, and of the
// keys that others may add: at a level that promises repeatable reads, the commit returns
// STATE_CONFLICT if these change.
func (t *Tx) Keys() ([]string, error) {
	version, done, err := t.view()
	if err != nil {
		return nil, err
	}
	defer done()
	keys, err := t.scope.listed(t.ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, key := range keys {
		all[key] = true
	}
	t.scope.mu.Lock()
	for u := range t.scope.open {
		if u == t.txn || t.level == ReadUncommitted {
			for key := range u.writes {
				all[key] = true
			}
		}
	}
	if t.level.snapshot() {
		err = t.rememberList()
	}
	t.scope.mu.Unlock()
	if err != nil {
		return nil, err
	}
	found, err := t.lookAt(version, slices.Sorted(maps.Keys(all)), true)
	return slices.Sorted(maps.Keys(found)), err
}

// Set sets the value of a key to a JSON value. The value expires ttl from now, rounded up to
// milliseconds; never if ttl is zero. VALIDATION_ERROR for a bad key, value or ttl,
// LIMIT_EXCEEDED if something is too large.
func (t *Tx) Set(key string, value json.RawMessage, ttl time.Duration) error {
	op := Op{Op: Set, Key: key, Value: value}
	if ttl < 0 {
		return tga.Errorf(tga.ValidationError, "key %q: a time to live of %v", key, ttl)
	}
	if ttl > 0 {
		op.Expires = t.scope.space.now() + tga.Millis((ttl-1)/time.Millisecond+1)
	}
	if err := checkName("key", key); err != nil {
		return err
	}
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	return t.set(op)
}

// Delete makes a key absent.
func (t *Tx) Delete(key string) error {
	if err := checkName("key", key); err != nil {
		return err
	}
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	return t.set(Op{Op: Delete, Key: key})
}

// Append appends a JSON value to the list of a key, or makes a list if the key is absent. It does
// not count as a read of the key. VALIDATION_ERROR if the key's value is not a list.
func (t *Tx) Append(key string, value json.RawMessage) error {
	if err := checkName("key", key); err != nil {
		return err
	}
	value, err := canonical(key, value, 1)
	if err != nil {
		return err
	}
	version, done, err := t.view()
	if err != nil {
		return err
	}
	defer done()
	stored, err := t.read(version, []string{key})
	if err != nil {
		return err
	}
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	now := t.scope.space.now()
	base, err := t.under(key, stored[key], now)
	if err != nil {
		return err
	}
	op := Op{Op: Append, Key: key, Value: value}
	was := t.writes[key]
	if b := was.bottom(); b != nil {
		op.Fresh = b.value != nil && !cell{value: b.value, expires: b.expires}.alive(now)
		return t.add(op)
	}
	size := len("[]") + len(value)
	if base.alive(now) {
		if !list(base.value) {
			return noList(key)
		}
		size += len(base.value) - len("[]")
	}
	if was != nil {
		size += was.size + len(",")
	}
	if base.alive(now) && len(base.value) > len("[]") {
		size += len(",")
	}
	if size > MaxValue {
		return tooLong(key, size)
	}
	return t.add(op)
}

// set carries out a Set or a Delete. The caller holds scope.mu.
func (t *Tx) set(op Op) error {
	w := &write{expires: op.Expires}
	if op.Op == Set {
		value, err := canonical(op.Key, op.Value, 0)
		if err != nil {
			return err
		}
		op.Value, w.value, w.size = value, value, len(value)
	}
	if err := t.record(op); err != nil {
		return err
	}
	t.put(op.Key, w)
	return nil
}

// add carries out an Append. The caller holds scope.mu.
func (t *Tx) add(op Op) error {
	value, err := canonical(op.Key, op.Value, 1)
	if err != nil {
		return err
	}
	op.Value = value
	was := t.writes[op.Key]
	b := was.bottom()
	if op.Fresh || b != nil && b.value == nil {
		was = &write{value: []byte("[]"), size: len("[]")}
		b = was
	}
	if b != nil && !list(b.value) {
		return noList(op.Key)
	}
	// Behind a committed value, it is not known yet whether a comma is needed.
	w := &write{added: value, onto: was, size: len(value)}
	if was != nil {
		if w.size += was.size; b == nil || was.size > len("[]") {
			w.size += len(",")
		}
	}
	if w.size > MaxValue {
		return tooLong(op.Key, w.size)
	}
	if err := t.record(op); err != nil {
		return err
	}
	t.put(op.Key, w)
	return nil
}

func (t *txn) put(key string, w *write) {
	t.undo = append(t.undo, undone{key, t.writes[key]})
	t.scope.stamp++
	w.stamp = t.scope.stamp
	t.writes[key] = w
}

func noList(key string) error {
	return tga.Errorf(tga.ValidationError, "append to key %q: its value is no list", key)
}
