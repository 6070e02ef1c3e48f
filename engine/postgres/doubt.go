package postgres

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// doubts says whether the whole store was frozen, for every process, and whether it is in quarantine since then. Two rows of
// tgad.meta have this; each renewal of the session reads them. The database fences a frozen store too: a process that has not
// learned of the freezing has no session, so it has no lease and appends nothing.
type doubts struct {
	s          *Store
	quarantine atomic.Pointer[Quarantine]

	mu      sync.Mutex
	own     *tga.Error // why this process froze the store
	told    *tga.Error // why the store is frozen according to the database; health.frozen is this value then
	changed uint64     // counts the writes of this process: rows that were read before a write are outdated
}

func (d *doubts) count() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Quarantine says that acknowledged appends may be missing from the store, and who accepted that.
type Quarantine struct {
	Who    string     // name of the person who accepted the loss
	Reason string     // why the store was frozen
	Since  tga.Millis // when it was accepted; calls begun before are in doubt
	Cursor uint64     // newest number of the order when the loss was accepted
}

// doubtColumns selects the reason of the freezing, and the quarantine.
const doubtColumns = `(SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'doubted'), (SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'quarantine')`

// read reads both rows and applies them to this process.
func (d *doubts) read(ctx context.Context, c *pgxpool.Conn) error {
	var doubted, quarantine []byte
	since := d.count()
	if err := c.QueryRow(ctx, "SELECT "+doubtColumns, d.s.o.Shard).Scan(&doubted, &quarantine); err != nil {
		return err
	}
	return d.hear(since, doubted, quarantine)
}

// hear applies rows that were read when the count of changes was since. If this process has written since then, it ignores them.
func (d *doubts) hear(since uint64, doubted, quarantine []byte) error {
	s := d.s
	var q *Quarantine
	if len(quarantine) > 0 {
		q = &Quarantine{}
		if err := json.Unmarshal(quarantine, q); err != nil {
			return damaged("the quarantine of the store cannot be read: %v", err)
		}
		s.times.raise(q.Since) // so later calls do not begin before it, whatever the clock says
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed != since {
		return nil
	}
	d.quarantine.Store(q) // first: who finds the store unfrozen finds this
	switch {
	case len(doubted) > 0 && d.told == nil:
		if d.told = damaged("%s", doubted); s.health.frozen.CompareAndSwap(nil, d.told) {
			s.log.Error("the store is frozen", "error", d.told)
		}
	case len(doubted) == 0 && d.told != nil:
		if s.health.frozen.CompareAndSwap(d.told, nil) {
			s.log.Warn("the store is unfrozen")
		}
		d.told, d.own = nil, nil
	}
	return nil
}

// Freeze makes every process of the store refuse appends, and ends their leases. Call it if evidence from outside shows that
// appends are missing or were replaced by others. If the store is frozen already, it keeps the earlier reason.
func (f Fleet) Freeze(reason string) error {
	s, d := f.s, &f.s.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed++
	why := damaged("%s", reason)
	if s.health.frozen.CompareAndSwap(nil, why) { // first, so that no call slips in before the row is durable
		d.own = why
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Patience)
	defer cancel()
	err := s.ask(ctx, "freeze", func(ctx context.Context, c *pgxpool.Conn) error {
		return s.transaction(ctx, c.Conn(), func(b *pgx.Batch) { b.Queue("SELECT tgad.doubt($1, $2)", s.o.Shard, []byte(reason)) })
	})
	if err == nil && d.told == nil {
		if d.told = d.own; d.told == nil {
			d.told = why
		}
	}
	return err
}

// why returns the reason of the freezing according to the database, nil if the database does not say that the store is frozen.
func (d *doubts) why() *tga.Error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

// Unfreeze opens a store for writing that [Fleet.Freeze] froze, in any process. acceptLoss is the operator's statement that
// appends may be missing; who names the operator and is recorded. The store is then in quarantine until
// [Fleet.EndQuarantine]. The other processes continue when they renew their sessions.
//
// VALIDATION_ERROR: this process froze by itself, because of an incomplete copy or because the primary lacks acknowledged
// appends. Then only a restart of the process helps.
func (f Fleet) Unfreeze(ctx context.Context, acceptLoss bool, who string) error {
	s := f.s
	frozen := s.health.frozen.Load()
	switch {
	case frozen == nil:
		return tga.Errorf(tga.ValidationError, "unfreeze: the store is not frozen")
	case !acceptLoss || who == "":
		return tga.Errorf(tga.ValidationError, "unfreeze: appends may be missing (%s): somebody must accept that by name", frozen)
	case frozen != s.doubts.why():
		return tga.Errorf(tga.ValidationError, "unfreeze: this process froze by itself (%s): start it anew once you accept the loss", frozen)
	}
	if err := s.health.enter(); err != nil {
		return err
	}
	defer s.health.leave()
	newest, err := newestTS(ctx, s)
	if err != nil {
		return err
	}
	since := max(s.times.now(), newest) + 1 // later than the begin of every call so far, also of calls in this millisecond
	last, _ := s.order.known()
	value, err := json.Marshal(Quarantine{Who: who, Reason: frozen.Error(), Since: since, Cursor: last})
	if err != nil {
		return tga.Errorf(tga.ValidationError, "unfreeze: %w", err)
	}
	accepted := false
	if err := s.once(ctx, "unfreeze", func(ctx context.Context, c *pgxpool.Conn) error {
		return s.transaction(ctx, c.Conn(), func(b *pgx.Batch) {
			b.Queue("SELECT tgad.accept($1, $2)", s.o.Shard, value).QueryRow(func(row pgx.Row) error { return row.Scan(&accepted) })
		})
	}); err != nil {
		return err
	}
	if accepted {
		s.log.Warn("the store is unfrozen", "by", who, "reason", frozen.Error())
	}
	return s.renew(ctx) // apply the change here too, as the other processes do
}

// EndQuarantine ends the quarantine. who names the person who examined what may have been lost.
func (f Fleet) EndQuarantine(ctx context.Context, who string) error {
	s := f.s
	if err := s.health.enterToWrite(); err != nil {
		return err
	}
	defer s.health.leave()
	if s.doubts.quarantine.Load() == nil || who == "" {
		return tga.Errorf(tga.ValidationError, "end the quarantine: there is none, or nobody is named")
	}
	if err := s.once(ctx, "end the quarantine", func(ctx context.Context, c *pgxpool.Conn) error {
		return s.transaction(ctx, c.Conn(), func(b *pgx.Batch) {
			b.Queue("SELECT tgad.must_be_here($1)", s.o.Shard)
			b.Queue("UPDATE tgad.meta SET value = '' WHERE shard = $1 AND name = 'quarantine'", s.o.Shard)
		})
	}); err != nil {
		return err
	}
	s.doubts.mu.Lock()
	s.doubts.changed++
	s.doubts.quarantine.Store(nil)
	s.doubts.mu.Unlock()
	s.log.Warn("the quarantine is ended", "by", who)
	return nil
}

// Quarantine returns the current quarantine of the store; ok is false if there is none.
func (f Fleet) Quarantine() (q Quarantine, ok bool) {
	if p := f.s.doubts.quarantine.Load(); p != nil {
		return *p, true
	}
	return q, false
}

// Quarantined implements [runtime.Store].
func (s *Store) Quarantined() (since tga.Millis, ok bool) {
	q, ok := s.Fleet().Quarantine()
	return q.Since, ok
}
