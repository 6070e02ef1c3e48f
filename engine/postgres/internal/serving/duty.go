package serving

import (
	"context"
	"errors"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/duty"
)

var _ daemon.Dividing = served{}

// Duty implements [daemon.Dividing].
func (s served) Duty(name string) duty.Duty { return shift{s.Fleet.Duty(name)} }

// End implements [daemon.Dividing].
func (s served) End(ctx context.Context) (uint64, error) { return s.Fleet.Evidence().End(ctx) }

// Added implements [daemon.Dividing].
func (s served) Added(ctx context.Context, after uint64) (page []daemon.Added, err error) {
	got, err := s.Fleet.Added(ctx, after)
	for _, a := range got {
		page = append(page, daemon.Added(a))
	}
	return page, err
}

// shift presents a duty to the daemon.
type shift struct{ *postgres.Duty }

// Keep implements [duty.Duty].
func (s shift) Keep(ctx context.Context, kept []byte) error {
	err := s.Duty.Keep(ctx, kept)
	if errors.Is(err, postgres.ErrNotOnDuty) {
		return duty.ErrLost
	}
	return err
}
