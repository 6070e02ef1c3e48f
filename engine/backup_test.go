package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// A backup taken while appends go on is a store that verifies. Restored, it has
// another id and another secret, can be read and not written, until somebody accepts
// by name that appends may be missing.
func TestBackupAndRestoreOpensFrozen(t *testing.T) {
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
			if err := db.Backup(ctx, at("backup")); tga.CodeOf(err) != tga.ValidationError {
				t.Errorf("backup over a backup: %v", err)
			}

			copied, err := engine.OpenReadOnly(at("backup"), o)
			if err != nil {
				t.Fatal(err)
			}
			if rep := check(t, copied); rep.Traces < 51 {
				t.Errorf("backup has %+v", rep)
			}
			_, err = copied.Append(ctx, wal.Lease{TraceID: id(99)}, spec{trace: id(99)}.make(t).begin())
			wantCode(t, err, tga.StoreUnavailable)
			wantCode(t, copied.Unfreeze(ctx, true, "me"), tga.StoreUnavailable)
			if err := copied.Close(); err != nil {
				t.Fatal(err)
			}

			if err := engine.Restore(t.Context(), at("backup"), at("restored"), o); err != nil {
				t.Fatal(err)
			}
			wantCode(t, engine.Restore(t.Context(), at("backup"), at("restored"), o), tga.RestoreFailed)
			wantCode(t, engine.Restore(t.Context(), at("nowhere"), at("restored2"), o), tga.RestoreFailed)
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
				_, err = restored.Append(ctx, wal.Lease{TraceID: open_.trace}, open_.make(t).end())
				if !errors.Is(err, tga.StateChecksumMismatch) {
					t.Errorf("append to a frozen store: %v", err)
				}
				wantCode(t, err, tga.StoreUnavailable)
				_, err = restored.Acquire(ctx, open_.trace)
				wantCode(t, err, tga.StoreUnavailable)
				_, err = restored.WriteCheckpoint(ctx, wal.Lease{TraceID: open_.trace})
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

// A watermark that knows of more than the log has, or is gone, or is another store's,
// freezes the store; accepting the loss opens it.
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
			names, err := fs.List("store")
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				if strings.HasSuffix(n, ".log") {
					overwrite(t, fs, "store/"+n, nil)
				}
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
			if err := db.Flush(); err != nil {
				t.Fatal(err)
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
				_, err = db.Append(ctx, wal.Lease{TraceID: id(3)}, spec{trace: id(3)}.make(t).begin())
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
	db.Put(keyspace.AppendMeta(nil, "format"), []byte{0, 0, 0, 0, 0, 0, 0, 2})
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

// A trace that has something to come, a new attempt after a failure say, stays where that
// can be written to it. A timer's key ends with its trace; the others' timers are theirs.
func TestTraceWithATimerIsNotSealed(t *testing.T) {
	db := mem(t)
	timer := func(of uint64) []byte {
		trace := id(of)
		return append(binary.BigEndian.AppendUint64(nil, 1<<40), trace[:]...)
	}
	for i := range uint64(3) {
		run(t, db, spec{trace: id(i + 1)})
	}
	lease := acquire(t, db, id(2))
	set := wal.Attachment{Kind: wal.AttachTimer, Key: timer(2), Value: []byte(`{"kind":"retry"}`)}
	append_(t, db, lease, wal.Batch{
		Notes:       []wal.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{"attempt":1}`)}},
		Attachments: []wal.Attachment{set},
	})
	db.Release(lease)
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 2 {
		t.Fatalf("sealed %+v, %v, want the two without a timer", done, err)
	}
	lease = acquire(t, db, id(2))
	set.Value = nil
	append_(t, db, lease, wal.Batch{Attachments: []wal.Attachment{set}})
	db.Release(lease)
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 1 {
		t.Fatalf("sealed %+v, %v, want the one whose timer is gone", done, err)
	}
}

// A finished trace that is archived reads as before, its id and its key stay taken,
// and its own keys are gone.
func TestSealedTraceIsStillReadable(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	large := []wal.Document{{Pointer: tga.PointerResult, Data: bytes.Repeat([]byte("answer"), 20_000)}}
	const n = 30
	for i := range uint64(n) {
		run(t, db, spec{trace: id(i + 1), documents: large})
	}
	noted := acquire(t, db, id(1))
	append_(t, db, noted, wal.Batch{Notes: []wal.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{"attempt":1}`)}}})
	db.Release(noted)
	denied := spec{trace: id(40), verdict: tga.Deny}.make(t)
	append_(t, db, acquire(t, db, id(40)), denied.batch(denied.request, denied.decision)) // lease kept
	executing := acquire(t, db, id(41))
	append_(t, db, executing, spec{trace: id(41)}.make(t).begin())
	db.Release(executing)

	before := map[tga.ID]*wal.Trace{}
	records := map[string]string{}
	for i := range uint64(n) {
		tr, err := db.Load(ctx, id(i+1))
		if err != nil {
			t.Fatal(err)
		}
		before[tr.ID] = tr
	}
	for key, value := range db.Dump() {
		if key[0] == 'l' || key[0] == 'g' {
			records[key] = value
		}
	}
	if done, err := db.SealTraces(ctx, start); err != nil || done.Traces != 0 {
		t.Errorf("none is old enough: %+v, %v", done, err)
	}
	done, err := db.SealTraces(ctx, start+1)
	if err != nil || done.Traces != n || done.Segments != 1 || done.Bytes == 0 {
		t.Fatalf("sealed %+v, %v", done, err)
	}
	if again, err := db.SealTraces(ctx, start+1); err != nil || again.Traces != 0 {
		t.Errorf("sealed again: %+v, %v", again, err)
	}
	dump := db.Dump()
	for key := range dump {
		if key[0] == 'e' && key[1:17] != string(idBytes(40)) && key[1:17] != string(idBytes(41)) || key[0] == 'b' || key[0] == 'n' {
			t.Errorf("key %c %x is still there", key[0], key[1:])
		}
	}
	for key, value := range records {
		if dump[key] != value {
			t.Errorf("key %c %x changed", key[0], key[1:])
		}
	}
	for trace, want := range before {
		db.DropCaches()
		got, err := db.Load(ctx, trace)
		if err != nil || got.Head != want.Head || got.NoteHead != want.NoteHead || got.State() != want.State() ||
			!bytes.Equal(got.Effect.Canonical, want.Effect.Canonical) || !bytes.Equal(got.Documents[0].Data, want.Documents[0].Data) {
			t.Fatalf("trace %s: %+v, %v", trace, got, err)
		}
	}
	seqs := 0
	for e, err := range db.Entries(ctx, id(1), 0) {
		if seqs++; err != nil || e.Seq != uint64(seqs) {
			t.Errorf("entry %d: %v", e.Seq, err)
		}
	}
	if seqs != 4 {
		t.Errorf("%d entries", seqs)
	}

	// Its id and its key are taken.
	lease := acquire(t, db, id(1))
	if out, err := db.Append(ctx, lease, spec{trace: id(1), documents: large}.make(t).end()); err != nil || !out.Replayed {
		t.Errorf("the same effect again: %+v, %v", out, err)
	}
	_, err = db.Append(ctx, lease, spec{trace: id(1), args: `{"amount":5}`}.make(t).begin())
	wantCode(t, err, tga.StateInvalidTransition)
	_, err = db.Append(ctx, lease, wal.Batch{Notes: []wal.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{}`)}}})
	wantCode(t, err, tga.StateInvalidTransition)
	same := spec{trace: id(50), key: "key-" + id(1).String()}
	_, err = db.Append(ctx, acquire(t, db, id(50)), same.make(t).begin())
	wantCode(t, err, tga.IdempotencyKeyInFlight)
	same.attempt, same.replayed = "none", id(1)
	m := same.make(t)
	append_(t, db, acquire(t, db, id(51)), func() wal.Batch {
		s := same
		s.trace = id(51)
		m = s.make(t)
		return m.batch(m.request, m.decision, m.call, m.effect)
	}())
	if rec, err := db.Record(ctx, same.ledgerKey()); err != nil || rec.Status != ledger.Settled || rec.TraceID != id(1) {
		t.Errorf("record %+v, %v", rec, err)
	}
	if rep := check(t, db); rep.Archived != n || rep.Traces != n+3 {
		t.Errorf("report %+v", rep)
	}
}

func idBytes(n uint64) []byte { v := id(n); return v[:] }

// Notes appended while their traces are archived are in the segment or refused: none
// that was acknowledged is lost.
func TestArchivingLosesNoNote(t *testing.T) {
	db := mem(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const traces, writers = 60, 4
	for i := range uint64(traces) {
		run(t, db, spec{trace: id(i + 1)})
	}
	var acknowledged [traces]atomic.Uint32
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range uint64(traces) {
				lease, err := db.Acquire(ctx, id(i+1))
				if err != nil {
					t.Error(err)
					return
				}
				db.Release(lease) // so that the archiver does not pass the trace over
				lease, err = db.Acquire(ctx, id(i+1))
				if err != nil {
					t.Error(err)
					return
				}
				_, err = db.Append(ctx, lease, wal.Batch{Notes: []wal.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{}`)}}})
				switch tga.CodeOf(err) {
				case "":
					acknowledged[i].Add(1)
				case tga.StateInvalidTransition: // archived
				default:
					t.Error(err)
				}
				db.Release(lease)
			}
		})
	}
	wg.Go(func() {
		for sealed := 0; sealed < traces; {
			done, err := db.SealTraces(ctx, start+1)
			if err != nil {
				t.Error(err)
				return
			}
			sealed += done.Traces
		}
	})
	wg.Wait()
	for i := range uint64(traces) {
		tr, err := db.Load(ctx, id(i+1))
		if err != nil || tr.NoteHead.Number != acknowledged[i].Load() {
			t.Errorf("trace %d: %v, %d notes were acknowledged", i+1, err, acknowledged[i].Load())
		}
	}
}

// A crash between the segment's commit and the removal of the entries leaves both; the
// next open removes the entries.
func TestHalfDoneArchivingIsFinishedAtOpen(t *testing.T) {
	disk := crashmem.New()
	db, err := engine.Open("store", options(disk))
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	before := db.Dump()
	if _, err := db.SealTraces(context.Background(), start+1); err != nil {
		t.Fatal(err)
	}
	sealed := db.Dump()
	for key, value := range before {
		if _, is := sealed[key]; !is {
			db.Put([]byte(key), []byte(value))
		}
	}
	db.Put(keyspace.AppendMeta(nil, "sealing"), []byte{0, 0, 0, 0, 0, 0, 0, 1})
	check(t, db) // both say the same
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", options(disk))
	got := db.Dump()
	delete(got, string(keyspace.AppendMeta(nil, "incarnation")))
	delete(sealed, string(keyspace.AppendMeta(nil, "incarnation")))
	if !maps.Equal(got, sealed) {
		t.Error("the store is not as after the whole archiving")
	}
}

// TestCancelledCopyLeavesNothing: what a backup or a restore that was ended leaves is nothing,
// not even under another name.
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
