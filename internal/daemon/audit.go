package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/audit"
	"github.com/tgad/tgad/internal/audit/deliver"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// auditLog is the log that deliveries of audit records read. It has all namespaces of the store: only the
// operator's configuration decides who gets audit records.
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

// Appends implements [deliver.Log]. In a directory it reads the parts of an append from its trace, because
// the store still has a recent trace in memory. In a database it reads several appends with one query.
func (a auditLog) Appends(ctx context.Context, after uint64) iter.Seq2[audit.Append, error] {
	if x, ok := a.db.(Dividing); ok {
		return pages(ctx, x, after)
	}
	return func(yield func(audit.Append, error) bool) {
		for leaf, err := range a.db.Follow(ctx, after) {
			var x audit.Append
			if err == nil {
				x, err = a.append(ctx, leaf)
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// append reads the append of a leaf from its trace, which may have grown since.
func (a auditLog) append(ctx context.Context, l chain.Leaf) (audit.Append, error) {
	x := audit.Append{Cursor: strconv.FormatUint(l.Index, 10)}
	if l.Entries == 0 && l.Notes == 0 {
		return x, nil // the append is a working state's or a turn's
	}
	t, err := a.db.Load(ctx, l.TraceID)
	if err != nil {
		return x, err
	}
	of := map[tga.ArtifactType]*tga.Artifact{tga.RequestType: t.Request, tga.DecisionType: t.Decision, tga.CallType: t.Call, tga.EffectType: t.Effect}
	for _, e := range t.Entries {
		if e.Seq >= l.FirstSeq && e.Seq < l.FirstSeq+uint64(l.Entries) {
			x.Entries = append(x.Entries, audit.Entry{LogEntry: e, Artifact: of[e.Type]})
		}
	}
	for _, n := range t.Notes {
		if n.Number >= l.FirstNote && n.Number < l.FirstNote+uint32(l.Notes) {
			x.Notes = append(x.Notes, n)
		}
	}
	if len(x.Entries) != int(l.Entries) || len(x.Notes) != int(l.Notes) {
		return x, tga.Errorf(tga.StateRecoveryFailed, "append %d of trace %s has %d entries and %d notes, and the trace has %d and %d of them",
			l.Index, l.TraceID, l.Entries, l.Notes, len(x.Entries), len(x.Notes)).In(l.TraceID)
	}
	return x, nil
}

// pages yields the appends after a cursor. It reads several with one query.
func pages(ctx context.Context, db Dividing, after uint64) iter.Seq2[audit.Append, error] {
	return func(yield func(audit.Append, error) bool) {
		for {
			page, err := db.Added(ctx, after)
			if err != nil {
				yield(audit.Append{}, err)
				return
			}
			for i := range page {
				if !yield(page[i].audited(), nil) {
					return
				}
				after = page[i].Leaf.Index
			}
			if len(page) == 0 {
				return // there is nothing more now, and a delivery does not wait here
			}
		}
	}
}

// audited is the append in the form that audit records are made from.
func (a *Added) audited() audit.Append {
	x := audit.Append{Cursor: strconv.FormatUint(a.Leaf.Index, 10), Notes: a.Notes}
	for i := range a.Entries {
		x.Entries = append(x.Entries, audit.Entry{LogEntry: a.Entries[i].LogEntry, Artifact: a.Entries[i].Artifact})
	}
	return x
}

// Call implements [deliver.Log].
func (a auditLog) Call(ctx context.Context, id tga.ID) (audit.Call, error) {
	t, err := a.db.Load(ctx, id)
	if err != nil {
		return audit.Call{}, err
	}
	return audit.Call{Namespace: t.Namespace, Appender: runtime.Appender(t, 1), Request: t.Request}, nil
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

// openAudit opens the deliveries of audit records.
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

// deliverAudit runs the deliveries until stop is called. stop delivers the records that are left.
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
