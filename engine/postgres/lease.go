package postgres

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// leases has the leases that this process was granted. The database is authoritative; this copy
// only saves round trips.
type leases struct {
	mu   sync.Mutex
	held map[tga.ID]hold
	// late has leases that ended here but are not yet released in the database.
	late   map[chain.Lease]int64
	ended  chan struct{} // signals that late may have leases
	giving sync.Mutex    // held while releases are sent to the database
	// unsure is set when the database may have lost commits that were not synced, such as releases.
	unsure atomic.Bool
	// asked has the traces for whose lease the database was asked without an answer, and the times. Such a
	// request may still reach the database, also after the trace was released.
	asked map[tga.ID]time.Time
}

type hold struct {
	epoch   chain.Epoch
	session int64
	lent    int16 // 0 not lent, 1 lent to a peer outside the process, 2 lent as a weak lease
}

// Values of hold.lent, and of the argument that says from which holders a lease may be taken.
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
	clear(l.asked) // these requests name a session that has ended
}

func (l *leases) granted(lease chain.Lease, session int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[lease.TraceID] = hold{epoch: lease.Epoch, session: session}
}

// of returns the hold of a lease; ok is false if it is not the newest lease granted here.
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

// end ends a lease in this process.
func (l *leases) end(lease chain.Lease) (h hold, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok = l.held[lease.TraceID]; !ok || h.epoch != lease.Epoch {
		return h, false
	}
	delete(l.held, lease.TraceID)
	return h, true
}

// allow reports whether a lease may be taken from its holder in this process, if there is one.
func (l *leases) allow(id tga.ID, from int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[id]
	return !ok || from == fromAnybody || from == fromLent && h.lent != 0 || from == fromWeak && h.lent == lentWeakly
}

// strong reports whether this process holds a lease of the trace that is not weak.
func (l *leases) strong(id tga.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[id]
	return ok && h.lent != lentWeakly
}

const heldByAnother = "another holds its lease"

// grant asks the database for a lease. granted is false if another holder has it. Only one goroutine
// of this process asks for a trace at a time. So a lease that the database has for this process is
// either known here, or its answer was lost.
func (s *Store) grant(ctx context.Context, id tga.ID, from int16) (lease chain.Lease, granted bool, err error) {
	if err := s.asking.enter(ctx, s.health.stop, id); err != nil {
		return lease, false, err
	}
	defer s.asking.leave(id)
	if !s.leases.allow(id, from) {
		return lease, false, nil
	}
	if err := s.session.unspent(ctx, s); err != nil {
		return lease, false, err
	}
	for {
		var code string
		var epoch, version, seq *int64
		var session int64
		var wanted chain.Epoch
		err := s.ask(ctx, "acquire trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) (err error) {
			defer func() {
				if err != nil {
					s.leases.noAnswer(id)
				}
			}()
			if session != s.session.number() { // the server of a new connection may not have the session that this process had
				session, wanted = s.session.next()
			}
			// If the answer is lost and the request is repeated, the database knows it by its token.
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

// Overtake implements [runtime.Store]. With lentOnly it takes only a lease that was lent, and waits
// for any other lease. Without lentOnly it takes the lease from any holder, also from a run of
// another process.
func (s *Store) Overtake(ctx context.Context, id tga.ID, lentOnly bool) (chain.Lease, error) {
	if lentOnly {
		return s.acquire(ctx, id, fromLent)
	}
	return s.acquire(ctx, id, fromAnybody)
}

// releaseLag is how long even a caller without a deadline waits for a lease of another process. That
// process may have answered its caller already, but its release may not have reached the database.
const releaseLag = 250 * time.Millisecond

func (s *Store) acquire(ctx context.Context, id tga.ID, from int16) (chain.Lease, error) {
	if err := s.health.enterToWrite(); err != nil {
		return chain.Lease{}, err
	}
	defer s.health.leave()
	if s.skew.err() != nil { // the machine may have slept, or the clock is right again
		if err := cmp.Or(s.renew(ctx), s.skew.err()); err != nil {
			return chain.Lease{}, err
		}
	}
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
		case <-time.After(pause): // a release by another process sends no signal here
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

// Lend is Acquire for a peer outside the processes of this store. The peer sends no call of these
// processes, so [Store.Overtake] takes the lease back. own gets the current trace and says whether
// its next artifact is the peer's to append. If not, the lease is weak: it keeps out only other
// peers that would get a weak lease. Everybody else gets the trace as if nobody held it.
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
	as, err = asks() // under the lease the trace does not change, so this answer holds
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

// Current implements [runtime.Store]. It asks the database. If the database does not answer, it
// returns false.
func (s *Store) Current(lease chain.Lease) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Patience)
	defer cancel()
	return s.vouch(ctx, lease) == nil
}

// While implements [runtime.Store]. The context ends when this process can no longer be certain that
// nobody has ended its session. So a send ends before another process may take the trace. Each
// renewal extends the time. Bytes that a hung process has already sent are not stopped.
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

// errLeaseOver is the cause of the context of [Store.While] when it ends.
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

// goesOn sets a timer that checks the session again when its time may be over. It returns false if the
// session is over.
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

// Departed implements [runtime.Store]. Other processes may be running. So it returns true only if every
// earlier session was over when the first session of this process began.
func (s *Store) Departed(epoch chain.Epoch) bool {
	return s.alone && epoch.Incarnation() < s.first
}

// vouch asks the database whether a lease is the newest of its trace, and its session not late.
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
		// The lease is lost, or the session is late and no process has ended it yet.
		if late {
			return overtaken
		}
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
}

// Release implements [runtime.Store]. The database gets the release soon afterwards, together with
// others.
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

// look makes keepReleases send releases to the database soon.
func (l *leases) look() {
	select {
	case l.ended <- struct{}{}:
	default: // a signal is pending already
	}
}

// Holder implements [runtime.Store]. The holder is gone if nobody has the lease, or if the session of
// the lease is over, because that session can append nothing more. It is unknown if the database does
// not answer.
func (s *Store) Holder(id tga.ID) ledger.Liveness {
	if s.leases.strong(id) {
		return ledger.HolderAlive
	}
	return s.heldElsewhere(id, 0, s.session.number)
}

// Held implements [runtime.Store]. A lease of this process counts as held until this process learns that it
// was overtaken. If the database does not answer, Held returns false.
func (s *Store) Held(lease chain.Lease) bool {
	if _, ok := s.leases.of(lease); ok {
		return true
	}
	return s.heldElsewhere(lease.TraceID, lease.Epoch, s.session.number) == ledger.HolderAlive
}

// heldElsewhere says whether a session other than own holds the lease of a trace with that epoch, or any lease if epoch
// is 0. It calls own once it has a connection, because a new primary may not have the session that this process had.
func (d *database) heldElsewhere(id tga.ID, epoch chain.Epoch, own func() int64) ledger.Liveness {
	ctx, cancel := context.WithTimeout(context.Background(), d.o.Lease)
	defer cancel()
	var held bool
	if err := d.ask(ctx, "holder of trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, holdsNow, d.o.Shard, [16]byte(id), own(), int64(epoch)).Scan(&held)
	}); err != nil {
		return ledger.HolderUnknown
	}
	if held {
		return ledger.HolderAlive
	}
	return ledger.HolderGone
}

// holdsNow asks whether another session has the lease of a trace. The leases of this session are known here.
const holdsNow = `SELECT EXISTS (SELECT 1 FROM tgad.heads WHERE shard = $1 AND trace = $2 AND session <> 0 AND lent <> 2
	AND session <> $3 AND ($4::int8 = 0 OR epoch = $4) AND NOT tgad.gone($1, $3, session))`
