package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A trace with a timer, for example for a new attempt after a failure, is not archived, so that the
// new attempt can be written to it. The key of a timer ends with the id of its trace.
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
	set := chain.Attachment{Kind: chain.AttachTimer, Key: timer(2), Value: []byte(`{"kind":"retry"}`)}
	append_(t, db, lease, chain.Batch{
		Notes:       []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{"attempt":1}`)}},
		Attachments: []chain.Attachment{set},
	})
	db.Release(lease)
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 2 {
		t.Fatalf("sealed %+v, %v, want the two without a timer", done, err)
	}
	lease = acquire(t, db, id(2))
	set.Value = nil
	append_(t, db, lease, chain.Batch{Attachments: []chain.Attachment{set}})
	db.Release(lease)
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 1 {
		t.Fatalf("sealed %+v, %v, want the one whose timer is gone", done, err)
	}
}

// A finished trace that is archived reads as before, its id and its key stay taken,
// and its own keys are gone.
func TestSealedTraceIsStillReadable(t *testing.T) {
	serial.Test(t)
	db := mem(t)
	ctx := context.Background()
	large := []chain.Document{{Pointer: tga.PointerResult, Data: bytes.Repeat([]byte("answer"), 20_000)}}
	const n = 30
	for i := range uint64(n) {
		run(t, db, spec{trace: id(i + 1), documents: large})
	}
	noted := acquire(t, db, id(1))
	append_(t, db, noted, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{"attempt":1}`)}}})
	db.Release(noted)
	denied := spec{trace: id(40), verdict: tga.Deny}.make(t)
	append_(t, db, acquire(t, db, id(40)), denied.batch(denied.request, denied.decision)) // lease kept
	executing := acquire(t, db, id(41))
	append_(t, db, executing, spec{trace: id(41)}.make(t).begin())
	db.Release(executing)

	before := map[tga.ID]*chain.Trace{}
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
	_, err = db.Append(ctx, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{}`)}}})
	wantCode(t, err, tga.StateInvalidTransition)
	same := spec{trace: id(50), key: "key-" + id(1).String()}
	_, err = db.Append(ctx, acquire(t, db, id(50)), same.make(t).begin())
	wantCode(t, err, tga.IdempotencyKeyInFlight)
	same.attempt, same.replayed = "none", id(1)
	m := same.make(t)
	append_(t, db, acquire(t, db, id(51)), func() chain.Batch {
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
				_, err = db.Append(ctx, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{}`)}}})
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

// TestArchiveSegmentsAreBounded: a segment is ended once it has 16 MiB, with the trace that makes it so
// many: three traces of 9 MiB are in two.
func TestArchiveSegmentsAreBounded(t *testing.T) {
	serial.Test(t)
	db := mem(t)
	for i := range uint64(3) {
		run(t, db, spec{trace: id(i + 1), documents: []chain.Document{{Pointer: tga.PointerResult, Data: make([]byte, 9<<20)}}})
	}
	done, err := db.SealTraces(context.Background(), start+1)
	if err != nil || done.Traces != 3 || done.Segments != 2 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestTraceCountsForItsSegmentWithEveryByte: of its artifacts and documents. Bytes that are not counted let
// a segment grow past its bound.
func TestTraceCountsForItsSegmentWithEveryByte(t *testing.T) {
	db := mem(t)
	s := spec{trace: id(1), documents: []chain.Document{{Pointer: tga.PointerResult, Data: make([]byte, 3000)}}}
	run(t, db, s)
	m, want := s.make(t), 3000
	for _, a := range []*tga.Artifact{m.request, m.decision, m.call, m.effect} {
		want += len(a.Canonical)
	}
	if got, err := engine.SealBytes(db, id(1), start+1); err != nil || got != want {
		t.Errorf("%d bytes, %v, want %d", got, err, want)
	}
}

// TestSealThatCannotReadItsKeysChangesNothing: damage of the index stops an archiving before its first write. If it
// stopped it after the segment is durable, the next open would remove notes that were appended in between.
func TestSealThatCannotReadItsKeysChangesNothing(t *testing.T) {
	for _, kind := range []keyspace.Kind{keyspace.Chunk, keyspace.Checkpoint} {
		fs := vfs.NewMem()
		db := open(t, "store", options(fs))
		run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
		undo := db.FailReads(kind)
		if _, err := db.SealTraces(t.Context(), start+1); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatalf("sealed: %v", err)
		}
		undo()
		for n := range uint64(2) {
			lease := acquire(t, db, id(n+1))
			append_(t, db, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{"attempt":1}`)}}})
			db.Release(lease)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open(t, "store", options(fs))
		for n := range uint64(2) {
			if tr, err := db.Load(t.Context(), id(n+1)); err != nil || tr.NoteHead.Number != 1 {
				t.Errorf("%c: trace %d: %+v, %v", kind, n+1, tr, err)
			}
		}
		check(t, db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedSegmentOnItsWayKeepsNoStoreShut: a crash ended an archiving, and the segment cannot be read. The store opens,
// and its other traces go on. Nothing is archived until the segment is there again.
func TestDamagedSegmentOnItsWayKeepsNoStoreShut(t *testing.T) {
	fs := vfs.NewMem()
	db, err := engine.Open("store", options(fs))
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, spec{trace: id(1)})
	if _, err := db.SealTraces(t.Context(), start+1); err != nil {
		t.Fatal(err)
	}
	sealing := keyspace.AppendMeta(nil, "sealing")
	db.Put(sealing, binary.BigEndian.AppendUint64(nil, 1)) // as before the last record of the archiving
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("store/log")
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, ".body") })
	if err != nil || i < 0 {
		t.Fatal("there is no segment", err)
	}
	path := fs.PathJoin("store/log", names[i])
	whole := content(t, fs, path)
	replace(t, fs, path, whole[:len(whole)-1])
	if db, err = engine.Open("store", options(fs)); err != nil {
		t.Fatalf("the store does not open: %v", err)
	}
	defer db.Close()
	run(t, db, spec{trace: id(2)})
	_, err = db.SealTraces(t.Context(), start+1)
	wantCode(t, err, tga.StateChecksumMismatch)
	replace(t, fs, path, whole)
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 1 {
		t.Errorf("with the segment: %+v, %v", done, err)
	}
	if rep, err := db.Check(t.Context()); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}
