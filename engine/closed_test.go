package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// calls are the calls of a store that look into it or change it, each with its error.
var calls = map[string]func(ctx context.Context, db *engine.DB) error{
	"Acquire": func(ctx context.Context, db *engine.DB) error { _, err := db.Acquire(ctx, id(1)); return err },
	"Attachment": func(ctx context.Context, db *engine.DB) error {
		_, err := db.Attachment(ctx, chain.AttachBlob, make([]byte, 32))
		return err
	},
	"Attachments": func(ctx context.Context, db *engine.DB) (err error) {
		for _, err = range db.Attachments(ctx, chain.AttachTimer, nil) {
		}
		return err
	},
	"Append": func(ctx context.Context, db *engine.DB) error {
		_, err := db.Append(ctx, chain.Lease{TraceID: id(1)}, chain.Batch{})
		return err
	},
	"Await": func(ctx context.Context, db *engine.DB) error {
		return db.Await(ctx, ledger.Key{Key: "k"}, ledger.Record{Attempts: ledger.Attempts{External: true}})
	},
	"Backup": func(ctx context.Context, db *engine.DB) error { return db.Backup(ctx, "backup") },
	"Check":  func(ctx context.Context, db *engine.DB) error { _, err := db.Check(ctx); return err },
	"Entries": func(ctx context.Context, db *engine.DB) (err error) {
		for _, err = range db.Entries(ctx, id(1), 0) {
		}
		return err
	},
	"EndQuarantine": func(ctx context.Context, db *engine.DB) error { return db.EndQuarantine(ctx, "me") },
	"Follow": func(ctx context.Context, db *engine.DB) error {
		for l, err := range db.Follow(ctx, 0) {
			if err != nil || l.Index == db.Cursor() {
				return err
			}
		}
		return nil
	},
	"Freeze": func(ctx context.Context, db *engine.DB) error { return db.Freeze("why") },
	"LatestCheckpoint": func(ctx context.Context, db *engine.DB) error {
		_, _, err := db.LatestCheckpoint(ctx, id(1))
		return err
	},
	"Lend": func(ctx context.Context, db *engine.DB) error {
		_, err := db.Lend(ctx, id(1), func(*chain.Trace) bool { return false })
		return err
	},
	"Load": func(ctx context.Context, db *engine.DB) error { _, err := db.Load(ctx, id(1)); return err },
	"Notes": func(ctx context.Context, db *engine.DB) (err error) {
		for _, err = range db.Notes(ctx, id(1), 0) {
		}
		return err
	},
	"OpenTraces": func(ctx context.Context, db *engine.DB) (err error) {
		for _, err = range db.OpenTraces(ctx) {
		}
		return err
	},
	"Overtake": func(ctx context.Context, db *engine.DB) error { _, err := db.Overtake(ctx, id(1), false); return err },
	"Record": func(ctx context.Context, db *engine.DB) error {
		_, err := db.Record(ctx, ledger.Key{Key: "k"})
		return err
	},
	"Rewrite":    func(ctx context.Context, db *engine.DB) error { _, err := db.Rewrite(ctx); return err },
	"SealTraces": func(ctx context.Context, db *engine.DB) error { _, err := db.SealTraces(ctx, 0); return err },
	"State":      func(ctx context.Context, db *engine.DB) error { _, err := db.State(ctx, id(1)); return err },
	"Submit": func(ctx context.Context, db *engine.DB) error {
		_, err := db.Submit(ctx, chain.Lease{TraceID: id(1)}, chain.Batch{})
		return err
	},
	"Traces": func(ctx context.Context, db *engine.DB) (err error) {
		for _, err = range db.Traces(ctx, tga.ID{}) {
		}
		return err
	},
	"WriteCheckpoint": func(ctx context.Context, db *engine.DB) error {
		_, err := db.WriteCheckpoint(ctx, chain.Lease{TraceID: id(1)})
		return err
	},
}

// TestClosedStoreIsUnavailable: every call of a closed store returns STORE_UNAVAILABLE and touches nothing
// that Close released. Appends that were under way are durable. Calls that need no open part still work.
func TestClosedStoreIsUnavailable(t *testing.T) {
	db, err := engine.Open("store", options(vfs.NewMem()))
	if err != nil {
		t.Fatal(err)
	}
	m := spec{trace: id(1)}.make(t)
	lease, err := db.Acquire(t.Context(), id(1))
	var ticket engine.Ticket
	if err == nil {
		ticket, err = db.Submit(t.Context(), lease, m.begin())
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Wait(); err != nil {
		t.Errorf("what was under way at the close: %v", err)
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) { wantCode(t, call(t.Context(), db), tga.StoreUnavailable) })
	}
	if s := db.Stats(); s.Cursor != 1 || s.StoreID.IsZero() || db.Cursor() != 1 || db.NewestTS() == 0 {
		t.Errorf("the counts of a closed store are gone: %+v", s)
	}
	db.Release(lease)
	if err := db.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestCallsWhileAStoreIsOpenedAnew: Unfreeze closes a store and opens it, in one process, while
// others go on asking. They are told STORE_UNAVAILABLE meanwhile, and never meet what is half open.
func TestCallsWhileAStoreIsOpenedAnew(t *testing.T) {
	fs := vfs.NewMem()
	db, err := engine.Open("store", options(fs))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(40) { // over the end of the first segment
		run(t, db, spec{trace: id(1 + i)})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, n := range names[1:] {
		overwrite(t, fs, "store/log/"+n, nil)
	}
	db = open(t, "store", options(fs))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for name, call := range calls {
		switch name {
		case "Backup", "Check", "Acquire", "Lend", "Overtake", "EndQuarantine", "Freeze":
			continue // they change the store, or take long
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				switch err := call(ctx, db); tga.CodeOf(err) {
				case "", tga.StoreUnavailable, tga.StateLockAcquireFailed, tga.ValidationError, tga.NotFound:
				default:
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	if err := db.Unfreeze(ctx, true, "me"); err != nil {
		t.Error(err)
	}
	run(t, db, spec{trace: id(100)})
	stop()
	wg.Wait()
}
