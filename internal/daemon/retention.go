package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/retention"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// retaining is the state of the runs of the retention rules.
type retaining struct {
	turn   chan struct{} // holds one element during a run
	data   string        // directory of the store
	erased atomic.Uint64
	ended  atomic.Int64 // when the newest run ended, in milliseconds since 1970; 0 = none has
	failed atomic.Bool  // the newest run failed
}

// retentionLook is how often the daemon looks whether a run is due; a reload may have changed the
// configuration since. The first run begins retentionLook after the start. After a run that failed, the next
// begins after retentionRetry, then after twice that and so on, at most after `every`. Tests set other values.
var retentionLook, retentionRetry = 10 * time.Second, time.Minute

// retain runs the retention rules until the daemon drains.
func (d *Daemon) retain() {
	ctx, stop := d.untilDrain()
	defer stop()
	if !d.awaitClassified(ctx) {
		return
	}
	newest := d.clock().Add(retentionLook - d.conf().Retention.Every.D) // so the first run is due after retentionLook
	again, trouble := retentionRetry, ""
	for ctx.Err() == nil {
		every := d.conf().Retention.Every.D
		pause := time.After(min(every, retentionLook))
		if now := d.clock(); d.conf().Retention.On() && now.Sub(newest) >= every && d.db.Stats().Frozen == "" {
			newest = now
			err := d.retainAll(ctx)
			switch {
			case ctx.Err() != nil:
			case err == nil:
				again, trouble = retentionRetry, ""
			default:
				newest = now.Add(min(again, every) - every)
				again = min(2*again, every)
				if err.Error() != trouble {
					d.log.Error("the retention rules were not carried out", "error", err)
				}
				trouble = err.Error()
			}
		}
		select {
		case <-pause:
		case <-ctx.Done():
		}
	}
}

// retainAll carries the retention rules out until nothing more is due.
func (d *Daemon) retainAll(ctx context.Context) error {
	for {
		done, err := d.retention(ctx, false)
		if err != nil || !done.More {
			return err
		}
	}
}

// retention carries the retention rules out once. Only one run is under way at a time.
func (d *Daemon) retention(ctx context.Context, dry bool) (done retention.Done, err error) {
	select {
	case d.retaining.turn <- struct{}{}:
		defer func() { <-d.retaining.turn }()
	case <-ctx.Done():
		return done, ctx.Err()
	}
	policy, err := retention.Of(d.conf())
	if err != nil {
		return done, err
	}
	if policy.Archive != "" && access.Within(policy.Archive, d.retaining.data) {
		return done, tga.Errorf(tga.ValidationError, "[retention] archive %s is within the store", policy.Archive) // where only the store may have files
	}
	done, err = policy.Run(ctx, struct {
		Store
		archive
	}{d.db, d.can.archive}, tga.MillisOf(d.clock()), dry)
	if dry {
		return done, err
	}
	if err != nil {
		d.chores.erasure.owe() // finish an erasure that the run may have begun
	}
	erased := 0
	for i, r := range done.Rules {
		if erased += r.Erased; r.Erased > 0 {
			d.log.Info("a retention rule was carried out", "rule", i+1, "due", r.Due, "erased", r.Erased, "archived", r.Archived)
		}
	}
	if done.Unreadable > 0 {
		d.log.Error("traces that cannot be read are left to no retention rule", "traces", done.Unreadable)
	}
	d.retaining.erased.Add(uint64(erased))
	if !errors.Is(err, context.Canceled) {
		d.retaining.failed.Store(err != nil)
		d.retaining.ended.Store(d.clock().UnixMilli())
	}
	return done, err
}

// retain carries the retention rules out now, or says what they would do.
func (q operating) retain() (any, error) {
	var m wire.RetentionRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if err := q.everything("carry the retention rules out"); err != nil {
		return nil, err
	}
	if !q.d.conf().Retention.On() {
		return nil, tga.Errorf(tga.ValidationError, "the configuration has no [[retention.rule]] and no [retention] seal_after: everything is kept")
	}
	return run(q.request, "", func(ctx context.Context) (wire.Retained, error) {
		done, err := q.d.retention(ctx, m.DryRun)
		all := wire.Retained{Looked: done.Looked, Unreadable: done.Unreadable, Sealed: done.Sealed, More: done.More, Rules: []wire.RetainedRule{}}
		for i, r := range done.Rules {
			all.Rules = append(all.Rules, wire.RetainedRule{Rule: i + 1, Due: r.Due, Erased: r.Erased, Archived: r.Archived})
		}
		return all, err
	})
}
