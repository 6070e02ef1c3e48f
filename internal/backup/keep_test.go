package backup_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/backup"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// bench is a store and the keeper of its backup.
type bench struct {
	*testing.T
	dir      string
	db       *engine.DB
	n        uint64 // traces that were appended
	settings atomic.Pointer[backup.Settings]
	made     func(ctx context.Context, dir string) error // in place of the store's error
	log      strings.Builder
	keeper   *backup.Keeper
	service  *fake  // of the bucket
	segment  uint32 // size of the first segment of its log
	data     string // of the open store
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, dir: t.TempDir(), segment: 64 << 10}
	b.open(filepath.Join(b.dir, "data"))
	b.settings.Store(&backup.Settings{To: b.at("copy"), Every: time.Millisecond, Share: 100})
	return b
}

func (b *bench) at(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) open(dir string) {
	b.Helper()
	var err error
	if b.db, err = engine.Open(dir, engine.Options{FirstSegmentBytes: b.segment, LowWaterBytes: 1}); err != nil {
		b.Fatal(err)
	}
	db := b.db
	b.Cleanup(func() { _ = db.Close() })
	b.data = dir
	b.again()
}

// again makes a keeper without memory, as a new process has it.
func (b *bench) again() {
	o := backup.Options{
		Data: b.data, Settings: func() backup.Settings { return *b.settings.Load() }, Clock: time.Now,
		Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	}
	if b.service != nil {
		o.Clock, o.Bucket = b.service.clock, b.service.open
	}
	b.keeper = backup.New(b, o)
}

// Backup implements [backup.Store].
func (b *bench) Backup(ctx context.Context, dir string) error {
	if b.made != nil {
		return b.made(ctx, dir)
	}
	return b.db.Backup(ctx, dir)
}

// Stats implements [backup.Store].
func (b *bench) Stats() engine.Stats { return b.db.Stats() }

// call appends a finished trace.
func (b *bench) call() {
	b.Helper()
	b.n++
	made := chaintest.New(chaintest.Options{Seed: b.n})
	lease, err := b.db.Acquire(b.Context(), made.ID)
	if err != nil {
		b.Fatal(err)
	}
	defer b.db.Release(lease)
	for i := range made.Entries {
		e := &made.Entries[i]
		if _, err := b.db.Append(b.Context(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: e.Artifact, Documents: e.Documents}}}); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) step() error {
	_, err := b.keeper.Step(b.Context(), *b.settings.Load())
	return err
}

// restored returns the number of traces in a store that is restored from a backup. The restored store must
// verify.
func (b *bench) restored(from string) int {
	b.Helper()
	to := b.at("restored")
	if err := errors.Join(os.RemoveAll(to), engine.Restore(context.Background(), from, to, engine.Options{})); err != nil {
		b.Fatal(err)
	}
	db, err := engine.OpenReadOnly(to, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rep, err := db.Check(context.Background())
	if err != nil || len(rep.Problems) > 0 {
		b.Fatal(rep.Problems, err)
	}
	return rep.Traces
}

// TestBackupIsMadeWhenThereIsSomethingNew: a backup is made after appends, and after an erasure or a seal,
// which append nothing. If nothing is new, nothing is written.
func TestBackupIsMadeWhenThereIsSomethingNew(t *testing.T) {
	b := newBench(t)
	was := uint64(0)
	made := func(what string, want bool) {
		t.Helper()
		if err := b.step(); err != nil {
			t.Fatal(err)
		}
		now := b.keeper.State().Made
		if (now > was) != want {
			t.Errorf("%s: %d backups, %d before", what, now, was)
		}
		was = now
	}
	b.call()
	made("a first one", true)
	made("nothing new", false)
	b.call()
	made("another call", true)
	if n := b.restored(b.at("copy")); n != 2 {
		t.Errorf("%d traces", n)
	}
	if _, err := b.db.SealTraces(t.Context(), tga.MillisOf(time.Now())+1000); err != nil {
		t.Fatal(err)
	}
	made("sealed", true)
	made("nothing new", false)
	if err := os.RemoveAll(b.at("copy")); err != nil {
		t.Fatal(err)
	}
	made("it is gone", true)
	if n := b.restored(b.at("copy")); n != 2 {
		t.Errorf("%d traces", n)
	}
}

// TestBackupOfAnotherStoreIsRefused: a store continues only its own backup. A backup of another store is
// refused even if its log is the same, until somebody allows it once.
func TestBackupOfAnotherStoreIsRefused(t *testing.T) {
	b := newBench(t)
	b.call()
	if err := b.step(); err != nil {
		t.Fatal(err)
	}
	first := b.db
	b.open(b.at("other"))
	b.call()
	refused := func(what string) {
		t.Helper()
		if err := b.step(); tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), first.Stats().StoreID.String()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another store")
	if n := b.restored(b.at("copy")); n != 1 {
		t.Errorf("%d traces", n)
	}
	if err := os.Rename(b.at("restored"), b.at("next")); err != nil {
		t.Fatal(err)
	}
	b.open(b.at("next"))
	if err := b.db.Unfreeze(t.Context(), true, "me"); err != nil {
		t.Fatal(err)
	}
	refused("one that was restored from it")
	if err := b.db.Backup(t.Context(), b.at("copy")); err != nil {
		t.Fatal(err)
	}
	b.call()
	if err := b.step(); err != nil {
		t.Errorf("after somebody had it do so: %v", err)
	}
	b.settings.Store(&backup.Settings{To: b.at("next/log/copy")})
	if err := b.step(); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("within the store: %v", err)
	}
}

// TestFailedBackupIsTold: a failure is reported once, with the age of the existing backup, and so is its
// end.
func TestFailedBackupIsTold(t *testing.T) {
	b := newBench(t)
	b.call()
	broken := tga.Errorf(tga.StoreUnavailable, "the disk is full")
	b.made = func(context.Context, string) error { return broken }
	run := func(until func(backup.State) bool) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		go func() {
			for ctx.Err() == nil && !until(b.keeper.State()) {
				time.Sleep(time.Millisecond)
			}
			stop()
		}()
		b.keeper.Run(ctx)
		if !until(b.keeper.State()) {
			t.Fatalf("%+v", b.keeper.State())
		}
	}
	run(func(s backup.State) bool { return s.Failures >= 3 })
	if s := b.keeper.State(); !errors.Is(s.Err, broken) || s.Made != 0 || s.To != b.at("copy") {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(b.log.String(), "the disk is full"); n != 1 {
		t.Errorf("%d times told: %s", n, b.log.String())
	}
	mended := time.Now()
	b.made = nil
	run(func(s backup.State) bool { return s.Made == 1 })
	if s := b.keeper.State(); s.Err != nil || s.Age > time.Since(mended) || !strings.Contains(b.log.String(), "current again") {
		t.Errorf("%+v, mended %s ago: %s", s, time.Since(mended), b.log.String())
	}
	// A backup that was stopped on purpose has not failed.
	b.call()
	b.made = func(ctx context.Context, _ string) error { return ctx.Err() }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.keeper.Run(ctx)
	if err := b.keeper.Last(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s := b.keeper.State(); s.Err != nil {
		t.Errorf("%+v", s)
	}
	b.settings.Store(&backup.Settings{})
	if s := b.keeper.State(); s.To != "" || s.Age != 0 || b.keeper.Last(t.Context()) != nil {
		t.Errorf("none is kept: %+v", s)
	}
}
