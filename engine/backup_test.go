package engine_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A backup taken while appends go on is a store that verifies. Restored, it has
// another id and another secret, can be read and not written, until somebody accepts
// by name that appends may be missing.
func TestBackupAndRestoreOpensFrozen(t *testing.T) {
	serial.Test(t)
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": nil} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			o := options(fs)
			root := "root"
			if fs == nil {
				root = t.TempDir()
			} else if err := fs.MkdirAll(root, 0o750); err != nil {
				t.Fatal(err)
			}
			at := func(name string) string { return filepath.Join(root, name) }
			db := open(t, at("store"), o)
			for i := range uint64(50) {
				run(t, db, spec{trace: id(i + 1)})
			}
			open_ := spec{trace: id(60)}
			append_(t, db, acquire(t, db, open_.trace), open_.make(t).begin())
			var busy sync.WaitGroup
			busy.Go(func() {
				for i := range uint64(100) {
					run(t, db, spec{trace: id(1000 + i)})
				}
			})
			if err := db.Backup(ctx, at("backup")); err != nil {
				t.Fatal(err)
			}
			busy.Wait()
			wantCode(t, db.Backup(ctx, at("store")), tga.ValidationError)

			copied, err := engine.OpenReadOnly(at("backup"), o)
			if err != nil {
				t.Fatal(err)
			}
			if rep := check(t, copied); rep.Traces < 51 {
				t.Errorf("backup has %+v", rep)
			}
			_, err = copied.Append(ctx, chain.Lease{TraceID: id(99)}, spec{trace: id(99)}.make(t).begin())
			wantCode(t, err, tga.StoreUnavailable)
			wantCode(t, copied.Unfreeze(ctx, true, "me"), tga.StoreUnavailable)
			if err := copied.Close(); err != nil {
				t.Fatal(err)
			}

			if err := engine.Restore(t.Context(), at("backup"), at("restored"), o); err != nil {
				t.Fatal(err)
			}
			wantCode(t, engine.Restore(t.Context(), at("backup"), at("restored"), o), tga.RestoreFailed)
			err = engine.Restore(t.Context(), at("nowhere"), at("restored2"), o)
			if wantCode(t, err, tga.RestoreFailed); !errors.Is(err, tga.NotFound) {
				t.Errorf("%v, want that there is no backup", err)
			}
			for range 2 { // it stays frozen over restarts
				restored, err := engine.Open(at("restored"), o)
				if err != nil {
					t.Fatal(err)
				}
				if restored.Stats().StoreID == db.Stats().StoreID || restored.Secret() == db.Secret() {
					t.Error("the restored store has the id or the secret of the other")
				}
				if st, err := restored.State(ctx, id(1)); err != nil || st.Current != tga.Completed {
					t.Errorf("read: %+v, %v", st, err)
				}
				_, err = restored.Append(ctx, chain.Lease{TraceID: open_.trace}, open_.make(t).end())
				if !errors.Is(err, tga.StateChecksumMismatch) {
					t.Errorf("append to a frozen store: %v", err)
				}
				wantCode(t, err, tga.StoreUnavailable)
				_, err = restored.Acquire(ctx, open_.trace)
				wantCode(t, err, tga.StoreUnavailable)
				_, err = restored.WriteCheckpoint(ctx, chain.Lease{TraceID: open_.trace})
				wantCode(t, err, tga.StoreUnavailable)
				_, err = restored.SealTraces(ctx, start+1)
				wantCode(t, err, tga.StoreUnavailable)
				if err := restored.Close(); err != nil {
					t.Fatal(err)
				}
			}
			restored, err := engine.Open(at("restored"), o)
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, restored.Unfreeze(ctx, false, "me"), tga.ValidationError)
			wantCode(t, restored.Unfreeze(ctx, true, ""), tga.ValidationError)
			if err := restored.Unfreeze(ctx, true, "operator@example"); err != nil {
				t.Fatal(err)
			}
			append_(t, restored, acquire(t, restored, open_.trace), open_.make(t).end())
			if err := restored.Close(); err != nil {
				t.Fatal(err)
			}
			restored = open(t, at("restored"), o)
			q, in := restored.Quarantine()
			if !in || q.Who != "operator@example" || q.Since != start+1 || q.Cursor < 101 || q.Reason == "" {
				t.Errorf("quarantine %+v, %v", q, in)
			}
			if err := restored.EndQuarantine(ctx, "operator@example"); err != nil {
				t.Error(err)
			}
			if _, in := restored.Quarantine(); in {
				t.Error("still in quarantine")
			}
		})
	}
}

// A watermark that is ahead of the log, is missing, or belongs to another store freezes the
// store. Accepting the loss opens it for writing.
func TestLostAcknowledgementsFreezeTheStore(t *testing.T) {
	ctx := context.Background()
	for name, harm := range map[string]func(t *testing.T, fs *vfs.MemFS){
		"watermark gone": func(t *testing.T, fs *vfs.MemFS) {
			if err := fs.Remove("store/WATERMARK"); err != nil {
				t.Fatal(err)
			}
		},
		"watermark damaged": func(t *testing.T, fs *vfs.MemFS) { overwrite(t, fs, "store/WATERMARK", nil) },
		"another store's watermark": func(t *testing.T, fs *vfs.MemFS) {
			other, err := engine.Open("other", options(fs))
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			if err := fs.Remove("store/WATERMARK"); err != nil {
				t.Fatal(err)
			}
			if err := vfs.Copy(fs, "other/WATERMARK", "store/WATERMARK"); err != nil {
				t.Fatal(err)
			}
		},
		"log gone": func(t *testing.T, fs *vfs.MemFS) {
			// All but the first segment, of which there are some since the store is large.
			names, err := fs.List("store/log")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(names)
			for _, n := range names[1:] {
				overwrite(t, fs, "store/log/"+n, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			db, err := engine.Open("store", options(fs))
			if err != nil {
				t.Fatal(err)
			}
			run(t, db, spec{trace: id(1)})
			for i := range uint64(40) { // over the end of the first segment
				run(t, db, spec{trace: id(100 + i)})
			}
			run(t, db, spec{trace: id(2)})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			harm(t, fs)
			for range 2 {
				db, err = engine.Open("store", options(fs))
				if err != nil {
					t.Fatal(err)
				}
				if st, err := db.State(ctx, id(1)); err != nil || st.LastSeq != 4 {
					t.Errorf("read: %+v, %v", st, err)
				}
				_, err = db.Append(ctx, chain.Lease{TraceID: id(3)}, spec{trace: id(3)}.make(t).begin())
				wantCode(t, err, tga.StoreUnavailable)
				if !errors.Is(err, tga.StateChecksumMismatch) || db.Stats().Frozen == "" {
					t.Errorf("append: %v", err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			db, err = engine.Open("store", options(fs))
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Unfreeze(ctx, true, "me"); err != nil {
				t.Fatal(err)
			}
			if _, in := db.Quarantine(); !in {
				t.Error("no quarantine")
			}
			run(t, db, spec{trace: id(3)})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open(t, "store", options(fs))
			run(t, db, spec{trace: id(4)})
		})
	}
}

func overwrite(t *testing.T, fs *vfs.MemFS, name string, data []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	db, err := engine.Open("store", options(fs))
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, spec{trace: id(1)})
	db.Put(keyspace.AppendMeta(nil, "format"), []byte{0, 0, 0, 0, 0, 0, 0, 4})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = engine.Open("store", options(fs))
	wantCode(t, err, tga.FormatTooNew)
	_, err = engine.OpenReadOnly("store", options(fs))
	wantCode(t, err, tga.FormatTooNew)
	_, err = engine.OpenReadOnly("elsewhere", options(fs))
	wantCode(t, err, tga.NotFound)
}

// TestCancelledCopyLeavesNothing: a cancelled backup or restore leaves nothing, not even under
// a temporary name.
func TestCancelledCopyLeavesNothing(t *testing.T) {
	disk := crashmem.New()
	db := open(t, "store", options(disk))
	run(t, db, spec{trace: id(1)})
	if err := db.Backup(t.Context(), "good"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"backup":  db.Backup(over, "copy"),
		"restore": engine.Restore(over, "good", "restored", options(disk)),
		"damaged": engine.Restore(t.Context(), "nowhere", "restored", options(disk)),
	} {
		if err == nil || what != "damaged" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"copy", "copy.partial", "restored", "restored.partial"} {
		if _, err := disk.Stat(name); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	if all := db.Working(); len(all) > 0 {
		t.Errorf("%v goes on", all)
	}
}
