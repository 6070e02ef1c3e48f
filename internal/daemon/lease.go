package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// leasing is a request about the lease of one trace, or under it.
type leasing struct{ *request }

// leaseTable keeps the leases that peers hold over the socket. A lease of the store does not
// expire. One that a peer holds does, because the daemon cannot see the peer die. After that
// another peer can append. The end of a lease never licenses a send: the epoch keeps the old
// holder out of the log, and a call that it may have sent is in doubt.
type leaseTable struct {
	db    Store
	limit func() int // of leases held

	mu   sync.Mutex
	held map[string]*heldLease // by token
	// over are the leases that have ended, the oldest first. With it a peer whose lease ended is told so, and not
	// that there never was such a lease. It has at most as many leases as may be held.
	over []endedLease
}

type endedLease struct {
	token string
	lease chain.Lease
}

// heldLease is one lease. Its token is random and secret, because an epoch could be guessed.
type heldLease struct {
	lease   chain.Lease
	expires time.Time
	timer   *time.Timer
}

func newLeaseTable(db Store, limit func() int) *leaseTable {
	return &leaseTable{db: db, limit: limit, held: map[string]*heldLease{}}
}

// add puts a granted lease in the table and returns its token.
func (t *leaseTable) add(l chain.Lease, ttl time.Duration) (string, time.Time, error) {
	var secret [16]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", time.Time{}, tga.Errorf(tga.StoreUnavailable, "no randomness: %w", err)
	}
	token := hex.EncodeToString(secret[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.held) >= t.limit() {
		return "", time.Time{}, tooMany("%d leases are held over the socket", t.limit())
	}
	h := &heldLease{lease: l, expires: time.Now().Add(ttl)}
	h.timer = time.AfterFunc(ttl, func() { t.expire(token) })
	t.held[token] = h
	return token, h.expires, nil
}

// lookup returns the lease of a token, also one that has ended: the store then refuses the append. For an unknown token
// it returns a lease of epoch zero, which permits nothing.
func (t *leaseTable) lookup(token string, trace tga.ID) chain.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.held[token]; h != nil && h.lease.TraceID == trace {
		return h.lease
	}
	for _, e := range t.over {
		if e.token == token && e.lease.TraceID == trace {
			return e.lease
		}
	}
	return chain.Lease{TraceID: trace}
}

// drop takes a lease out of the table, and remembers that it has ended. No moment is between the two: the token is
// never unknown. The caller holds t.mu, and releases the lease afterwards, without t.mu.
func (t *leaseTable) drop(token string, h *heldLease) {
	delete(t.held, token)
	h.timer.Stop()
	t.over = append(t.over, endedLease{token, h.lease})
	t.over = t.over[max(0, len(t.over)-t.limit()):]
}

// renew gives a held lease another ttl, from now on.
func (t *leaseTable) renew(token string, trace tga.ID, ttl time.Duration) (*heldLease, error) {
	// Ask without the mutex: the store may have to ask another machine, and others would wait.
	lease := t.lookup(token, trace)
	if !t.db.Current(lease) && t.release(token, trace) {
		return nil, tga.Errorf(tga.StateConcurrentExecution, "the lease was taken back: a person has decided about the trace").In(trace)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held[token]
	if h == nil || h.lease.TraceID != trace {
		return nil, over(lease)
	}
	h.expires = time.Now().Add(ttl)
	h.timer.Reset(ttl)
	return &heldLease{lease: h.lease, expires: h.expires}, nil
}

// expire ends a lease whose time is over. It does nothing if the lease was renewed meanwhile.
func (t *leaseTable) expire(token string) {
	t.mu.Lock()
	h := t.held[token]
	if h == nil || time.Until(h.expires) > 0 {
		t.mu.Unlock()
		return
	}
	t.drop(token, h)
	t.mu.Unlock()
	t.db.Release(h.lease)
}

// release ends a lease and says whether it was held.
func (t *leaseTable) release(token string, trace tga.ID) bool {
	t.mu.Lock()
	h := t.held[token]
	if h == nil || h.lease.TraceID != trace {
		t.mu.Unlock()
		return false
	}
	t.drop(token, h)
	t.mu.Unlock()
	t.db.Release(h.lease)
	return true
}

// releaseAll ends every lease, when the daemon stops.
func (t *leaseTable) releaseAll() {
	t.mu.Lock()
	all := t.held
	t.held = map[string]*heldLease{}
	t.mu.Unlock()
	for _, h := range all {
		h.timer.Stop()
		t.db.Release(h.lease)
	}
}

func (t *leaseTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}

// over is the error of a request under a lease that is not current. The lease is as [leaseTable.lookup] returned it.
func over(lease chain.Lease) error {
	if lease.Epoch == 0 {
		return notHeld(lease.TraceID)
	}
	return tga.Errorf(tga.StateConcurrentExecution, "the lease has ended: take one, and read the trace first").In(lease.TraceID)
}

func notHeld(trace tga.ID) error {
	return tga.Errorf(tga.StateLockAcquireFailed, "no lease has this token: take one").In(trace)
}

// underToken rewords a refusal of an append under an unknown token: its caller knows tokens, and the store's words name
// an epoch.
func underToken(err error, lease chain.Lease) error {
	if lease.Epoch == 0 && tga.CodeOf(err) == tga.StateLockAcquireFailed {
		return notHeld(lease.TraceID)
	}
	return err
}

// acquire takes the lease of a trace, which need not exist yet.
func (q leasing) acquire() (any, error) {
	m, id, ttl, err := q.leaseRequest()
	if err != nil {
		return nil, err
	}
	if m.Lease != "" {
		return nil, tga.Errorf(tga.ValidationError, "leave `lease` out when you take a lease").At("/lease").In(id)
	}
	if q.d.leases.count() >= q.d.conf().Limits.Leases {
		return nil, tooMany("%d leases are held over the socket", q.d.conf().Limits.Leases)
	}
	// A caller that gives no time does not wait for another holder.
	ctx := q.r.Context()
	if limit, err := q.timeout(); err != nil {
		return nil, err
	} else if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	lease, err := q.d.db.Lend(ctx, id, func(t *chain.Trace) bool { return runtime.OwnTrace(t, q.peer.name()) && !q.streams(id) })
	if err != nil {
		return nil, err
	}
	token, expires, err := q.d.leases.add(lease, ttl)
	if err != nil {
		q.d.db.Release(lease)
		return nil, err
	}
	return leaseOf(token, lease, expires), nil
}

// streams reports whether the id is that of a stream: a turn, or what the runtime keeps beside
// the traces. Only the daemon appends to those.
func (q leasing) streams(id tga.ID) bool {
	for range q.d.db.Attachments(q.r.Context(), chain.AttachStream, id[:]) {
		return true // also for an error: then it is not known to be the peer's
	}
	return false
}

func (q leasing) renew() (any, error) {
	m, id, ttl, err := q.heldRequest()
	if err != nil {
		return nil, err
	}
	h, err := q.d.leases.renew(m.Lease, id, ttl)
	if err != nil {
		return nil, err
	}
	return leaseOf(m.Lease, h.lease, h.expires), nil
}

func (q leasing) release() (any, error) {
	m, id, _, err := q.heldRequest()
	if err != nil {
		return nil, err
	}
	return wire.Released{Released: q.d.leases.release(m.Lease, id)}, nil
}

// leaseRequest decodes a request for the lease of a trace. The trace must be of the peer's
// namespace, or not exist yet.
func (q leasing) leaseRequest() (m wire.LeaseRequest, id tga.ID, ttl time.Duration, err error) {
	if m, id, ttl, err = q.heldRequest(); err != nil {
		return
	}
	if _, err = q.trace(id); tga.CodeOf(err) == tga.NotFound {
		if _, loadErr := q.d.db.Load(q.r.Context(), id); tga.CodeOf(loadErr) != tga.NotFound {
			return // the trace is of another namespace
		}
		err = nil
	}
	return
}

// heldRequest decodes a request about a lease that the peer says it holds. Its token is the
// proof. heldRequest does not read the trace, so its answer does not tell whether it exists.
func (q leasing) heldRequest() (m wire.LeaseRequest, id tga.ID, ttl time.Duration, err error) {
	if err = q.decode(&m); err != nil {
		return
	}
	if id, err = q.traceID(); err != nil {
		return
	}
	limits := q.d.conf().Limits
	ttl = time.Duration(m.TTLMS) * time.Millisecond
	switch most := limits.MaxLeaseTTL.D; {
	case m.TTLMS == 0:
		ttl = limits.LeaseTTL.D
	case m.TTLMS > most.Milliseconds():
		err = tga.Errorf(tga.LimitExceeded, "a lease of %d ms: want 1 to %d", m.TTLMS, most.Milliseconds()).At("/ttl_ms").In(id)
	}
	return
}

func leaseOf(token string, l chain.Lease, expires time.Time) wire.Lease {
	return wire.Lease{
		Lease: token, TraceID: l.TraceID, Epoch: strconv.FormatUint(uint64(l.Epoch), 10), Expires: tga.MillisOf(expires),
	}
}

// checkpoint writes a checkpoint of a trace's head, under the peer's lease or, if the request
// names none, under one that is held only for this.
func (q leasing) checkpoint() (any, error) {
	var m wire.CheckpointRequest
	id, _, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	ctx := q.r.Context()
	lease := q.d.leases.lookup(m.Lease, id)
	if m.Lease == "" {
		if lease, err = q.d.db.Acquire(ctx, id); err != nil {
			return nil, err
		}
		defer q.d.db.Release(lease)
	}
	cp, err := q.d.db.WriteCheckpoint(ctx, lease)
	if err != nil {
		return nil, underToken(err, lease)
	}
	return exact{"application/json", cp.AppendCanonical(nil)}, nil
}

func (q *request) latestCheckpoint() (any, error) {
	t, err := q.traceInPath()
	if err != nil {
		return nil, err
	}
	cp, ok, err := q.d.db.LatestCheckpoint(q.r.Context(), t.ID)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, tga.Errorf(tga.NotFound, "trace %s has no checkpoint", t.ID).In(t.ID)
	}
	return exact{"application/json", cp.AppendCanonical(nil)}, nil
}
