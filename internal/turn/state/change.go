package state

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Status says whether a transaction is open, committed or rolled back.
type Status string

// The statuses of a transaction.
const (
	Pending    Status = "pending"
	Committed  Status = "committed"
	RolledBack Status = "rolled_back"
)

// Change is what a transaction does to one key (OSSA 0.2.9 §1 phase 6).
type Change struct {
	Key       string          `json:"key"`
	Previous  json.RawMessage `json:"previous_value"` // nil, JSON null: absent
	New       json.RawMessage `json:"new_value"`      // likewise
	Operation Operation       `json:"operation"`      // Append if the transaction only appended to the key
}

// Transaction is the record of a transaction for a turn's journal.
type Transaction struct {
	ID        tga.ID     `json:"id"`
	StartedAt tga.Millis `json:"started_at"`
	Changes   []Change   `json:"changes"`
	Status    Status     `json:"status"`
}

// ID returns the transaction's id.
func (t *Tx) ID() tga.ID { return t.id }

// Changes returns the net change of each key, in the order of the keys. Inside the function that
// Commit calls, these are the changes of the commit, where an append extends the newest list.
// Before that, they are the changes as the level shows them. The values are shared with t and
// must not be changed. LIMIT_EXCEEDED if the previous values together have over MaxBytes.
func (t *Tx) Changes() ([]Change, error) {
	t.scope.mu.Lock()
	if t.final != nil || t.status != Pending {
		defer t.scope.mu.Unlock()
		return slices.Clone(t.final), nil
	}
	writes := maps.Clone(t.writes)
	t.scope.mu.Unlock()

	version, done, err := t.view()
	if err != nil {
		return nil, err
	}
	defer done()
	l := changes{tx: t.txn}
	for _, key := range slices.Sorted(maps.Keys(writes)) {
		stored, err := t.read(version, []string{key})
		if err != nil {
			return nil, err
		}
		t.scope.mu.Lock()
		now := t.scope.space.now()
		base, err := t.under(key, stored[key], now)
		if err == nil {
			err = t.usable() // if the transaction has ended, the values need not be those of its snapshot
		}
		t.scope.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if _, err := l.enter(key, writes[key], base, now); err != nil {
			return nil, err
		}
	}
	return l.list, nil
}

// Transaction returns the record of the transaction. Inside the function that Commit calls, its
// status is committed, which is true once the record is durable.
func (t *Tx) Transaction() (Transaction, error) {
	changes, err := t.Changes()
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	r := Transaction{ID: t.id, StartedAt: t.began, Changes: changes, Status: t.status}
	if r.Changes == nil {
		r.Changes = []Change{}
	}
	if t.busy && t.final != nil {
		r.Status = Committed
	}
	return r, err
}

// Status returns the status of the transaction.
func (t *Tx) Status() Status {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	return t.status
}

// changes collects the changes of a transaction.
type changes struct {
	tx       *txn
	list     []Change
	replaced int // bytes of previous values
}

// enter adds the change that a write makes to a committed value, and returns the value after it.
func (l *changes) enter(key string, w *write, base cell, now tga.Millis) (cell, error) {
	v, ok := w.over(base, now)
	if !ok || !w.blind() && len(v.value) > MaxValue {
		return cell{}, conflict(l.tx.id, []string{key})
	}
	c := Change{Key: key, Operation: w.operation()}
	if base.alive(now) {
		c.Previous = base.value
		if l.replaced += len(base.value); l.replaced > MaxBytes {
			return cell{}, tga.Errorf(tga.LimitExceeded, "the values that transaction %s replaces have over %d bytes", l.tx.id, MaxBytes)
		}
	}
	c.New = v.value
	l.list = append(l.list, c)
	return v, nil
}
