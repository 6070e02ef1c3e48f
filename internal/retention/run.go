package retention

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Reader is what an export reads of a store.
type Reader interface {
	Entries(ctx context.Context, trace tga.ID, after uint64) iter.Seq2[chain.Entry, error]
	Notes(ctx context.Context, trace tga.ID, after uint32) iter.Seq2[tga.Note, error]
}

// Store is the store to which a policy is applied. [engine.DB] is one.
type Store interface {
	Reader
	Traces(ctx context.Context, after tga.ID) iter.Seq2[chain.Listed, error]
	Record(ctx context.Context, key ledger.Key) (*ledger.Record, error)
	SealTraces(ctx context.Context, before tga.Millis) (engine.Sealed, error)
	Erase(ctx context.Context, what engine.Erasure) (engine.Erased, error)
}

// Done says what a run did, or would do.
type Done struct {
	Looked     int // traces that were examined
	Unreadable int // examined traces that cannot be read; they are not changed
	Sealed     int
	Rules      []Ruled
	More       bool // the run reached its limit of erasures; the next run continues
}

// Ruled says what a rule did.
type Ruled struct {
	Due      int    // traces that are old enough
	Archived string // the file that has them, "" if none was written
	Erased   int    // at most Due: traces in use are left for the next run
}

// mostDue bounds the traces that one run erases by each rule, because their ids are kept in memory.
var mostDue = 1 << 17 // another value in a test

// share limits the scan of the store to one part in so many of the time, as a run is not urgent.
const share = 4

// pause is the number of traces after which the scan rests.
const pause = 256

// Run applies the policy at the time now. With dry it only says what it would do. It first exports each
// rule's traces, and erases them once the export is durable and was read back. A run that dies in
// between leaves an export of traces that the store still has. A run whose erasure is refused removes
// its export.
func (p *Policy) Run(ctx context.Context, s Store, now tga.Millis, dry bool) (done Done, err error) {
	due, done, err := p.look(ctx, s, now)
	if err != nil || dry {
		return done, err
	}
	for i, ids := range due {
		if len(ids) > 0 {
			if err := p.erase(ctx, s, now, i, ids, &done.Rules[i]); err != nil {
				return done, err
			}
		}
	}
	if p.SealAfter > 0 {
		sealed, err := s.SealTraces(ctx, now-tga.Millis(p.SealAfter.Milliseconds()))
		done.Sealed = sealed.Traces
		return done, err
	}
	return done, nil
}

// look finds the traces that are due by each rule.
func (p *Policy) look(ctx context.Context, s Store, now tga.Millis) (due [][]tga.ID, done Done, err error) {
	due, done.Rules = make([][]tga.ID, len(p.Rules)), make([]Ruled, len(p.Rules))
	if !p.erases() {
		return due, done, nil
	}
	began := time.Now()
	for l, err := range s.Traces(ctx, tga.ID{}) {
		if err != nil {
			return nil, done, err
		}
		if done.Looked++; done.Looked%pause == 0 {
			if err := rest(ctx, (share-1)*time.Since(began)); err != nil {
				return nil, done, err
			}
			began = time.Now()
		}
		if l.Err != nil {
			done.Unreadable++
			continue
		}
		if !l.State.Terminal() || l.Server == "" { // an erased trace names no server
			continue
		}
		i, err := p.rule(&l.Listing, func() (ledger.Class, error) { return class(ctx, s, &l.Listing) })
		switch {
		case tga.CodeOf(err) == tga.StateRecoveryFailed:
			done.Unreadable++
		case err != nil:
			return nil, done, err
		case i < 0 || !p.Rules[i].due(l.Since, now):
		case len(due[i]) == mostDue:
			done.More = true
		default:
			due[i] = append(due[i], l.TraceID)
			done.Rules[i].Due++
		}
	}
	return due, done, nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(min(d, time.Second)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// class returns the outcome class of a trace, 0 if it has none. The ledger record of its key says it,
// unless the record is that of another trace with the same key: then the trace's own effect does.
func class(ctx context.Context, s Store, l *chain.Listing) (class ledger.Class, err error) {
	if l.Key == "" {
		return 0, nil
	}
	r, err := s.Record(ctx, ledger.Key{Namespace: l.Namespace, Server: l.Server, Tool: l.Tool, Key: l.Key})
	switch {
	case err != nil:
		return 0, err
	case r != nil && r.TraceID == l.TraceID:
		return r.Class, nil
	}
	for e, err := range s.Entries(ctx, l.TraceID, 0) {
		if err != nil {
			return 0, err
		}
		if e.Artifact != nil && e.Artifact.Type == tga.EffectType {
			class = ledger.ClassOf(e.Artifact)
		}
	}
	return class, nil
}

// erase exports the traces that are due by a rule, and erases them.
func (p *Policy) erase(ctx context.Context, s Store, now tga.Millis, i int, ids []tga.ID, done *Ruled) (err error) {
	r := &p.Rules[i]
	if !r.Drop {
		if ids, done.Archived, err = Archive(ctx, p.Archive, s, now, ids); err != nil || len(ids) == 0 {
			return err
		}
	}
	erased, err := s.Erase(ctx, engine.Erasure{
		Traces: ids, Leave: true, Who: "retention",
		Reason: fmt.Sprintf("[[retention.rule]] %d of the configuration: erase_after %s", i+1, r.EraseAfter),
	})
	done.Erased = erased.Traces
	if erased.Traces == 0 && done.Archived != "" {
		// Nothing is erased, and no erasure is recorded to be finished later, so the store still has
		// everything in the file. Remove the file: a store without space refuses the erasure of every
		// run, and every run would leave a file.
		err = errors.Join(err, os.Remove(done.Archived))
		done.Archived = ""
	}
	return err
}
