package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// AllStores presents all stores of a fleet as one store, for one runtime. Each request goes to the store of its namespace. The
// namespace is in the ledger key, in the context ([runtime.NamespaceOf]), or follows from the trace. AllStores only routes; the
// stores decide: a trace continues in the store in which it began, and a shard refuses a store that it does not have.
//
// The stores share a secret, so a permit is valid whichever store has the trace. A request without a trace and a namespace goes to
// all stores. If a store does not answer, its contents are missing from the result, and requests to other stores still work.
type AllStores struct {
	x      *Shards
	secret [32]byte
	places *lru[tga.ID, *Store] // cached stores of traces
	stop   context.CancelFunc
	work   sync.WaitGroup
}

var _ runtime.Store = (*AllStores)(nil)

// allPatience is the time between two looks for new stores.
const allPatience = 5 * time.Second

// All opens the stores of the fleet whose shards answer, and opens other and new stores later. The store of the namespaces
// without a store of their own must answer. [AllStores.Close] closes the stores.
func (x *Shards) All(ctx context.Context) (*AllStores, error) {
	rest, err := x.Numbered(ctx, x.Routes().Rest)
	if err != nil {
		return nil, err
	}
	a := &AllStores{x: x, secret: rest.Secret(), places: newLRU[tga.ID, *Store](1 << 16)}
	a.open(ctx)
	life, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.work.Go(func() {
		tick := time.NewTicker(allPatience)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				x.Refresh(life)
				a.open(life)
			case <-life.Done():
				return
			}
		}
	})
	return a, nil
}

// open opens the stores that are not open yet. A store that is between two shards is tried again later.
func (a *AllStores) open(ctx context.Context) {
	var opening sync.WaitGroup
	for _, p := range a.x.Routes().Placements {
		if a.x.opened(p.Store) != nil {
			continue
		}
		opening.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, allPatience)
			defer cancel()
			if _, err := a.numbered(ctx, p.Store); err != nil && ctx.Err() == nil {
				a.x.o.Logger.Warn("a store of the fleet was not opened", "store", p.Store, "error", err)
			}
		})
	}
	opening.Wait()
}

// Close closes all stores.
func (a *AllStores) Close() error {
	a.stop()
	a.work.Wait()
	return a.x.Close()
}

func (a *AllStores) numbered(ctx context.Context, number int32) (*Store, error) {
	s, err := a.x.Numbered(ctx, number)
	if err == nil && s.Secret() != a.secret {
		err = tga.Errorf(tga.StateConflict, "store %d has another secret than the fleet: permits of one are not good in the other", number)
	}
	return s, err
}

// Rest returns the store of the namespaces without a store of their own.
func (a *AllStores) Rest() *Store { return a.x.opened(a.x.Routes().Rest) }

// of returns the store of a namespace.
func (a *AllStores) of(ctx context.Context, namespace string) (*Store, error) {
	a.x.mu.Lock()
	number := a.x.routes.Of(namespace)
	a.x.mu.Unlock()
	return a.numbered(ctx, number)
}

// Stores returns the open stores in the order of their numbers.
func (a *AllStores) Stores() []*Store {
	a.x.mu.Lock()
	defer a.x.mu.Unlock()
	var all []*Store
	for _, s := range a.x.open {
		all = append(all, s)
	}
	slices.SortFunc(all, func(s, t *Store) int { return int(s.o.Shard) - int(t.o.Shard) })
	return all
}

// Every returns the open stores, and an error if the fleet has others. An answer of the open ones alone would look whole.
func (a *AllStores) Every() (open []*Store, missing error) {
	var errs []error
	for _, p := range a.x.Routes().Placements {
		if a.x.opened(p.Store) == nil {
			errs = append(errs, fmt.Errorf("store %d, on shard %q, is not open", p.Store, p.Owner))
		}
	}
	if errs != nil {
		missing = tga.Errorf(tga.StoreUnavailable, "%w", errors.Join(errs...))
	}
	return a.Stores(), missing
}

// What a store has of a trace. hasLease: only a lease is left, of a trace that the store refused and that began elsewhere.
const (
	hasNothing = iota
	hasLease
	hasLog
)

// has says what a store has of a trace.
func has(ctx context.Context, s *Store, id tga.ID) (what int, err error) {
	err = s.ask(ctx, "look for trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT coalesce((SELECT CASE WHEN seq + note > 0 THEN 2 ELSE 1 END FROM tgad.heads WHERE shard = $1 AND trace = $2), 0)", s.o.Shard, [16]byte(id)).Scan(&what)
	})
	return what, err
}

// find returns the store that has a trace, nil if none has. If ctx has a namespace, only the store of that namespace counts:
// the same id in another store is another trace.
func (a *AllStores) find(ctx context.Context, id tga.ID) (*Store, error) {
	known, ok := a.places.get(id)
	if namespace, named := runtime.NamespaceOf(ctx); named {
		s, err := a.of(ctx, namespace)
		if err != nil {
			return nil, err
		}
		if ok && known == s {
			return s, nil
		}
		what, err := has(ctx, s, id)
		if err != nil || what == hasNothing {
			return nil, err
		}
		a.places.put(id, s, func(*Store) bool { return true }) // a lease of the other trace is found by its place
		return s, nil
	}
	if ok {
		return known, nil
	}
	var found *Store
	most := hasNothing
	err := askAll(a, func(s *Store) (int, error) { return has(ctx, s, id) }, func(s *Store, what int) error {
		switch {
		case what == hasLog && most == hasLog:
			return tga.Errorf(tga.StateConflict, "trace %s is in the stores %d and %d: name the namespace", id, found.o.Shard, s.o.Shard).In(id)
		case what > most:
			found, most = s, what
		}
		return nil
	})
	if most == hasLog && tga.CodeOf(err) != tga.StateConflict || most == hasLease && err == nil {
		a.places.put(id, found, nil)
		return found, nil
	}
	return nil, err
}

// askAll asks all stores at once, and then takes the answers one after the other.
func askAll[T any](a *AllStores, ask func(*Store) (T, error), take func(*Store, T) error) error {
	all, missing := a.Every()
	answers, errs := make([]T, len(all)), make([]error, len(all), len(all)+1)
	var asked sync.WaitGroup
	for i, s := range all {
		asked.Go(func() { answers[i], errs[i] = ask(s) })
	}
	asked.Wait()
	for i, s := range all {
		if errs[i] == nil {
			errs[i] = take(s, answers[i])
		} else {
			errs[i] = fmt.Errorf("store %d: %w", s.o.Shard, errs[i])
		}
		if tga.CodeOf(errs[i]) == tga.StateConflict {
			return errs[i]
		}
	}
	if err := errors.Join(append(errs, missing)...); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "%w", err)
	}
	return nil
}

// Met records that a store has traces, so that they need not be looked for.
func (a *AllStores) Met(s *Store, ids ...tga.ID) {
	for _, id := range ids {
		a.places.put(id, s, nil)
	}
}

// In returns the store that has a trace. If none has, it returns the store of the namespace in ctx, or the store of the rest.
func (a *AllStores) In(ctx context.Context, id tga.ID) (*Store, error) {
	s, err := a.find(ctx, id)
	if s != nil || err != nil {
		return s, err
	}
	namespace, ok := runtime.NamespaceOf(ctx)
	if !ok {
		return a.numbered(ctx, a.x.Routes().Rest)
	}
	return a.of(ctx, namespace)
}

// begin returns the store that grants the lease of a trace.
func (a *AllStores) begin(ctx context.Context, id tga.ID) (s *Store, err error) {
	namespace, named := runtime.NamespaceOf(ctx)
	if !named {
		s, err = a.In(ctx, id)
	} else if s, err = a.of(ctx, namespace); err == nil {
		// The same id in another store is another trace, of a namespace other than the caller's.
		if other, ok := a.places.get(id); ok && other != s {
			return nil, tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
		}
	}
	if err == nil {
		a.places.put(id, s, nil)
	}
	return s, err
}

// held returns the store of a lease that this process has.
func (a *AllStores) held(lease chain.Lease) (*Store, error) {
	s, err := a.find(context.Background(), lease.TraceID)
	if s == nil && err == nil {
		err = tga.Errorf(tga.StateLockAcquireFailed, "trace %s: no lease was granted", lease.TraceID).In(lease.TraceID)
	}
	return s, err
}

// Acquire implements [runtime.Store].
func (a *AllStores) Acquire(ctx context.Context, id tga.ID) (chain.Lease, error) {
	s, err := a.begin(ctx, id)
	if err != nil {
		return chain.Lease{}, err
	}
	return s.Acquire(ctx, id)
}

// Overtake implements [runtime.Store].
func (a *AllStores) Overtake(ctx context.Context, id tga.ID, lentOnly bool) (chain.Lease, error) {
	s, err := a.begin(ctx, id)
	if err != nil {
		return chain.Lease{}, err
	}
	return s.Overtake(ctx, id, lentOnly)
}

// Lend is [Store.Lend].
func (a *AllStores) Lend(ctx context.Context, id tga.ID, own func(*chain.Trace) bool) (chain.Lease, error) {
	s, err := a.begin(ctx, id)
	if err != nil {
		return chain.Lease{}, err
	}
	return s.Lend(ctx, id, own)
}

// Current implements [runtime.Store].
func (a *AllStores) Current(lease chain.Lease) bool {
	s, err := a.held(lease)
	return err == nil && s.Current(lease)
}

// While implements [runtime.Store].
func (a *AllStores) While(ctx context.Context, lease chain.Lease) (context.Context, context.CancelFunc) {
	s, err := a.held(lease)
	if err != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(err)
		return ctx, func() { cancel(nil) }
	}
	return s.While(ctx, lease)
}

// Departed implements [runtime.Store]. Each store has epochs of its own, and the argument does not name the store.
func (a *AllStores) Departed(chain.Epoch) bool { return false }

// Held implements [runtime.Store].
func (a *AllStores) Held(lease chain.Lease) bool {
	s, err := a.held(lease)
	return err == nil && s.Held(lease)
}

// Release implements [runtime.Store].
func (a *AllStores) Release(lease chain.Lease) {
	if s, err := a.held(lease); err == nil {
		s.Release(lease)
	}
}

// Append implements [runtime.Store]. If the routes of this process are outdated, the shard refuses the append: the trace has not
// begun, and the next request goes to the right store.
func (a *AllStores) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	s, err := a.held(lease)
	if err != nil {
		return chain.Appended{}, err
	}
	if b.Also != nil {
		if other, err := a.held(b.Also.Lease); err != nil || other != s {
			return chain.Appended{}, errors.Join(err, tga.Errorf(tga.ValidationError, "append to trace %s and also to %s, which is in another store", lease.TraceID, b.Also.Lease.TraceID).In(lease.TraceID))
		}
	}
	done, err := s.Append(ctx, lease, b)
	if errors.Is(err, errNotOfStore) {
		a.places.remove(lease.TraceID)
		s.Release(lease)
		a.x.Refresh(ctx)
		err = tga.Errorf(tga.StoreUnavailable, "the namespace has got a store of its own meanwhile, again: %w", err).In(lease.TraceID)
	}
	return done, err
}

// Load implements [runtime.Store].
func (a *AllStores) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	s, err := a.In(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.Load(ctx, id)
}

// Entries implements [runtime.Store].
func (a *AllStores) Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[chain.Entry, error] {
	return inStore(a, ctx, id, func(s *Store) iter.Seq2[chain.Entry, error] { return s.Entries(ctx, id, after) })
}

// Notes implements [runtime.Store].
func (a *AllStores) Notes(ctx context.Context, id tga.ID, after uint32) iter.Seq2[tga.Note, error] {
	return inStore(a, ctx, id, func(s *Store) iter.Seq2[tga.Note, error] { return s.Notes(ctx, id, after) })
}

func inStore[T any](a *AllStores, ctx context.Context, id tga.ID, list func(*Store) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		s, err := a.In(ctx, id)
		if err != nil {
			var zero T
			yield(zero, err)
			return
		}
		list(s)(yield)
	}
}

// WriteCheckpoint implements [runtime.Store].
func (a *AllStores) WriteCheckpoint(ctx context.Context, lease chain.Lease) (tga.Checkpoint, error) {
	s, err := a.held(lease)
	if err != nil {
		return tga.Checkpoint{}, err
	}
	return s.WriteCheckpoint(ctx, lease)
}

// Record implements [runtime.Store].
func (a *AllStores) Record(ctx context.Context, key ledger.Key) (*ledger.Record, error) {
	s, err := a.of(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	return s.Record(ctx, key)
}

// Await implements [runtime.Store].
func (a *AllStores) Await(ctx context.Context, key ledger.Key, seen ledger.Record) error {
	s, err := a.of(ctx, key.Namespace)
	if err != nil {
		return err
	}
	return s.Await(ctx, key, seen)
}

// Holder implements [runtime.Store].
func (a *AllStores) Holder(id tga.ID) ledger.Liveness {
	s, err := a.In(context.Background(), id)
	if err != nil {
		return ledger.HolderUnknown
	}
	return s.Holder(id)
}

// Quarantined implements [runtime.Store]. If one store is in quarantine, the rules of quarantine hold for calls of all stores.
func (a *AllStores) Quarantined() (since tga.Millis, in bool) {
	for _, s := range a.Stores() {
		if at, is := s.Quarantined(); is {
			since, in = max(since, at), true
		}
	}
	return since, in
}

// NewestTS implements [runtime.Store]. If one store does not answer, no second send is licensed in any store, see [Store.NewestTS].
func (a *AllStores) NewestTS() (newest tga.Millis) {
	err := askAll(a, func(s *Store) (tga.Millis, error) {
		if s.away.Load() {
			return tga.LastMillis, nil // do not wait for it, because calls of all other stores ask this too
		}
		return s.NewestTS(), nil
	}, func(_ *Store, at tga.Millis) error {
		newest = max(newest, at)
		return nil
	})
	if err != nil {
		return tga.LastMillis
	}
	return newest
}

// RequestDigest implements [runtime.Store].
func (a *AllStores) RequestDigest(p tga.Proposal) tga.Digest { return tga.RequestDigest(p) }

// Secret implements [runtime.Store].
func (a *AllStores) Secret() [32]byte { return a.secret }

// Shared implements [runtime.Store].
func (a *AllStores) Shared() bool { return true }

// ofAttachment returns the store of an attachment, nil if any store may have it.
func (a *AllStores) ofAttachment(ctx context.Context, kind chain.AttachmentKind, key []byte) (*Store, error) {
	if namespace, ok := runtime.NamespaceOf(ctx); ok {
		return a.of(ctx, namespace)
	}
	switch {
	case kind == chain.AttachApproval && len(key) == 16:
		return a.In(ctx, tga.ID(key))
	case kind == chain.AttachTimer && len(key) == 8+16:
		return a.In(ctx, tga.ID(key[8:]))
	}
	return nil, nil
}

// Attachment implements [runtime.Store].
func (a *AllStores) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) (value []byte, err error) {
	s, err := a.ofAttachment(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	if s != nil {
		return s.Attachment(ctx, kind, key)
	}
	err = askAll(a, func(s *Store) ([]byte, error) { return s.Attachment(ctx, kind, key) }, func(_ *Store, got []byte) error {
		if got != nil {
			value = got
		}
		return nil
	})
	if value != nil {
		err = nil
	}
	return value, err
}

// Attachments implements [runtime.Store].
func (a *AllStores) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	s, err := a.ofAttachment(ctx, kind, prefix)
	switch {
	case err != nil: // the attachments of the other stores would look like a complete list
		return func(yield func(chain.Attachment, error) bool) { yield(chain.Attachment{}, err) }
	case s != nil:
		return s.Attachments(ctx, kind, prefix)
	}
	return Merged(a, func(s *Store) iter.Seq2[chain.Attachment, error] { return s.Attachments(ctx, kind, prefix) }, func(x, y chain.Attachment) int { return bytes.Compare(x.Key, y.Key) })
}

// OpenTraces implements [runtime.Store].
func (a *AllStores) OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error] {
	return Merged(a, func(s *Store) iter.Seq2[chain.OpenTrace, error] { return s.OpenTraces(ctx) }, func(x, y chain.OpenTrace) int { return bytes.Compare(x.TraceID[:], y.TraceID[:]) })
}
