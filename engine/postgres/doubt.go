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

// doubts is whether somebody froze the store as a whole, for every process, and whether it is in quarantine since. Two rows
// of tgad.meta say it; each renewal of the session reads them. A frozen store is fenced in the database as well: whoever has
// not heard of it has no session, so no lease, and appends nothing.
type doubts struct {
	s          *Store
	quarantine atomic.Pointer[Quarantine]

	mu      sync.Mutex
	own     *tga.Error // why this process froze the store
	told    *tga.Error // why the database says it is: what health.frozen is then
	changed uint64     // counts what this process wrote: what was read before says nothing any more
}

func (d *doubts) count() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// Quarantine says that acknowledged appends may be missing from the store, and who accepted that.
type Quarantine struct {
	Who    string     // accepted the loss
	Reason string     // why the store was frozen
	Since  tga.Millis // when it was accepted; calls begun before are in doubt
	Cursor uint64     // newest number of the order then
}

// doubtColumns read what is doubted, and the quarantine.
const doubtColumns = `(SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'doubted'), (SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'quarantine')`

// read takes over what the database says.
func (d *doubts) read(ctx context.Context, c *pgxpool.Conn) error {
	var doubted, quarantine []byte
	since := d.count()
	if err := c.QueryRow(ctx, "SELECT "+doubtColumns, d.s.o.Shard).Scan(&doubted, &quarantine); err != nil {
		return err
	}
	return d.hear(since, doubted, quarantine)
}

// hear takes over what was read when this process had written so often.
func (d *doubts) hear(since uint64, doubted, quarantine []byte) error {
	s := d.s
	var q *Quarantine
	if len(quarantine) > 0 {
		q = &Quarantine{}
		if err := json.Unmarshal(quarantine, q); err != nil {
			return damaged("the quarantine of the store cannot be read: %v", err)
		}
		s.times.raise(q.Since) // what begins from now on is not before it, whatever the clock says
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

// Freeze has every process of the store take no append any more, and their leases end: somebody outside of it knows of
// appends that are missing, or of others in their place. Of a store that is frozen already the reason stays.
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

// why is why the database says that the store is frozen, nil where it does not.
func (d *doubts) why() *tga.Error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

// Unfreeze takes a store into service again that [Fleet.Freeze] froze, in any process. acceptLoss is the operator's statement
// that appends may be missing; who is recorded with it. The store is then in quarantine until [Fleet.EndQuarantine]. The
// other processes go on when they renew their sessions.
//
// What froze one process alone, as a copy that is not whole or a primary that lacks acknowledged appends, ends with that
// process: VALIDATION_ERROR.
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
	since := max(s.times.now(), s.NewestTS()) + 1 // later than anything begun so far, also within this millisecond
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
	return s.renew(ctx) // it hears of it as the others do
}

// EndQuarantine ends the quarantine: somebody has looked at what may have been lost.
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

// Quarantine returns the quarantine that the store is in; ok is false where it is in none.
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
