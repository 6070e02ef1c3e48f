package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Operation says what was done to a key, or in a transaction.
type Operation string

// The operations. Only the first three occur in a [Change].
const (
	Set        Operation = "set"
	Delete     Operation = "delete"
	Append     Operation = "append"
	Read       Operation = "read" // recorded at levels with repeatable reads, at a key's first read
	List       Operation = "list" // likewise
	Checkpoint Operation = "checkpoint"
	Rollback   Operation = "rollback"
)

// Op is one operation of a transaction, in a form that can be stored.
type Op struct {
	N         uint64          `json:"n"` // its number among all operations of the transaction, from 1
	Op        Operation       `json:"op"`
	Key       string          `json:"key,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`     // of Set and Append
	Expires   tga.Millis      `json:"expires,omitempty"`   // of Set; of Read, when the value that was read expires; 0 = never
	Version   uint64          `json:"version,omitempty"`   // of Read, the version that was read; 0 = the key was absent
	Fresh     bool            `json:"fresh,omitempty"`     // of Append: to a new list, because the transaction's own had expired
	Savepoint string          `json:"savepoint,omitempty"` // of Checkpoint and Rollback
}

// Mark is a position among the operations made through a [Tx].
type Mark int

// Mark returns the current end of the operations.
func (t *Tx) Mark() Mark {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	return Mark(len(t.ops))
}

// Since returns the operations made through t since a mark, first reads included: what a tool
// did, to be stored with its effect. It includes operations that a Rollback undid, and the
// Rollback. The values are shared with t and must not be changed.
func (t *Tx) Since(m Mark) []Op {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if m < 0 || int(m) > len(t.ops) {
		return nil
	}
	return slices.Clone(t.ops[m:])
}

// ForCall returns another handle of the transaction, for one of several tool calls that run at
// once. Its Mark and Since cover only what is done through it.
func (t *Tx) ForCall() *Tx { return &Tx{txn: t.txn} }

// Apply repeats operations of an earlier transaction that was not committed, in the order in
// which they were made. Values, expiry and reads are those of the earlier transaction: if a value
// that it read has changed since, the commit is refused, as its own commit would have been.
// VALIDATION_ERROR for an invalid list of operations, STATE_CONFLICT if t itself has read another
// value. After an error nothing is repeated.
func (t *Tx) Apply(ops []Op) error {
	ops = slices.Clone(ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.N, b.N) })
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	to, made, size := t.here(), len(t.ops), t.bytes
	reads, keys, listed := maps.Clone(t.reads), maps.Clone(t.keys), t.listed
	own, lists := maps.Clone(t.own), t.lists
	for i, op := range ops {
		if err := t.repeat(op); err != nil {
			t.backTo(to)
			t.ops, t.bytes, t.reads, t.keys, t.listed = t.ops[:made], size, reads, keys, listed
			t.own, t.lists = own, lists
			return tga.Errorf(tga.CodeOf(err), "repeat operation %d of %d, %s: %w", i+1, len(ops), op.Op, err)
		}
	}
	t.applied = t.applied || len(ops) > 0
	return nil
}

func (t *Tx) repeat(op Op) error {
	switch op.Op {
	case Set, Append, Delete, Read:
		if err := checkName("key", op.Key); err != nil {
			return err
		}
	}
	switch op.Op {
	case Set:
		return t.set(op)
	case Append:
		return t.add(op)
	case Delete:
		op.Value, op.Expires = nil, 0
		return t.set(op)
	case Read:
		got := seen{op.Version, op.Expires}
		if was, ok := t.reads[op.Key]; ok {
			if was.version != got.version {
				return conflict(t.id, []string{op.Key})
			}
			return nil
		}
		return t.noteRead(op.Key, got)
	case List:
		return t.rememberList()
	case Checkpoint:
		return t.checkpoint(op.Savepoint)
	case Rollback:
		return t.rollback(op.Savepoint)
	}
	return tga.Errorf(tga.ValidationError, "operation %q: not one of a transaction's", string(op.Op))
}

// record adds an operation to the log, or refuses it if the transaction would become too large.
func (t *Tx) record(op Op) error {
	cost := opCost + len(op.Key) + len(op.Value)
	if t.bytes+cost > MaxBytes {
		return tga.Errorf(tga.LimitExceeded, "the operations of transaction %s have over %d bytes", t.id, MaxBytes)
	}
	if op.Key != "" && !t.keys[op.Key] {
		if len(t.keys) == MaxKeys {
			return tga.Errorf(tga.LimitExceeded, "transaction %s is about over %d keys", t.id, MaxKeys)
		}
		t.keys[op.Key] = true
	}
	t.bytes += cost
	if op.N == 0 { // a repeated operation keeps its number, and new ones are numbered after it
		op.N = t.made + 1
	}
	t.made = max(t.made, op.N)
	t.ops = append(t.ops, op)
	return nil
}

// place is a state of a transaction's writes to which it can return.
type place struct {
	name       string
	undo       int // length of txn.undo
	savepoints int // length of txn.savepoints
}

// undone is a key's write that another write replaced; nil: there was none.
type undone struct {
	key string
	was *write
}

func (t *txn) here() place { return place{undo: len(t.undo), savepoints: len(t.savepoints)} }

func (t *txn) backTo(p place) {
	for _, u := range slices.Backward(t.undo[p.undo:]) {
		if u.was == nil {
			delete(t.writes, u.key)
		} else {
			t.writes[u.key] = u.was
		}
	}
	t.undo, t.savepoints = t.undo[:p.undo], t.savepoints[:p.savepoints]
}

// Try runs f and makes its writes through t all or nothing, at every level: if f fails, its
// writes are undone. Nobody else may write to the transaction while f runs.
func (t *Tx) Try(f func() error) error {
	t.scope.mu.Lock()
	to, made, size, keys := t.here(), len(t.ops), t.bytes, maps.Clone(t.keys)
	own, lists := maps.Clone(t.own), t.lists
	t.scope.mu.Unlock()
	err := f()
	if err == nil {
		return nil
	}
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if t.usable() == nil {
		t.backTo(to)
		t.ops, t.bytes, t.keys, t.own, t.lists = t.ops[:made], size, keys, own, lists
	}
	return err
}

// Checkpoint makes a savepoint and returns its name. Under ReadUncommitted it returns
// VALIDATION_ERROR.
func (t *Tx) Checkpoint() (string, error) {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if err := t.usable(); err != nil {
		return "", err
	}
	// The id makes the name differ from every savepoint that is repeated from an earlier
	// transaction.
	name := fmt.Sprintf("%s-%d", t.id, t.made+1)
	return name, t.checkpoint(name)
}

func (t *Tx) checkpoint(name string) error {
	if t.level == ReadUncommitted {
		return tga.Errorf(tga.ValidationError, "a savepoint under %s", t.level)
	}
	if name == "" || t.savepoint(name) >= 0 {
		return tga.Errorf(tga.ValidationError, "savepoint %q of transaction %s: no name, or there already", name, t.id)
	}
	if err := t.record(Op{Op: Checkpoint, Savepoint: name}); err != nil {
		return err
	}
	p := t.here()
	p.name = name
	p.savepoints++ // the savepoint outlives a rollback to it
	t.savepoints = append(t.savepoints, p)
	return nil
}

func (t *txn) savepoint(name string) int {
	return slices.IndexFunc(t.savepoints, func(p place) bool { return p.name == name })
}

// Rollback undoes what was written since a savepoint, which stays; later savepoints are gone. The
// empty name undoes everything and removes all savepoints. Reads are not undone. NOT_FOUND if
// there is no such savepoint; VALIDATION_ERROR under ReadUncommitted, where only Discard undoes a
// write.
func (t *Tx) Rollback(savepoint string) error {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	return t.rollback(savepoint)
}

func (t *Tx) rollback(savepoint string) error {
	if t.level == ReadUncommitted {
		return tga.Errorf(tga.ValidationError, "a rollback under %s", t.level)
	}
	to := place{}
	if savepoint != "" {
		i := t.savepoint(savepoint)
		if i < 0 {
			return tga.Errorf(tga.NotFound, "savepoint %q of transaction %s", savepoint, t.id)
		}
		to = t.savepoints[i]
	}
	if err := t.record(Op{Op: Rollback, Savepoint: savepoint}); err != nil {
		return err
	}
	t.backTo(to)
	return nil
}
