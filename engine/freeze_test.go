package engine_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestUnfreezeBesideCallsThatNeverEnter: what a store has from Open to Close may be asked for while it is
// opened anew for writing, and is the same store before and after. The race detector looks on.
func TestUnfreezeBesideCallsThatNeverEnter(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	m := spec{trace: id(1)}.make(t)
	lease, err := db.Acquire(t.Context(), id(1))
	if err == nil {
		_, err = db.Append(t.Context(), lease, m.begin())
	}
	if err = errors.Join(err, db.Close(), fs.Remove("store/"+guard.WatermarkName)); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", options(fs))
	before, secret := db.Stats(), db.Secret()
	if before.Frozen == "" || before.Restored {
		t.Fatalf("%+v", before)
	}
	stop, asked := make(chan struct{}), make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for i := 0; ; i++ {
			if s := db.Stats(); s.StoreID != before.StoreID || db.Secret() != secret || db.Cursor() < before.Cursor || db.NewestTS() < before.NewestTS {
				t.Errorf("it became another store: %+v", s)
			}
			if db.Current(lease) || db.Holder(id(1)) != ledger.HolderGone {
				t.Error("a lease of the open before is held")
			}
			_, _ = db.Quarantined()
			_ = db.Working()
			db.Release(lease)
			if i == 0 {
				close(asked)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	<-asked
	err = db.Unfreeze(t.Context(), true, "me")
	close(stop)
	asking.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := db.State(t.Context(), id(1)); err != nil || got.LastSeq != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if lease, err := db.Acquire(t.Context(), id(2)); err != nil || lease.Epoch>>32 == 0 {
		t.Errorf("%#x, %v", lease.Epoch, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestClosedStoreRefusesEveryCall: with STORE_UNAVAILABLE, in the first step of what is ranged over too.
func TestClosedStoreRefusesEveryCall(t *testing.T) {
	ctx := t.Context()
	db := open(t, "store", options(vfs.NewMem()))
	m := spec{trace: id(1)}.make(t)
	lease, err := db.Acquire(ctx, id(1))
	var ticket engine.Ticket
	if err == nil {
		ticket, err = db.Submit(ctx, lease, m.begin())
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Wait(); err != nil {
		t.Errorf("what was under way at the close: %v", err)
	}
	key := ledger.Key{}
	for what, call := range map[string]func() error{
		"append":            func() error { _, err := db.Append(ctx, lease, m.begin()); return err },
		"acquire":           func() error { _, err := db.Acquire(ctx, id(1)); return err },
		"lend":              func() error { _, err := db.Lend(ctx, id(1), func(*chain.Trace) bool { return true }); return err },
		"overtake":          func() error { _, err := db.Overtake(ctx, id(1), false); return err },
		"load":              func() error { _, err := db.Load(ctx, id(1)); return err },
		"state":             func() error { _, err := db.State(ctx, id(1)); return err },
		"record":            func() error { _, err := db.Record(ctx, key); return err },
		"await":             func() error { return db.Await(ctx, key, ledger.Record{Attempts: ledger.Attempts{External: true}}) },
		"attachment":        func() error { _, err := db.Attachment(ctx, chain.AttachBlob, make([]byte, 32)); return err },
		"write checkpoint":  func() error { _, err := db.WriteCheckpoint(ctx, lease); return err },
		"latest checkpoint": func() error { _, _, err := db.LatestCheckpoint(ctx, id(1)); return err },
		"check":             func() error { _, err := db.Check(ctx); return err },
		"backup":            func() error { return db.Backup(ctx, "copy") },
		"seal":              func() error { _, err := db.SealTraces(ctx, 1); return err },
		"rewrite":           func() error { _, err := db.Rewrite(ctx); return err },
		"end quarantine":    func() error { return db.EndQuarantine(ctx, "me") },
		"entries": func() error {
			for _, err := range db.Entries(ctx, id(1), 0) {
				return err
			}
			return nil
		},
		"notes": func() error {
			for _, err := range db.Notes(ctx, id(1), 0) {
				return err
			}
			return nil
		},
		"traces": func() error {
			for _, err := range db.Traces(ctx, tga.ID{}) {
				return err
			}
			return nil
		},
		"open traces": func() error {
			for _, err := range db.OpenTraces(ctx) {
				return err
			}
			return nil
		},
		"attachments": func() error {
			for _, err := range db.Attachments(ctx, chain.AttachBlob, nil) {
				return err
			}
			return nil
		},
		"follow": func() error {
			for _, err := range db.Follow(ctx, 0) {
				return err
			}
			return nil
		},
	} {
		if err := call(); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s := db.Stats(); s.Cursor != 1 || s.StoreID.IsZero() || db.Cursor() != 1 || db.NewestTS() == 0 {
		t.Errorf("%+v", s)
	}
	db.Release(lease)
	if err := db.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestFreezeLastsUntilUnfreeze: what somebody outside said of the store holds over the next open.
func TestFreezeLastsUntilUnfreeze(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	m := spec{trace: id(1)}.make(t)
	lease, err := db.Acquire(t.Context(), id(1))
	if err == nil {
		_, err = db.Append(t.Context(), lease, m.begin())
	}
	if err == nil {
		err = errors.Join(db.Freeze("9 leaves were seen outside"), db.Freeze("another reason"))
	}
	if err != nil {
		t.Fatal(err)
	}
	frozen := func(when string) {
		t.Helper()
		if s := db.Stats(); !strings.Contains(s.Frozen, "9 leaves were seen outside") || s.Restored || s.Quarantine != nil {
			t.Fatalf("%s: %+v", when, s)
		}
		if _, err := db.Load(t.Context(), id(1)); err != nil {
			t.Fatalf("%s: it cannot be read: %v", when, err)
		}
		_, err := db.Acquire(t.Context(), id(2))
		if !errors.Is(err, tga.StoreUnavailable) || !errors.Is(err, tga.StateChecksumMismatch) {
			t.Fatalf("%s: a trace is begun: %v", when, err)
		}
	}
	frozen("at once")
	_, err = db.Append(t.Context(), lease, m.end())
	wantCode(t, err, tga.StoreUnavailable)
	for range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open(t, "store", options(fs))
		frozen("after an open")
	}
	if err := db.Unfreeze(t.Context(), true, "me"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", options(fs))
	if s := db.Stats(); s.Frozen != "" || s.Quarantine == nil || !strings.Contains(s.Quarantine.Reason, "9 leaves were seen outside") {
		t.Fatalf("%+v", s)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
