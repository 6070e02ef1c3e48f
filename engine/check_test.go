package engine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Every key of the store that is changed or removed behind its back is a problem that
// Check names.
func TestCheckFindsEveryDamagedKey(t *testing.T) {
	serial.Test(t)
	db, err := engine.Open("store", options(vfs.NewMem()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	large := []chain.Document{{Pointer: tga.PointerResult, Data: bytes.Repeat([]byte("x"), 100<<10)}}
	run(t, db, spec{trace: id(1)}, spec{trace: id(2), documents: large}, spec{trace: id(3)})
	if _, err := db.SealTraces(context.Background(), start+1); err != nil {
		t.Fatal(err)
	}
	run(t, db, spec{trace: id(11)}, spec{trace: id(12), documents: large})
	s := spec{trace: id(13), attempt: "apart"}
	lease := acquire(t, db, s.trace)
	append_(t, db, lease, s.make(t).begin())
	if _, err := db.WriteCheckpoint(context.Background(), lease); err != nil {
		t.Fatal(err)
	}
	append_(t, db, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteAttempt, Who: "tgad", Body: ledger.Mark{Attempt: 1, Epoch: uint64(lease.Epoch)}.Body()}}})
	if rep := check(t, db); rep.Traces != 6 || rep.Archived != 3 || rep.Entries != 23 || rep.Notes != 1 || rep.Records != 6 || rep.Segments != 1 || rep.Open != 1 {
		t.Errorf("report %+v", rep)
	}

	seen := map[byte]int{}
	for key, value := range db.Rows() {
		if key[0] == 'm' {
			continue // what the store knows of itself; Open reads it
		}
		damages := map[string][]byte{"removed": nil, "cut short": []byte(value)[:len(value)-1]}
		for _, at := range []int{0, len(value) / 2, len(value) - 1} {
			b := []byte(value)
			b[at] ^= 1
			damages["bit flipped at "+string(rune('0'+at%10))] = b
		}
		for name, damage := range damages {
			if key[0] == 'c' && damage == nil {
				continue // a checkpoint more or less is no disagreement
			}
			db.PutRow([]byte(key), damage)
			rep, err := db.Check(context.Background())
			if err != nil {
				t.Fatalf("%x %s: %v", key, name, err)
			}
			if len(rep.Problems) == 0 {
				t.Errorf("key %c %x, %s: no problem found", key[0], key[1:], name)
			}
			for _, p := range rep.Problems {
				if p.String() == "" || tga.CodeOf(p.Err) == "" {
					t.Errorf("problem without a code: %+v", p)
				}
			}
			seen[key[0]]++
			db.PutRow([]byte(key), []byte(value))
		}
	}
	for _, kind := range "bceglnors" {
		if seen[byte(kind)] == 0 {
			t.Errorf("no key of kind %c was damaged", kind)
		}
	}
	for name, kv := range map[string][2][]byte{
		"unknown kind":        {[]byte("zz"), []byte("x")},
		"short entry key":     {[]byte("e123"), []byte("x")},
		"record of nothing":   {keyspace.AppendLedger(nil, tga.Sum(nil)), []byte(db.Dump()[string(keyspace.AppendLedger(nil, spec{trace: id(11)}.ledgerKey().Hash()))])},
		"chunk of nothing":    {keyspace.AppendChunk(nil, id(50), 1, 0), []byte("x")},
		"chunk of no part":    {keyspace.AppendChunk(nil, id(11), 4, 0), []byte("x")},
		"note of nothing":     {keyspace.AppendNote(nil, id(50), 1), []byte("x")},
		"open, and finished":  {keyspace.AppendOpen(nil, id(11)), []byte("x")},
		"tombstone of no one": {keyspace.AppendTombstone(nil, id(50)), []byte("x")},
		"leaf twice":          {keyspace.AppendGlobal(nil, db.Cursor()+1), []byte(db.Dump()[string(keyspace.AppendGlobal(nil, 1))])},
	} {
		db.Put(kv[0], kv[1])
		rep, err := db.Check(context.Background())
		if err != nil || len(rep.Problems) == 0 {
			t.Errorf("%s: no problem found, %v", name, err)
		}
		db.Put(kv[0], nil)
	}
	check(t, db)
}

// A trace with a bad entry is refused by name, with both digests; the others go on.
func TestDamagedTraceIsQuarantinedAlone(t *testing.T) {
	db, err := engine.Open("store", readable(vfs.NewMem()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	for i := range uint64(3) {
		lease := acquire(t, db, id(i+1))
		append_(t, db, lease, spec{trace: id(i + 1)}.make(t).begin())
		db.Release(lease)
	}
	key := keyspace.AppendEntry(nil, id(2), 2)
	value := []byte(db.Dump()[string(key)])
	at := strings.Index(string(value), "allowed by rule 1")
	value[at] ^= 1
	db.Put(key, value)
	var e *tga.Error
	if _, err := db.Load(ctx, id(2)); !errors.As(err, &e) || e.Code != tga.StateRecoveryFailed || e.TraceID != id(2) || e.Seq != 2 || e.Where != "stored" ||
		e.WantDigest == e.GotDigest || !errors.Is(err, tga.StateChecksumMismatch) {
		t.Errorf("load of the damaged trace: %v (%+v)", err, e)
	}
	_, err = db.Append(ctx, acquire(t, db, id(2)), spec{trace: id(2)}.make(t).end())
	wantCode(t, err, tga.StateRecoveryFailed)
	for e, err := range db.Entries(ctx, id(2), 0) {
		if err != nil {
			wantCode(t, err, tga.StateRecoveryFailed)
		} else if e.Seq != 1 {
			t.Errorf("entry %d of the damaged trace", e.Seq)
		}
	}
	open := 0
	for _, err := range db.OpenTraces(ctx) {
		if open++; err != nil {
			t.Error(err)
		}
	}
	if open != 3 {
		t.Errorf("%d open traces", open)
	}
	for _, i := range []uint64{1, 3} {
		append_(t, db, acquire(t, db, id(i)), spec{trace: id(i)}.make(t).end())
	}
	rep, err := db.Check(ctx)
	if err != nil || len(rep.Problems) != 1 || rep.Problems[0].TraceID != id(2) || rep.Problems[0].Seq != 2 || rep.Problems[0].Stored == rep.Problems[0].Computed {
		t.Errorf("check: %+v, %v", rep.Problems, err)
	}
}

func TestCheckpoints(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	s := spec{trace: id(1)}
	m := s.make(t)
	lease := acquire(t, db, s.trace)
	if _, err := db.WriteCheckpoint(ctx, lease); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("checkpoint of nothing: %v", err)
	}
	if _, ok, err := db.LatestCheckpoint(ctx, s.trace); ok || err != nil {
		t.Errorf("latest of nothing: %v, %v", ok, err)
	}
	var all []tga.Checkpoint
	for _, a := range []*tga.Artifact{m.request, m.decision, m.call, m.effect} {
		append_(t, db, lease, m.batch(a))
		cp, err := db.WriteCheckpoint(ctx, lease)
		if err != nil {
			t.Fatal(err)
		}
		again, err := db.WriteCheckpoint(ctx, lease)
		if err != nil || again.Digest != cp.Digest {
			t.Errorf("two checkpoints of one state: %s and %s, %v", cp.Digest, again.Digest, err)
		}
		got, ok, err := db.LatestCheckpoint(ctx, s.trace)
		if err != nil || !ok || got != cp {
			t.Errorf("latest %+v, %v, %v, want %+v", got, ok, err, cp)
		}
		all = append(all, cp)
	}
	stored := 0
	for key := range db.Dump() {
		if key[0] == 'c' {
			stored++
		}
	}
	if stored != 2 {
		t.Errorf("%d checkpoints are kept", stored)
	}
	_, err := db.WriteCheckpoint(ctx, chain.Lease{TraceID: s.trace, Epoch: 1})
	wantCode(t, err, tga.StateConcurrentExecution)

	// A bad one is skipped; the older one serves, then none.
	newest, older := keyspace.AppendCheckpoint(nil, s.trace, 4), keyspace.AppendCheckpoint(nil, s.trace, 3)
	dump := db.Dump()
	other := all[3]
	other.State.LastDigest = tga.Sum(nil)
	other.Seal()
	for name, bad := range map[string][]byte{
		"bad digest":    bytes.Replace([]byte(dump[string(newest)]), []byte("COMPLETED"), []byte("FAILED"), 1),
		"other entry":   other.AppendCanonical(nil),
		"wrong place":   []byte(dump[string(older)]),
		"no checkpoint": []byte("x"),
	} {
		db.Put(newest, bad)
		if got, ok, err := db.LatestCheckpoint(ctx, s.trace); err != nil || !ok || got != all[2] {
			t.Errorf("%s: %+v, %v, %v", name, got, ok, err)
		}
	}
	if n := db.Stats().BadCheckpoints; n != 4 {
		t.Errorf("%d bad checkpoints are counted", n)
	}
	db.Put(older, []byte("x"))
	if _, ok, err := db.LatestCheckpoint(ctx, s.trace); ok || err != nil {
		t.Errorf("both bad: %v, %v", ok, err)
	}
	db.Put(newest, nil)
	db.Put(older, nil)
}

// TestCheckpointIsNoStartOfReplay: with a checkpoint of the head that verifies, a trace whose
// first entry is gone is not replayed; and a checkpoint that says something else changes
// nothing of what the entries say.
func TestCheckpointIsNoStartOfReplay(t *testing.T) {
	db := mem(t)
	ctx := t.Context()
	s := spec{trace: id(1)}
	m := s.make(t)
	lease := acquire(t, db, s.trace)
	for _, a := range []*tga.Artifact{m.request, m.decision, m.call, m.effect} {
		append_(t, db, lease, m.batch(a))
	}
	cp, err := db.WriteCheckpoint(ctx, lease)
	if err != nil {
		t.Fatal(err)
	}
	want, err := db.State(ctx, s.trace)
	if err != nil || want.LastSeq != cp.Seq {
		t.Fatalf("%+v, %v beside a checkpoint at %d", want, err, cp.Seq)
	}
	newest := keyspace.AppendCheckpoint(nil, s.trace, cp.Seq)
	dump := db.Dump()
	other := cp
	other.State.LastDigest = tga.Sum(nil)
	other.Seal()
	db.Put(newest, other.AppendCanonical(nil))
	if got, err := db.State(ctx, s.trace); err != nil || got != want {
		t.Errorf("beside another checkpoint %+v, %v, want %+v", got, err, want)
	}
	db.Put(newest, []byte(dump[string(newest)]))
	first := keyspace.AppendEntry(nil, s.trace, 1)
	row := db.Rows()[string(first)]
	db.PutRow(first, nil)
	if db.Dump()[string(newest)] != dump[string(newest)] {
		t.Error("the checkpoint is not at hand")
	}
	_, err = db.Load(ctx, s.trace)
	wantCode(t, err, tga.StateRecoveryFailed)
	_, _, err = db.LatestCheckpoint(ctx, s.trace) // it is handed out for what was replayed alone
	wantCode(t, err, tga.StateRecoveryFailed)
	db.PutRow(first, []byte(row))
	if got, err := db.State(ctx, s.trace); err != nil || got != want {
		t.Errorf("whole again it is %+v, %v, want %+v", got, err, want)
	}
}

// TestLedgerRecordOfNobodyIsSaidTwice: a check compares the number of records with the position row, and
// their contents with the logs. A record that no trace has reserved is one too many for both.
func TestLedgerRecordOfNobodyIsSaidTwice(t *testing.T) {
	db := mem(t)
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)})
	var key []byte
	for k, row := range db.Rows() {
		if kind, _ := keyspace.KindOf([]byte(k)); kind == keyspace.Ledger && key == nil {
			key = []byte(k)
			key[len(key)-1] ^= 1
			value, err := db.Value([]byte(k), []byte(row))
			if err != nil {
				t.Fatal(err)
			}
			db.Put(key, value)
		}
	}
	rep, err := db.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the ledger has 3 records, or wrong ones; want 2", "3 ledger records name a trace, the logs account for 2"} {
		if !slices.ContainsFunc(rep.Problems, func(p engine.Problem) bool { return strings.Contains(p.String(), want) }) {
			t.Errorf("%q is not said: %v", want, rep.Problems)
		}
	}
	db.Put(key, nil)
}

// TestOneProblemHidesNoOther: a wrong tombstone or a wrong number of ledger records does not end the
// comparison in which it is found.
func TestOneProblemHidesNoOther(t *testing.T) {
	db, err := engine.Open("store", options(vfs.NewMem()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	run(t, db, spec{trace: id(1)}, spec{trace: id(2)}, spec{trace: id(3)})
	if _, err := db.SealTraces(t.Context(), start+1); err != nil {
		t.Fatal(err)
	}
	whole := check(t, db)
	stones := db.Dump()
	one, other := keyspace.AppendTombstone(nil, id(1)), keyspace.AppendTombstone(nil, id(2))
	db.Put(one, []byte(stones[string(other)])) // good, and of another trace
	rep, err := db.Check(t.Context())
	if err != nil || len(rep.Problems) != 1 || rep.Problems[0].TraceID != id(1) {
		t.Errorf("%v, %v", rep.Problems, err)
	}
	if rep.Problems = nil; rep.Archived != whole.Archived || rep.Entries != whole.Entries || rep.Traces != whole.Traces {
		t.Errorf("%+v are checked, want %+v", rep, whole)
	}
	db.Put(one, []byte(stones[string(one)]))

	more := keyspace.AppendLedger(nil, tga.Sum(nil))
	db.Put(more, []byte(stones[string(keyspace.AppendLedger(nil, spec{trace: id(1)}.ledgerKey().Hash()))]))
	rep, err = db.Check(t.Context())
	var said []string
	for _, p := range rep.Problems {
		said = append(said, p.String())
	}
	if all := strings.Join(said, "\n"); err != nil || !strings.Contains(all, "the ledger has 4 records, or wrong ones; want 3") || !strings.Contains(all, "4 ledger records name a trace, the logs account for 3") {
		t.Errorf("%q, %v", all, err)
	}
	db.Put(more, nil)
	check(t, db)
}

// TestCheckHoldsAnExpiredRecordToItsTrace: an expired record, which has only a digest and an outcome, is
// accepted if both agree with the trace, and is a problem otherwise.
func TestCheckHoldsAnExpiredRecordToItsTrace(t *testing.T) {
	db := open(t, "store", options(vfs.NewMem()))
	s := spec{trace: id(1), key: "order-1"}
	run(t, db, s)
	rec, err := db.Record(t.Context(), s.ledgerKey())
	if err != nil {
		t.Fatal(err)
	}
	expired, err := rec.Expire()
	if err != nil {
		t.Fatal(err)
	}
	class, digest := expired, expired
	class.Class = ledger.ClassPermanent
	digest.RequestDigest[0] ^= 1
	row := keyspace.AppendLedger(nil, s.ledgerKey().Hash())
	before := db.Rows()[string(row)]
	for name, c := range map[string]struct {
		record ledger.Record
		good   bool
	}{"its own": {expired, true}, "another outcome": {class, false}, "another request": {digest, false}} {
		value, err := c.record.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		db.Put(row, value)
		rep, err := db.Check(t.Context())
		if err != nil || (len(rep.Problems) == 0) != c.good {
			t.Errorf("%s: %v, %v", name, rep.Problems, err)
		}
		for _, p := range rep.Problems {
			if !strings.Contains(p.String(), "the expired record") {
				t.Errorf("%s: %s", name, p)
			}
		}
	}
	db.PutRow(row, []byte(before))
}
