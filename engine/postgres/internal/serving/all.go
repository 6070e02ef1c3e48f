package serving

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// all presents every store of a fleet of several shards to the daemon. If a store does not answer, its part is left out and that is
// logged, so that the calls of the other stores go on.
type all struct {
	*postgres.AllStores
	log *slog.Logger
}

var _ daemon.Shared = all{}

// Submit implements [daemon.Store].
func (a all) Submit(ctx context.Context, lease chain.Lease, b chain.Batch) (daemon.Submitted, error) {
	done, err := a.Append(ctx, lease, b)
	return ended(done), err
}

// LatestCheckpoint implements [daemon.Store].
func (a all) LatestCheckpoint(ctx context.Context, id tga.ID) (cp tga.Checkpoint, ok bool, err error) {
	s, err := a.In(ctx, id)
	if err != nil {
		return cp, false, err
	}
	return s.Fleet().LatestCheckpoint(ctx, id)
}

// Traces implements [daemon.Store].
func (a all) Traces(ctx context.Context, after tga.ID) iter.Seq2[chain.Listed, error] {
	return postgres.Merged(a.AllStores, func(s *postgres.Store) iter.Seq2[chain.Listed, error] { return s.Fleet().Traces(ctx, after) },
		func(x, y chain.Listed) int { return bytes.Compare(x.TraceID[:], y.TraceID[:]) })
}

// Cursor implements [daemon.Store].
func (a all) Cursor() uint64 { return 1 } // not 0, so that a caller that reads the order up to it asks Follow, and is refused

// Follow implements [daemon.Store]. Each store has an order of its own.
func (a all) Follow(context.Context, uint64) iter.Seq2[chain.Leaf, error] {
	return func(yield func(chain.Leaf, error) bool) {
		yield(chain.Leaf{}, tga.Errorf(tga.NotFound, "the stores of a fleet have no one order: ask a daemon of one of them ([store] namespace), or name the trace"))
	}
}

// Check implements [daemon.Store].
func (a all) Check(ctx context.Context) (sum engine.Report, err error) {
	stores, missing := a.Every()
	if missing != nil {
		return sum, missing
	}
	for _, s := range stores {
		r, err := check(ctx, s)
		if err != nil {
			return sum, err
		}
		sum.Traces += r.Traces
		sum.Entries += r.Entries
		sum.Notes += r.Notes
		sum.Records += r.Records
		sum.Leaves += r.Leaves
		sum.Unread += r.Unread
		sum.Problems = append(sum.Problems, r.Problems...)
	}
	return sum, nil
}

// Stats implements [daemon.Store]. It says frozen only if every store is frozen. Of several quarantines it has the newest.
func (a all) Stats() engine.Stats {
	sum := stats(a.Rest())
	for _, s := range a.Stores() {
		if s == a.Rest() {
			continue
		}
		x := stats(s)
		sum.NewestTS = max(sum.NewestTS, x.NewestTS)
		sum.Appends += x.Appends
		sum.Replayed += x.Replayed
		sum.Entries += x.Entries
		sum.Notes += x.Notes
		sum.Leases += x.Leases
		sum.MissingKeys = max(sum.MissingKeys, x.MissingKeys) // the stores share a ring
		if x.Quarantine != nil && (sum.Quarantine == nil || x.Quarantine.Since > sum.Quarantine.Since) {
			sum.Quarantine = x.Quarantine
		}
		if x.Frozen == "" {
			sum.Frozen = ""
		}
	}
	return sum
}

// Ready implements [daemon.Shared]: it is enough that one store takes appends.
func (a all) Ready(ctx context.Context) error {
	stores := a.Stores()
	errs := make(chan error, len(stores))
	for _, s := range stores {
		go func() { errs <- s.Fleet().Ready(ctx) }()
	}
	var all []error
	for range stores {
		err := <-errs
		if err == nil {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// Missing implements [daemon.Shared].
func (a all) Missing() error {
	_, missing := a.Every()
	return missing
}

// Alone implements [daemon.Shared].
func (a all) Alone() bool { return false }

// leftPatience is how long a store may take to say what other processes left.
const leftPatience = 5 * time.Second

// Left implements [daemon.Shared]. It asks all stores at once: what is left in the others must not wait for those of a shard that is away.
func (a all) Left(ctx context.Context) (list []tga.ID, err error) {
	stores := a.Stores()
	lists := make([][]tga.ID, len(stores))
	var asked sync.WaitGroup
	for i, s := range stores {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, leftPatience)
			defer cancel()
			var err error
			if lists[i], err = s.Fleet().Left(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				a.log.Warn("what other processes left in a store is not looked for", "error", err)
			}
		})
	}
	asked.Wait()
	return slices.Concat(lists...), ctx.Err()
}

// IsLeft implements [daemon.Shared].
func (a all) IsLeft(ctx context.Context, id tga.ID) (bool, error) {
	s, err := a.In(ctx, id)
	if err != nil {
		return false, err
	}
	return s.Fleet().IsLeft(ctx, id)
}
