package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// leases are those that this process was granted. The database has the word: what is here
// only spares questions to it.
type leases struct {
	mu   sync.Mutex
	held map[tga.ID]hold
	// late are leases that ended here and that the database does not know to have ended.
	late   map[chain.Lease]int64
	ended  chan struct{} // has a value when late has, or may have
	giving sync.Mutex    // one at a time tells the database
	// unsure is set when the database may have forgotten what was not synced, as a release.
	unsure atomic.Bool
	// asked are traces for whose lease the database was asked without an answer, and when. The question may
	// still reach it, also after the trace was let go of.
	asked map[tga.ID]time.Time
}

type hold struct {
	epoch   chain.Epoch
	session int64
	lent    int16 // 0 to nobody, 1 to somebody outside of the process, 2 and keeps nobody else out
}

// Values of hold.lent, and of the question from whom a lease may be taken.
const (
	lentTo, lentWeakly = 1, 2

	fromNobody, fromWeak, fromLent, fromAnybody = -1, 0, 1, 2
)

func (l *leases) init() {
	l.held, l.late, l.ended = map[tga.ID]hold{}, map[chain.Lease]int64{}, make(chan struct{}, 1)
	l.asked = map[tga.ID]time.Time{}
}

func (l *leases) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.held)
	clear(l.late)
	clear(l.asked) // their questions name a session that was ended
}

func (l *leases) granted(lease chain.Lease, session int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[lease.TraceID] = hold{epoch: lease.Epoch, session: session}
}

// of returns what is known of a lease; ok is false where it is not the newest one granted here.
func (l *leases) of(lease chain.Lease) (h hold, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok = l.held[lease.TraceID]
	return h, ok && h.epoch == lease.Epoch
}

func (l *leases) lend(lease chain.Lease, lent int16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[lease.TraceID]; h.epoch == lease.Epoch {
		h.lent = lent
		l.held[lease.TraceID] = h
	}
}

// end ends a lease here.
func (l *leases) end(lease chain.Lease) (h hold, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok = l.held[lease.TraceID]; !ok || h.epoch != lease.Epoch {
		return h, false
	}
	delete(l.held, lease.TraceID)
	return h, true
}

// allow reports whether a lease may be taken from whoever of this process has it.
func (l *leases) allow(id tga.ID, from int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[id]
	return !ok || from == fromAnybody || from == fromLent && h.lent != 0 || from == fromWeak && h.lent == lentWeakly
}

// strong reports whether somebody of this process has a lease of the trace that keeps others out.
func (l *leases) strong(id tga.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[id]
	return ok && h.lent != lentWeakly
}

const heldByAnother = "another holds its lease"

// grant asks the database for a lease. granted is false where another has it. Of this process
// one asks at a time: what the database says this process has is then known here, or forgotten.
func (s *Store) grant(ctx context.Context, id tga.ID, from int16) (lease chain.Lease, granted bool, err error) {
	if err := s.asking.enter(ctx, s.health.stop, id); err != nil {
		return lease, false, err
	}
	defer s.asking.leave(id)
	if !s.leases.allow(id, from) {
		return lease, false, nil
	}
	for {
		var code string
		var epoch, version, seq *int64
		session, wanted := s.session.next()
		err := s.ask(ctx, "acquire trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) (err error) {
			defer func() {
				if err != nil {
					s.leases.noAnswer(id)
				}
			}()
			// Asked again after an answer was lost, the question is known by its token.
			err = c.QueryRow(ctx, "SELECT o_code, o_epoch, o_version, o_seq FROM tgad.acquire($1, $2, $3, $4, $4, $5)",
				s.o.Shard, session, [16]byte(id), int64(wanted), from).Scan(&code, &epoch, &version, &seq)
			if err == nil && code == sqlElsewhere {
				err = &Elsewhere{Store: s.o.Shard, State: Leaving}
			}
			return err
		})
		switch {
		case err != nil:
			return chain.Lease{}, false, err
		case code == sqlSessionLate:
			if err := s.renew(ctx); err != nil {
				return chain.Lease{}, false, err
			}
			continue
		case code == sqlHeld:
			return chain.Lease{}, false, nil
		}
		lease = chain.Lease{TraceID: id, Epoch: chain.Epoch(*epoch)}
		s.leases.granted(lease, session)
		if *seq == 0 {
			s.keepView(view{trace: chain.NewTrace(id), version: *version, born: time.Now()})
		}
		s.changed.notify(id)
		return lease, true, nil
	}
}

// Acquire implements [runtime.Store].
func (s *Store) Acquire(ctx context.Context, id tga.ID) (chain.Lease, error) {
	return s.acquire(ctx, id, fromWeak)
}

// Overtake implements [runtime.Store]. A lease of another process's own run is taken only from a
// holder whatever it does; with lentOnly it is waited for.
func (s *Store) Overtake(ctx context.Context, id tga.ID, lentOnly bool) (chain.Lease, error) {
	if lentOnly {
		return s.acquire(ctx, id, fromLent)
	}
	return s.acquire(ctx, id, fromAnybody)
}

// releaseLag is how long a lease of another process is waited for also by who does not wait: whoever
// was answered there may ask here before the database has heard of the release.
const releaseLag = 250 * time.Millisecond

func (s *Store) acquire(ctx context.Context, id tga.ID, from int16) (chain.Lease, error) {
	if err := s.health.enterToWrite(); err != nil {
		return chain.Lease{}, err
	}
	defer s.health.leave()
	_, waits := ctx.Deadline()
	asking := ctx
	if !waits {
		asking = context.WithoutCancel(ctx)
	}
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		changed, cancel := s.changed.subscribe(id)
		lease, granted, err := s.grant(asking, id, from)
		if granted || err != nil {
			cancel()
			if err != nil && ctx.Err() != nil {
				err = waitFailed("acquire trace "+id.String(), id, ctx.Err())
			}
			return lease, err
		}
		if !waits && (time.Since(began) > releaseLag || !s.leases.allow(id, from)) {
			cancel()
			return chain.Lease{}, tga.Errorf(tga.StateLockAcquireFailed, "acquire trace %s: %s", id, heldByAnother).In(id)
		}
		select {
		case <-changed:
		case <-time.After(pause): // another process says nothing when it lets go
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.health.stop:
			err = tga.Errorf(tga.StoreUnavailable, "acquire trace %s: the store is closed", id)
		}
		cancel()
		if err != nil {
			return chain.Lease{}, waitFailed("acquire trace "+id.String()+": "+heldByAnother, id, err)
		}
	}
}

// Lend is Acquire for somebody outside of the processes of this store, who sends nothing of
// theirs: see [Store.Overtake]. own says of the trace as it stands whether what is to come is the
// peer's to append. Where it is not, the lease is weak: it keeps out other peers that are no
// more than that, and everybody else takes the trace as if nobody held it.
func (s *Store) Lend(ctx context.Context, id tga.ID, own func(*chain.Trace) bool) (chain.Lease, error) {
	asks := func() (as int16, err error) {
		t, err := s.Load(ctx, id)
		if tga.CodeOf(err) == tga.NotFound {
			t, err = chain.NewTrace(id), nil
		}
		if err != nil || own(t) {
			return lentTo, err
		}
		return lentWeakly, nil
	}
	as, err := asks()
	if err != nil {
		return chain.Lease{}, err
	}
	var from int16 = fromWeak
	if as == lentWeakly {
		from = fromNobody
	}
	lease, err := s.acquire(ctx, id, from)
	if err != nil {
		return lease, err
	}
	as, err = asks() // under the lease nothing moves: now it is certain whose the trace is
	known := false
	if err == nil {
		err = s.ask(ctx, "lend trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, "SELECT tgad.lend($1, $2, $3, $4, $5)", s.o.Shard, s.session.number(), [16]byte(id), int64(lease.Epoch), as).Scan(&known)
		})
	}
	if err == nil && !known {
		err = tga.Errorf(tga.StateLockAcquireFailed, "acquire trace %s: it was overtaken at once", id).In(id)
	}
	if err != nil {
		s.Release(lease)
		return chain.Lease{}, err
	}
	s.leases.lend(lease, as)
	s.changed.notify(id)
	return lease, nil
}

// Current implements [runtime.Store]. It asks the database, and where that does not answer, the
// lease is nobody's to rely on.
func (s *Store) Current(lease chain.Lease) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Patience)
	defer cancel()
	return s.vouch(ctx, lease) == nil
}

// While implements [runtime.Store]. The context ends when this process can no longer be certain that
// nobody has ended its session: the send is over before another may take the trace. Each renewal
// puts the end off. What a process that stands still has on the wire is not stopped.
func (s *Store) While(ctx context.Context, lease chain.Lease) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	h, ok := s.leases.of(lease)
	x := &whiled{session: h.session, store: s, over: func() { cancel(errLeaseOver) }}
	if !ok || !x.goesOn() {
		x.over()
	}
	return ctx, func() {
		x.stop()
		cancel(context.Canceled)
	}
}

// errLeaseOver is the cause of the end of a send.
var errLeaseOver = tga.Errorf(tga.StateConcurrentExecution, "the lease under which the call is sent could not be renewed in time")

// whiled is a send under a lease of a session.
type whiled struct {
	store   *Store
	session int64
	over    func()

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// goesOn looks at the session again when its time would be over; false where it is.
func (x *whiled) goesOn() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	session, left := x.store.session.left()
	if x.ended || session != x.session || left <= 0 {
		return x.ended
	}
	x.timer = time.AfterFunc(left, func() {
		if !x.goesOn() {
			x.over()
		}
	})
	return true
}

func (x *whiled) stop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	if x.timer != nil {
		x.timer.Stop()
	}
}

// Departed implements [runtime.Store]. Others may be at work beside this process: it is certain
// only where every session before the first one of this process was over then.
func (s *Store) Departed(epoch chain.Epoch) bool {
	return s.alone && epoch.Incarnation() < s.first
}

// vouch asks the database whether a lease is its trace's newest, for a while to come.
func (s *Store) vouch(ctx context.Context, lease chain.Lease) error {
	overtaken := tga.Errorf(tga.StateConcurrentExecution, "trace %s under epoch %#x: it was overtaken", lease.TraceID, uint64(lease.Epoch)).In(lease.TraceID)
	h, ok := s.leases.of(lease)
	if !ok {
		return overtaken
	}
	for late := false; ; late = true {
		left := int64(0)
		if err := s.ask(ctx, "vouch for trace "+lease.TraceID.String(), func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, "SELECT tgad.vouch($1, $2, $3, $4)", s.o.Shard, h.session, [16]byte(lease.TraceID), int64(lease.Epoch)).Scan(&left)
		}); err != nil {
			return err
		}
		if session, own := s.session.left(); left > 0 && session == h.session && own > 0 {
			return nil
		}
		// It is lost, or the session is late and nobody has ended it yet.
		if late {
			return overtaken
		}
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
}

// Release implements [runtime.Store]. The database is told soon after, of many releases at once.
func (s *Store) Release(lease chain.Lease) {
	h, ok := s.leases.end(lease)
	if !ok {
		return
	}
	s.leases.mu.Lock()
	s.leases.late[lease] = h.session
	s.leases.mu.Unlock()
	s.leases.look()
	s.changed.notify(lease.TraceID)
}

// look has the database be told of releases soon.
func (l *leases) look() {
	select {
	case l.ended <- struct{}{}:
	default: // somebody will look
	}
}

// Holder implements [runtime.Store]. It is gone where nobody has the lease, and where the session
// that has it is over: then that can append nothing more. It is unknown where the database
// does not answer.
func (s *Store) Holder(id tga.ID) ledger.Liveness {
	if s.leases.strong(id) {
		return ledger.HolderAlive
	}
	return s.heldElsewhere(id, 0, s.session.number())
}

// Held implements [runtime.Store]. What this process holds is known here, until it learns that another has
// overtaken it. Where the database does not answer, nobody is known to hold it.
func (s *Store) Held(lease chain.Lease) bool {
	if _, ok := s.leases.of(lease); ok {
		return true
	}
	return s.heldElsewhere(lease.TraceID, lease.Epoch, s.session.number()) == ledger.HolderAlive
}

// heldElsewhere says whether another session than the own one has the lease of a trace: the one of that epoch, or any one
// for 0.
func (d *database) heldElsewhere(id tga.ID, epoch chain.Epoch, own int64) ledger.Liveness {
	ctx, cancel := context.WithTimeout(context.Background(), d.o.Lease)
	defer cancel()
	var held bool
	if err := d.ask(ctx, "holder of trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, holdsNow, d.o.Shard, [16]byte(id), own, int64(epoch)).Scan(&held)
	}); err != nil {
		return ledger.HolderUnknown
	}
	if held {
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

// holdsNow asks whether another session has the lease of a trace. What this one has is known here.
const holdsNow = `SELECT EXISTS (SELECT 1 FROM tgad.heads WHERE shard = $1 AND trace = $2 AND session <> 0 AND lent <> 2
	AND session <> $3 AND ($4::int8 = 0 OR epoch = $4) AND NOT tgad.gone($1, $3, session))`
