package state

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// view returns the version of the scope that a read sees now; done ends the read.
func (t *txn) view() (version uint64, done func(), err error) {
	t.scope.mu.Lock()
	err = t.usable()
	t.scope.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	if t.level.snapshot() {
		return t.snapshot, func() {}, nil
	}
	version, err = t.scope.pin(t.ctx)
	return version, func() { t.scope.unpin(version) }, err
}

// look returns the keys that have a value, as the transaction sees them.
func (t *Tx) look(keys []string) (map[string]cell, error) {
	if len(keys) > MaxKeys {
		return nil, tga.Errorf(tga.LimitExceeded, "%d keys are asked for: at most %d", len(keys), MaxKeys)
	}
	for _, key := range keys {
		if err := checkName("key", key); err != nil {
			return nil, err
		}
	}
	version, done, err := t.view()
	if err != nil {
		return nil, err
	}
	defer done()
	return t.lookAt(version, keys, false)
}

// lookAt reads keys at a version of the scope. A committed value that is hidden by the
// transaction's own write does not count as read, unless all is set: a list of keys shows whether
// the key is there without the write.
func (t *Tx) lookAt(version uint64, keys []string, all bool) (map[string]cell, error) {
	stored, err := t.read(version, keys)
	if err != nil {
		return nil, err
	}
	c := t.scope
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	now := c.space.now()
	out := map[string]cell{}
	for _, key := range keys {
		w := t.writes[key]
		if t.level.snapshot() && (all || !w.blind()) {
			if err := t.remember(key, stored[key], now); err != nil {
				return nil, err
			}
		}
		v, err := t.under(key, stored[key], now)
		if err != nil {
			return nil, err
		}
		if w != nil {
			var ok bool
			if v, ok = w.over(v, now); !ok {
				return nil, conflict(t.id, []string{key}) // the value is no longer a list
			}
		}
		if v.alive(now) {
			out[key] = v
		}
	}
	return out, nil
}

// read returns the committed values of keys at a version.
func (t *txn) read(version uint64, keys []string) (map[string]cell, error) {
	out := make(map[string]cell, len(keys))
	for _, key := range keys {
		cells, err := t.scope.cells(t.ctx, key)
		if err != nil {
			return nil, err
		}
		out[key] = at(cells, version)
	}
	return out, nil
}

// under returns the value below the transaction's own writes to a key. At levels with repeatable
// reads, that is the value of the first read: if it has expired since, it is still there, without
// an expiry.
func (t *txn) under(key string, stored cell, now tga.Millis) (cell, error) {
	if s, ok := t.reads[key]; ok {
		if s.version != 0 && s.version != stored.version {
			return cell{}, conflict(t.id, []string{key}) // repeated operations have read another version
		}
		if s.version == 0 {
			return cell{}, nil
		}
		stored.expires = 0
		return stored, nil
	}
	if t.level != ReadUncommitted {
		return stored, nil
	}
	var newest *write
	for u := range t.scope.open {
		if w := u.writes[key]; w != nil && u != t && (newest == nil || w.stamp > newest.stamp) {
			newest = w
		}
	}
	if newest == nil {
		return stored, nil
	}
	dirty, ok := newest.over(stored, now)
	if !ok {
		return stored, nil // that commit will be refused
	}
	return dirty, nil
}

// remember notes the first read of a key, in the transaction and in each handle.
func (t *Tx) remember(key string, stored cell, now tga.Millis) error {
	s, known := t.reads[key]
	if known && t.own[key] {
		return nil
	}
	if !known && stored.alive(now) {
		s = seen{stored.version, stored.expires}
	}
	return t.noteRead(key, s)
}

func (t *Tx) noteRead(key string, s seen) error {
	if err := t.record(Op{Op: Read, Key: key, Version: s.version, Expires: s.expires}); err != nil {
		return err
	}
	if t.own == nil {
		t.own = map[string]bool{}
	}
	t.reads[key], t.own[key] = s, true
	return nil
}

// rememberList notes that the keys were listed.
func (t *Tx) rememberList() error {
	if t.listed && t.lists {
		return nil
	}
	if err := t.record(Op{Op: List}); err != nil {
		return err
	}
	t.listed, t.lists = true, true
	return nil
}

// Conflict is the cause of a STATE_CONFLICT: keys that others changed.
type Conflict struct{ Keys []string }

// Error says how many keys there are, and names the first.
func (c *Conflict) Error() string {
	const most = 8
	text := ""
	for i, key := range c.Keys[:min(len(c.Keys), most)] {
		if i > 0 {
			text += ", "
		}
		text += `"` + key + `"`
	}
	if len(c.Keys) > most {
		text += ", …"
	}
	return "changed by others: " + text
}

func conflict(id tga.ID, keys []string) error {
	slices.Sort(keys)
	return tga.Errorf(tga.StateConflict, "transaction %s: %w", id, &Conflict{slices.Compact(keys)})
}
