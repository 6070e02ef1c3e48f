package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// auditLog is the log as deliveries of audit records read it: the whole store, for only the operator's
// file says where they go.
type auditLog struct{ db Store }

// Cursor implements [deliver.Log].
func (a auditLog) Cursor() uint64 { return a.db.Cursor() }

// End implements [deliver.Log].
func (a auditLog) End(ctx context.Context) (uint64, error) {
	if x, ok := a.db.(Dividing); ok {
		return x.End(ctx)
	}
	return a.db.Cursor(), nil
}

// Lines implements [deliver.Log].
func (a auditLog) Lines(ctx context.Context, after uint64) iter.Seq2[wire.LogLine, error] {
	if x, ok := a.db.(Dividing); ok {
		return pages(ctx, x, after)
	}
	return func(yield func(wire.LogLine, error) bool) {
		for leaf, err := range a.db.Follow(ctx, after) {
			var line wire.LogLine
			if err == nil {
				line, err = logLine(ctx, a.db, leaf)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// pages reads several appends with one question.
func pages(ctx context.Context, db Dividing, after uint64) iter.Seq2[wire.LogLine, error] {
	return func(yield func(wire.LogLine, error) bool) {
		for {
			page, err := db.Added(ctx, after)
			if err != nil {
				yield(wire.LogLine{}, err)
				return
			}
			for i := range page {
				if !yield(page[i].line(), nil) {
					return
				}
				after = page[i].Leaf.Index
			}
			if len(page) == 0 {
				return // a delivery reads no further than there is something
			}
		}
	}
}

// Trace implements [deliver.Log].
func (a auditLog) Trace(ctx context.Context, id tga.ID) (wire.Timeline, error) {
	t, err := a.db.Load(ctx, id)
	if err != nil {
		return wire.Timeline{}, err
	}
	m := wire.Timeline{TraceID: id, Namespace: t.Namespace}
	for e, err := range a.db.Entries(ctx, id, 0) {
		if err != nil {
			return m, err
		}
		m.Entries = append(m.Entries, story.Said(&e))
		break
	}
	return m, nil
}

// Mark implements [deliver.Log].
func (a auditLog) Mark(ctx context.Context, index uint64) (string, error) {
	for l, err := range a.db.Follow(ctx, index-1) {
		if err != nil {
			return "", err
		}
		return tga.Sum(fmt.Appendf(nil, "%d %s %d %d %d %d %s %s", l.Index, l.TraceID, l.FirstSeq, l.Entries, l.FirstNote, l.Notes, l.HeadDigest, l.NoteDigest)).String(), nil
	}
	return "", tga.Errorf(tga.StoreUnavailable, "there is no append %d", index)
}

// openAudit takes the deliveries of audit records up.
func (d *Daemon) openAudit(o Options) error {
	if o.readOnly || o.Idle {
		return nil
	}
	if d.can.duty == nil && len(o.Config.Audits) > 0 {
		return tga.Errorf(tga.ValidationError, "[[audit]] delivers the order of one store, and a fleet has several: set [store] namespace, in a daemon for each")
	}
	all, err := assemble.Audit(o.Config, o.Data, d.can.duty, o.Version, o.Clock, o.Logger)
	if err != nil {
		return err
	}
	for i := range all {
		delivery, err := deliver.New(d.life, auditLog{d.db}, all[i])
		if err != nil {
			return err
		}
		d.audits = append(d.audits, delivery)
	}
	return nil
}

// deliverAudit delivers until stop is called, which hands over what is left.
func (d *Daemon) deliverAudit() (stop func() error) {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, a := range d.audits {
		running.Go(func() { a.Run(ctx) })
	}
	return func() error {
		end()
		running.Wait()
		errs := make([]error, len(d.audits))
		for i, a := range d.audits {
			running.Go(func() { errs[i] = a.Close() })
		}
		running.Wait()
		return errors.Join(errs...)
	}
}
