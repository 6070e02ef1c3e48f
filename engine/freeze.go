package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// Quarantine says that acknowledged appends may be missing from the store, and who accepted
// that. While it lasts, the runtime treats every call that was begun before it as possibly
// sent, whatever the log says. A write tool's first use of a key needs the caller's assertion
// that the key is fresh (docs/SEMANTICS.md).
type Quarantine struct {
	Who    string     // name of the person who accepted the loss
	Reason string     // why the store was frozen
	Since  tga.Millis // when it was accepted; calls begun before are in doubt
	Cursor uint64     // newest index of the order when the loss was accepted
}

// Quarantine returns the current quarantine of the store; ok is false if there is none.
func (db *DB) Quarantine() (q Quarantine, ok bool) {
	if p := db.quarantined.Load(); p != nil {
		return *p, true
	}
	return Quarantine{}, false
}

// Quarantined says whether the store is in quarantine, and since when.
func (db *DB) Quarantined() (since tga.Millis, ok bool) {
	q, ok := db.Quarantine()
	return q.Since, ok
}

// Freeze refuses writes from now on, also after the next open, until [DB.Unfreeze]. Call it if
// evidence from outside shows that appends are missing from the store or were replaced by
// others. Call it right after the open: an append that is under way may still be committed. If
// the store is frozen already, it keeps the earlier reason.
func (db *DB) Freeze(reason string) error {
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	if db.health.frozen.Load() != nil {
		return nil
	}
	value, err := json.Marshal(reason)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "freeze: %w", err)
	}
	db.health.freeze(damaged("%s", reason)) // first, so that no call slips in before the row is durable
	w := db.commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaDoubted), value)
	return db.commits.apply(w)
}

// Unfreeze opens a frozen store for writing. acceptLoss is the operator's statement that
// appends may be missing; who names the operator and is recorded. The store is then in
// quarantine until [DB.EndQuarantine].
//
// If the store is frozen because of its log, Unfreeze closes and reopens it; other calls get
// STORE_UNAVAILABLE meanwhile. Do not call Unfreeze in the body of a range over the store.
func (db *DB) Unfreeze(ctx context.Context, acceptLoss bool, who string) error {
	db.thawing.Lock()
	defer db.thawing.Unlock()
	frozen := db.health.frozen.Load()
	switch {
	case frozen == nil:
		return tga.Errorf(tga.ValidationError, "unfreeze: the store is not frozen")
	case db.forReading:
		return tga.Errorf(tga.StoreUnavailable, "unfreeze: the store was opened read-only")
	case !acceptLoss || who == "":
		return tga.Errorf(tga.ValidationError, "unfreeze: appends may be missing (%s): somebody must accept that by name", frozen)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	again := false
	if err := db.inside(func(o *opened) error { again = o.readOnly; return nil }); err != nil {
		return err
	}
	if again {
		if err := db.reopen(); err != nil {
			return err
		}
	}
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	// since is later than the begin of every call so far, also of calls in this millisecond.
	// Raising newest keeps later calls from beginning before since, whatever the clock says.
	since := max(db.times.now(), db.NewestTS()) + 1
	raise(&db.times.newest, int64(since))
	q := Quarantine{Who: who, Reason: frozen.Error(), Since: since, Cursor: db.order.durable()}
	value, err := json.Marshal(q)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "unfreeze: %w", err)
	}
	w := db.commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaQuarantine), value)
	w.delete(keyspace.AppendMeta(nil, metaFrozen))
	w.delete(keyspace.AppendMeta(nil, metaDoubted))
	if err := db.commits.apply(w); err != nil {
		return err
	}
	db.quarantined.Store(&q)
	db.health.frozen.Store(nil)
	db.rewrites.wake()
	db.log.Warn("the store is unfrozen", "by", who, "reason", q.Reason)
	return nil
}

// reopen opens the store again for writing, with a new timeline of its log and a new
// watermark. The store stays frozen.
func (db *DB) reopen() error {
	if !db.health.drain() {
		return tga.Errorf(tga.StoreUnavailable, "unfreeze: the store is closed")
	}
	db.cache.clear()
	o := &opening{standing: db.standing}
	o.opened = *db.opened // restart releases these parts first
	o.readOnly = false
	if err := o.restart(true, nil); err != nil {
		return errors.Join(err, o.release())
	}
	db.opened = &o.opened // no call is inside
	db.health.reopen()
	return nil
}

// EndQuarantine ends the quarantine. who names the person who examined what may have been lost.
func (db *DB) EndQuarantine(ctx context.Context, who string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	if err := db.health.writable(); err != nil {
		return err
	}
	if _, in := db.Quarantine(); !in || who == "" {
		return tga.Errorf(tga.ValidationError, "end the quarantine: there is none, or nobody is named")
	}
	w := db.commits.newWriter()
	w.delete(keyspace.AppendMeta(nil, metaQuarantine))
	if err := db.commits.apply(w); err != nil {
		return err
	}
	db.quarantined.Store(nil)
	db.log.Warn("the quarantine is ended", "by", who)
	return nil
}
