package serving

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/retention"
	"github.com/tgad/tgad/schemas/tga"
)

// retire archives a month as the retention rules of a store in a directory do, and drops its partition.
func retire(ctx context.Context, r cli.Retiring) (done cli.Retired, err error) {
	done.Month = r.Month.Format("2006-01")
	dir, err := filepath.Abs(r.Archive)
	if err != nil {
		return done, tga.Errorf(tga.ValidationError, "--archive: %w", err)
	}
	ring, err := ringOf(r.Config)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, ring.Close()) }()
	o := optionsOf(r.Config, slog.New(slog.DiscardHandler))
	ring.to(&o)
	got, err := postgres.Retire(ctx, r.URL, o, postgres.Retiring{
		Year: r.Month.Year(), Month: r.Month.Month(),
		Archive: func(ctx context.Context, s *postgres.Store, traces []tga.ID) ([]tga.ID, error) {
			in, name, err := retention.Archive(ctx, dir, s, tga.MillisOf(time.Now()), traces)
			if err == nil && name != "" {
				done.Archives = append(done.Archives, name)
			}
			return in, err
		},
	})
	done.Traces, done.Entries = got.Traces, got.Entries
	return done, err
}
