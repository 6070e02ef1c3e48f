package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// TestUnfreezeBesideCallsThatNeverEnter: calls that use only the standing parts may run while Unfreeze reopens
// the store, and see the same store before and after. The race detector checks this.
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

// TestFrozenStoreThatIsReadStaysFrozen: a store that was opened for reading is not unfrozen, whatever it was frozen for before.
func TestFrozenStoreThatIsReadStaysFrozen(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)})
	if err := errors.Join(db.Backup(t.Context(), "copy"), engine.Restore(t.Context(), "copy", "restored", options(fs)), db.Freeze("a reason"), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"store", "restored", "copy"} {
		if dir == "copy" { // in doubt
			if err := fs.Remove("copy/" + guard.WatermarkName); err != nil {
				t.Fatal(err)
			}
		}
		db, err := engine.OpenReadOnly(dir, options(fs))
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Unfreeze(t.Context(), true, "me"); err == nil || !strings.Contains(err.Error(), "opened read-only") {
			t.Errorf("%s: unfrozen: %v", dir, err)
		}
		if s := db.Stats(); s.Frozen == "" || s.Quarantine != nil {
			t.Errorf("%s: %+v", dir, s)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreIsUnfrozenOnce: of several who unfreeze a store at once, one does, and the others hear that it is not frozen. The end
// of a context does not follow what was done.
func TestStoreIsUnfrozenOnce(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, "store", options(fs))
	run(t, db, spec{trace: id(1)})
	if err := errors.Join(db.Close(), fs.Remove("store/"+guard.WatermarkName)); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", options(fs)) // in doubt: it is reopened
	const askers = 8
	errs := make(chan error, askers)
	for range askers {
		go func() { errs <- db.Unfreeze(t.Context(), true, "me") }()
	}
	done := 0
	for range askers {
		if err := <-errs; err == nil {
			done++
		} else if !errors.Is(err, tga.ValidationError) {
			t.Error(err)
		}
	}
	if done != 1 {
		t.Errorf("%d have unfrozen it", done)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := db.EndQuarantine(ended, "me")
	if _, in := db.Quarantine(); (err != nil) != in {
		t.Errorf("in quarantine: %v, and its end says %v", in, err)
	}
}

// TestFreezeLastsUntilUnfreeze: a store that Freeze froze is frozen after the next open too.
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
