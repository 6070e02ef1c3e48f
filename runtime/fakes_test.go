package runtime_test

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// cancelling cancels the caller as soon as an append has returned.
type cancelling struct {
	runtime.Store
	cancel context.CancelFunc
}

func (c cancelling) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	done, err := c.Store.Append(ctx, l, b)
	c.cancel()
	return done, err
}

var errBroken = errors.New("the policy engine does not answer")

// broken is a supervisor that is not pure and never answers.
type broken struct{}

func (broken) Decide(context.Context, *tga.Artifact) (runtime.Verdict, error) {
	return runtime.Verdict{}, errBroken
}

// impure approves, and is asked about durable requests only.
type impure struct{ asked int }

func (s *impure) Decide(context.Context, *tga.Artifact) (runtime.Verdict, error) {
	s.asked++
	return runtime.Verdict{Decision: tga.Approve, Rationale: "approved by a remote policy"}, nil
}

// impatient is a store that checks the context before anything else, as any store may.
type impatient struct{ runtime.Store }

func (s impatient) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	if err := ctx.Err(); err != nil {
		return chain.Appended{}, err
	}
	return s.Store.Append(ctx, l, b)
}

func (s impatient) Record(ctx context.Context, k ledger.Key) (*ledger.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.Store.Record(ctx, k)
}

func (s impatient) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.Store.Load(ctx, id)
}

// lying is a store whose ledger names another effect than the trace has.
type lying struct{ runtime.Store }

func (s lying) Record(ctx context.Context, k ledger.Key) (*ledger.Record, error) {
	r, err := s.Store.Record(ctx, k)
	if r != nil {
		r.EffectDigest[0] ^= 1
	}
	return r, err
}

// spying reports the leases of its appends.
type spying struct {
	runtime.Store
	lease *chain.Lease
}

func (s spying) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	*s.lease = l
	return s.Store.Append(ctx, l, b)
}

// ending does something when the holder of a trace is looked up for the n-th time, just before
// the answer.
type ending struct {
	runtime.Store
	n, at int
	do    func()
}

func (s *ending) Holder(trace tga.ID) ledger.Liveness {
	if s.n++; s.n == s.at {
		s.do()
	}
	return s.Store.Holder(trace)
}
