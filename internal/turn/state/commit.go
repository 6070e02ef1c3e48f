package state

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Discard ends the transaction without its changes, unless it is committed. If its commit is
// under way, the transaction ends with that commit.
func (t *Tx) Discard() {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if t.busy {
		t.gone = true
		return
	}
	t.end(RolledBack)
}

// end ends the transaction. The caller holds scope.mu.
func (t *txn) end(status Status) {
	if t.status != Pending {
		return
	}
	t.status = status
	t.writes, t.reads, t.undo, t.keys, t.savepoints = map[string]*write{}, nil, nil, nil, nil
	delete(t.scope.open, t)
	if t.level.snapshot() {
		t.scope.release(t.snapshot)
	}
	t.scope.space.leave(t.scope)
}

// Commit checks the transaction and passes its attachments to commit. That function appends them
// to the store in one batch, together with everything else that must become true with them. There
// are no attachments if nothing is changed. Once the batch is durable, everybody sees the
// changes.
//
// commit may use the scope only through Changes and Transaction of this transaction. It is called
// once, or not at all if the commit is refused: STATE_CONFLICT, with a [Conflict] that names the
// keys. After an error the transaction is still pending, and may be discarded or committed again.
//
// The store decides whether the commit happened, not the result of commit. If commit returns an
// error although the batch is durable, the transaction is committed, and the error is returned.
// If the store does not answer, or commit returned STORE_UNAVAILABLE, everything in the space is
// STORE_UNAVAILABLE until the store is opened again.
func (t *Tx) Commit(ctx context.Context, commit func(context.Context, []chain.Attachment) error) error {
	if err := t.occupy(); err != nil {
		return err
	}
	defer t.vacate()
	if err := t.scope.lock(ctx); err != nil {
		return err
	}
	defer t.scope.unlock()
	p, err := t.plan(ctx)
	if err != nil {
		return err
	}
	t.scope.mu.Lock()
	t.final = p.changes
	t.scope.mu.Unlock()
	return t.carryOut(ctx, p, commit)
}

func (t *txn) occupy() error {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	t.busy = true
	return nil
}

func (t *txn) vacate() {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	t.busy = false
	if t.status == Pending {
		t.final = nil
		if t.gone {
			t.end(RolledBack)
		}
	}
}

// carryOut appends a plan with commit, and settles it in any case, even if commit panics.
func (t *txn) carryOut(ctx context.Context, p plan, commit func(context.Context, []chain.Attachment) error) (err error) {
	returned := false
	defer func() {
		if !returned {
			err = tga.Errorf(tga.GenericStateError, "commit of transaction %s: the function did not return", t.id)
		}
		err = t.settle(ctx, p, err)
	}()
	err = commit(ctx, p.list)
	returned = true
	return err
}

// settle finds out whether a plan was carried out.
func (t *txn) settle(ctx context.Context, p plan, err error) error {
	c := t.scope
	happened := err == nil
	if len(p.list) > 0 {
		if errors.Is(err, tga.StoreUnavailable) {
			return c.space.poison(err)
		}
		got, failed := c.readHead(context.WithoutCancel(ctx))
		switch {
		case failed != nil:
			return c.space.poison(errors.Join(err, failed))
		case got != p.head && got != c.head:
			return c.space.poison(errors.Join(err, elsewhere(c, got)))
		}
		if happened = got == p.head; !happened && err == nil {
			err = tga.Errorf(tga.GenericStateError, "commit of transaction %s: its attachments are not in the store", t.id)
		}
	}
	if happened {
		c.mu.Lock()
		c.head = p.head
		t.end(Committed)
		c.mu.Unlock()
	}
	return err
}

func elsewhere(c *scope, got head) error {
	return tga.Errorf(tga.GenericStateError, "%s %q is at version %d by transaction %s: another space has committed to it", c.name.Mode, c.name.ID, got.Version, got.Transaction)
}

// plan is a commit that passed its checks.
type plan struct {
	list    []chain.Attachment
	changes []Change
	head    head // after the commit
}

// plan checks the transaction against what is committed, and makes its attachments. The caller
// holds the gate.
func (t *txn) plan(ctx context.Context) (plan, error) {
	c := t.scope
	if got, err := c.readHead(ctx); err != nil {
		return plan{}, err
	} else if got != c.head {
		return plan{}, elsewhere(c, got)
	}
	p := plan{head: c.head, changes: []Change{}}
	if len(t.writes) == 0 {
		return p, nil
	}
	now := c.space.now()
	stale, err := t.stale(ctx, now)
	if err != nil {
		return plan{}, err
	}
	version, err := c.next()
	if err != nil {
		return plan{}, err
	}
	b := batch{version: version, pins: c.pinned(t.snapshot, t.level.snapshot()), list: listing{scope: c}}
	l := changes{tx: t}
	for _, key := range slices.Sorted(maps.Keys(t.writes)) {
		cells, err := c.cells(ctx, key)
		if err != nil {
			return plan{}, err
		}
		v, err := l.enter(key, t.writes[key], at(cells, c.head.Version), now)
		if errors.Is(err, tga.StateConflict) {
			stale = append(stale, key)
			continue
		}
		if err == nil && c.name.Mode != None {
			err = b.replace(ctx, key, cells, v)
		}
		if err != nil {
			return plan{}, err
		}
	}
	if len(stale) > 0 {
		return plan{}, conflict(t.id, stale)
	}
	p.changes = l.list
	lists, err := b.list.attachments()
	if err != nil || len(b.items) == 0 {
		return p, err
	}
	p.head = head{Format: tga.AgentStateVersion, Mode: c.name.Mode, ID: c.name.ID, Version: b.version, Transaction: t.id}
	raw, err := encode(p.head)
	p.list = append(append(b.items, lists...), c.item(c.id, 0, raw))
	return p, err
}

// stale returns the keys for which the level refuses the commit.
func (t *txn) stale(ctx context.Context, now tga.Millis) (keys []string, err error) {
	if !t.level.snapshot() {
		return nil, nil
	}
	c := t.scope
	for key, was := range t.reads {
		if t.level == RepeatableRead && t.writes[key] == nil {
			continue
		}
		changed := was.expires != 0 && now >= was.expires
		if !changed && (c.head.Version != t.snapshot || t.applied) {
			cells, err := c.cells(ctx, key)
			if err != nil {
				return nil, err
			}
			var is uint64
			if v := at(cells, c.head.Version); v.alive(now) {
				is = v.version
			}
			changed = is != was.version
		}
		if changed {
			keys = append(keys, key)
		}
	}
	if !t.listed {
		return keys, nil
	}
	// Keys has read every key that it knew of. Any other key that is there now was absent then.
	all, err := c.listed(ctx)
	for _, key := range all {
		if _, ok := t.reads[key]; ok || t.level == RepeatableRead && t.writes[key] == nil {
			continue
		}
		cells, err := c.cells(ctx, key)
		if err != nil {
			return nil, err
		}
		if at(cells, c.head.Version).alive(now) {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// batch collects the attachments of a commit, except for the lists of keys and the head.
type batch struct {
	version uint64
	pins    []uint64
	items   []chain.Attachment
	list    listing
}

// replace makes a value the newest version of a key, and drops the versions that nobody reads.
func (b *batch) replace(ctx context.Context, key string, cells []cell, v cell) error {
	c := b.list.scope
	keep := needed(cells, b.pins)
	for _, old := range cells {
		if !keep[old.version] {
			b.items = append(b.items, c.item(c.valueStream(key), old.version, nil))
		}
	}
	v.version = b.version
	switch there := v.value != nil || len(keep) > 0; {
	case there:
		b.items = append(b.items, c.put(key, v))
		if len(cells) == 0 {
			return b.list.change(ctx, key, true)
		}
	case len(cells) > 0:
		return b.list.change(ctx, key, false)
	}
	return nil
}
