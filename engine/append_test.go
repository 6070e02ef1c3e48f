package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func TestWholeCallIsTwoAppends(t *testing.T) {
	db := mem(t)
	s := spec{trace: id(1), documents: []chain.Document{{Pointer: tga.PointerResult, Data: []byte(`{"id":9007199254740993}`)}}}
	m := s.make(t)
	lease := acquire(t, db, s.trace)
	first := append_(t, db, lease, m.begin())
	if first.Head.Seq != 3 || first.Head.State != tga.Executing || len(first.Entries) != 3 {
		t.Fatalf("after the first append: %+v", first)
	}
	second := append_(t, db, lease, m.end())
	if second.Head.Seq != 4 || second.Head.State != tga.Completed {
		t.Fatalf("after the second append: %+v", second)
	}
	db.DropCaches()
	got, err := db.Load(context.Background(), s.trace)
	if err != nil {
		t.Fatal(err)
	}
	if got.Head != second.Head || string(got.Documents[0].Data) != `{"id":9007199254740993}` {
		t.Errorf("loaded %+v", got)
	}
	rec, err := db.Record(context.Background(), s.ledgerKey())
	if err != nil || rec == nil || rec.Status != ledger.Settled || rec.EffectDigest != m.effect.Digest {
		t.Errorf("record %+v, %v", rec, err)
	}
	if stats := db.Stats(); stats.Appends != 2 || stats.Entries != 4 {
		t.Errorf("stats %+v", stats)
	}
}

// Entries are written once: later appends never change their bytes.
func TestAppendNeverOverwrites(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	written := map[string]string{}
	entries := func() map[string]string {
		all := db.Dump()
		maps.DeleteFunc(all, func(key, _ string) bool { return !strings.ContainsAny(key[:1], "en") })
		return all
	}
	still := func() {
		t.Helper()
		now := entries()
		for key, value := range written {
			if now[key] != value {
				t.Fatalf("the value of %x changed or went", key)
			}
		}
		written = now
	}
	a, other := spec{trace: id(1)}.make(t), spec{trace: id(1), args: `{"amount":13}`}.make(t)
	lease := acquire(t, db, id(1))
	for _, step := range []struct {
		batch chain.Batch
		ok    bool
	}{
		{a.batch(a.request), true},
		{other.batch(other.request), false}, // a second genesis
		{a.batch(a.request), true},          // replayed
		{a.batch(a.decision), true},
		{other.batch(other.decision), false},
		{a.batch(a.call), true},
		{chain.Batch{Notes: []chain.NewNote{{Kind: "remark", Who: "tester", Body: []byte(`{}`)}}}, true},
		{a.batch(a.call, a.effect), false}, // the first is there, the second not
		{a.end(), true},
		{a.end(), true},        // replayed
		{other.begin(), false}, // nothing follows a terminal state
		{a.batch(a.request, a.effect), false},
	} {
		_, err := db.Append(ctx, lease, step.batch)
		if (err == nil) != step.ok {
			t.Fatalf("append: %v, want ok %v", err, step.ok)
		}
		still()
	}
	if n := len(written); n != 5 {
		t.Errorf("%d entries and notes, want 5", n)
	}
}

// Each case breaks one check and every check after it: the code must be that of the
// first. Nothing is written.
func TestAppendOrderOfChecks(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	held := spec{trace: id(1), key: "k"}
	run(t, db, held) // settles key k
	s := spec{trace: id(2), key: "k", args: `{"amount":99}`}
	m := s.make(t)
	lease := acquire(t, db, s.trace)
	head := append_(t, db, lease, m.batch(m.request, m.decision)).Head

	conflicting := m.batch(m.call) // right but for the ledger
	broken := spec{trace: id(2), key: "k", args: `{"amount":100}`}.make(t)
	unlinked := broken.batch(broken.call) // its decision is another
	noID := func() chain.Batch {
		e := tga.LogEntry{TraceID: s.trace, Seq: 3, Prev: head.Digest, TS: start, From: tga.Authorized, To: tga.Executing,
			Type: tga.CallType, ArtifactID: broken.call.ID, ArtifactDigest: broken.call.Digest}
		e.Seal()
		return chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: broken.call, Entry: &e}}}
	}
	badFrom := noID()
	badFrom.Artifacts[0].Entry.From, badFrom.Artifacts[0].Entry.To = tga.Executing, tga.Completed
	badFrom.Artifacts[0].Entry.Seal()
	badPrev := noID()
	badPrev.Artifacts[0].Entry.Prev, badPrev.Artifacts[0].Entry.From = tga.Sum(nil), tga.Executing
	badPrev.Artifacts[0].Entry.Seal()
	badSeq := noID()
	badSeq.Artifacts[0].Entry.Seq, badSeq.Artifacts[0].Entry.Prev = 9, tga.Sum(nil)
	badSeq.Artifacts[0].Entry.Seal()
	with := func(b chain.Batch, seq uint64, digest tga.Digest) chain.Batch {
		b.Expect = &chain.Head{Seq: seq, Digest: digest}
		return b
	}
	stale := chain.Lease{TraceID: s.trace, Epoch: lease.Epoch}
	db.Release(lease)
	lease = acquire(t, db, s.trace)

	before := db.Dump()
	for _, c := range []struct {
		name  string
		lease chain.Lease
		batch chain.Batch
		code  tga.Code
	}{
		{"never granted", chain.Lease{TraceID: s.trace, Epoch: lease.Epoch + 1}, with(badSeq, 9, tga.Sum(nil)), tga.StateLockAcquireFailed},
		{"no epoch", chain.Lease{TraceID: s.trace}, with(badSeq, 9, tga.Sum(nil)), tga.StateLockAcquireFailed},
		{"stale epoch", stale, with(badSeq, 9, tga.Sum(nil)), tga.StateConcurrentExecution},
		{"epoch of an earlier incarnation", chain.Lease{TraceID: s.trace, Epoch: 1}, badSeq, tga.StateConcurrentExecution},
		{"lease of another trace", chain.Lease{TraceID: id(3), Epoch: lease.Epoch}, badSeq, tga.StateConcurrentExecution},
		{"expected seq", lease, with(badSeq, 9, tga.Sum(nil)), tga.StateSequenceGap},
		{"expected digest", lease, with(badSeq, head.Seq, tga.Sum(nil)), tga.StateChecksumMismatch},
		{"entry's seq", lease, badSeq, tga.StateSequenceGap},
		{"entry's prev", lease, badPrev, tga.StateChecksumMismatch},
		{"entry's from_state", lease, badFrom, tga.StateInvalidTransition},
		{"entry without tool_call_id", lease, noID(), tga.MissingToolCallID},
		{"link", lease, unlinked, tga.StateChecksumMismatch},
		{"ledger", lease, conflicting, tga.IdempotencyKeyConflict},
		{"nothing", lease, chain.Batch{}, tga.ValidationError},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := db.Append(ctx, c.lease, c.batch)
			wantCode(t, err, c.code)
			if !maps.Equal(before, db.Dump()) {
				t.Error("a refused append changed the store")
			}
		})
	}
	// Both ways to be wrong about the number say the same two facts.
	for name, x := range map[string]struct {
		batch chain.Batch
		given uint64
	}{"expected seq": {with(conflicting, 9, tga.Digest{}), 10}, "entry's seq": {badSeq, badSeq.Artifacts[0].Entry.Seq}} {
		var e *tga.Error
		_, err := db.Append(ctx, lease, x.batch)
		if !errors.As(err, &e) || e.ExpectedSeq != head.Seq+1 || e.ActualSeq != x.given || x.given == head.Seq+1 {
			t.Errorf("%s: the sequence gap says %+v", name, e)
		}
	}
}

func TestReplayedAppendWritesNothing(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	m := spec{trace: id(1)}.make(t)
	lease := acquire(t, db, id(1))
	first := append_(t, db, lease, m.begin())
	append_(t, db, lease, m.end())
	db.Release(lease)
	before := db.Dump()
	entry := first.Entries[1]
	wrong := entry
	wrong.Digest = tga.Sum(nil)
	for _, c := range []struct {
		name  string
		batch chain.Batch
		seq   uint64 // 0 = not replayed
	}{
		{"all", m.begin(), 3},
		{"one in the middle", m.batch(m.decision), 2},
		{"the last", m.end(), 4},
		{"where expected", chain.Batch{Expect: &chain.Head{Seq: 1}, Artifacts: m.batch(m.decision).Artifacts}, 2},
		{"elsewhere", chain.Batch{Expect: &chain.Head{Seq: 3}, Artifacts: m.batch(m.decision).Artifacts}, 0},
		{"with the same entry", chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: m.decision, Entry: &entry}}}, 2},
		{"with another entry", chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: m.decision, Entry: &wrong}}}, 0},
		{"out of order", m.batch(m.decision, m.request), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Without a lease: whoever lost the answer may have lost that too.
			out, err := db.Append(ctx, chain.Lease{TraceID: id(1)}, c.batch)
			if c.seq == 0 {
				wantCode(t, err, tga.StateLockAcquireFailed)
			} else if err != nil || !out.Replayed || out.Head.Seq != c.seq || len(out.Entries) != len(c.batch.Artifacts) {
				t.Errorf("%+v, %v", out, err)
			}
			if !maps.Equal(before, db.Dump()) {
				t.Error("the store changed")
			}
		})
	}
}

// The two optional things an append may carry commit with it.
func TestAttachmentsCommitWithTheirAppend(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	m := spec{trace: id(1)}.make(t)
	lease := acquire(t, db, id(1))
	trace := id(1)
	b := m.batch(m.request)
	b.Attachments = []chain.Attachment{{Kind: chain.AttachApproval, Key: trace[:], Value: []byte("since")}}
	append_(t, db, lease, b)
	if v, err := db.Attachment(ctx, chain.AttachApproval, trace[:]); err != nil || string(v) != "since" {
		t.Errorf("%q, %v", v, err)
	}
	b = m.batch(m.decision)
	b.Attachments = []chain.Attachment{{Kind: chain.AttachApproval, Key: trace[:]}}
	append_(t, db, lease, b)
	if v, err := db.Attachment(ctx, chain.AttachApproval, trace[:]); err != nil || v != nil {
		t.Errorf("deleted: %q, %v", v, err)
	}
	for i := range 600 { // more than a page
		stream := artifactID(trace, byte(i%3))
		key := append(stream[:], 0, 0, 0, 0, 0, 0, byte(i>>8), byte(i))
		append_(t, db, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: key, Value: []byte{1}}}})
	}
	stream := artifactID(trace, 0)
	var keys [][]byte
	for a, err := range db.Attachments(ctx, chain.AttachStream, stream[:]) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, a.Key)
	}
	if len(keys) != 200 || !slices.IsSortedFunc(keys, slices.Compare) {
		t.Errorf("%d keys of the stream", len(keys))
	}
	all := 0
	for _, err := range db.Attachments(ctx, chain.AttachStream, nil) {
		if err != nil {
			t.Fatal(err)
		}
		all++
	}
	if all != 600 {
		t.Errorf("%d attachments in all", all)
	}
	// An attachment cannot reach another kind's keys.
	_, err := db.Append(ctx, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: 'e', Key: make([]byte, 24), Value: []byte{1}}}})
	wantCode(t, err, tga.ValidationError)
	if _, err := db.Attachment(ctx, 'l', make([]byte, 32)); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("read of kind l: %v", err)
	}
}

func TestLargeAnswerIsSpilledAndReadWhole(t *testing.T) {
	db := mem(t)
	for i, size := range []int{chain.MaxInline, chain.MaxInline + 1, chain.ChunkSize, chain.ChunkSize + 1, 3 << 20} {
		data := make([]byte, size)
		for j := range data {
			data[j] = byte(j * (i + 3))
		}
		s := spec{trace: id(uint64(i + 1)), documents: []chain.Document{{Pointer: tga.PointerResult, Data: data}}}
		run(t, db, s)
		db.DropCaches()
		got, err := db.Load(context.Background(), s.trace)
		if err != nil || len(got.Documents) != 1 || string(got.Documents[0].Data) != string(data) {
			t.Errorf("answer of %d bytes: %v", size, err)
		}
	}
}

func TestEntriesAndNotesInOrderAfterANumber(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	run(t, db, spec{trace: id(1)})
	lease := acquire(t, db, id(1))
	for range 3 {
		append_(t, db, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "tester", Body: []byte(`{"attempt":1}`)}}})
	}
	for after := range uint64(6) {
		want := after
		for e, err := range db.Entries(ctx, id(1), after) {
			if want++; err != nil || e.Seq != want {
				t.Errorf("after %d: seq %d, %v", after, e.Seq, err)
			}
		}
		if after <= 4 && want != 4 {
			t.Errorf("after %d: ended at %d", after, want)
		}
	}
	var numbers []uint32
	for n, err := range db.Notes(ctx, id(1), 1) {
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n.Number)
	}
	if !slices.Equal(numbers, []uint32{2, 3}) {
		t.Errorf("notes %v", numbers)
	}
	if _, err := db.Load(ctx, id(9)); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("load of nothing: %v", err)
	}
	for range db.Entries(ctx, id(9), 0) {
		t.Error("an entry of nothing")
	}
}

// A batch that just fits a frame is accepted; one item more is refused and nothing is written.
func TestLimitsOfABatch(t *testing.T) {
	documents := func(n, pointer int) []chain.Document {
		list := make([]chain.Document, n)
		for i := range list {
			list[i] = chain.Document{Pointer: "/" + strings.Repeat("p", pointer-2) + string(rune('a'+i)), Data: []byte{byte(i)}}
		}
		return list
	}
	for i, c := range []struct {
		documents []chain.Document
		code      tga.Code
	}{
		{documents(16, 10), ""}, {documents(17, 10), tga.LimitExceeded},
		{documents(1, 255), ""}, {documents(1, 256), tga.LimitExceeded},
	} {
		db := mem(t)
		s := spec{trace: id(uint64(i + 1)), documents: c.documents}
		m := s.make(t)
		lease := acquire(t, db, s.trace)
		append_(t, db, lease, m.begin())
		before := db.Dump()
		_, err := db.Append(context.Background(), lease, m.end())
		wantCode(t, err, c.code)
		if c.code != "" && !maps.Equal(before, db.Dump()) {
			t.Errorf("case %d: the store changed", i)
		}
	}
}

// A caller's entry may be at most a minute ahead of the store's clock, because the newest ts
// is used to detect that a clock went back.
func TestEntryFarAheadIsRefused(t *testing.T) {
	at := time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
	o := options(vfs.NewMem())
	o.Clock = func() time.Time { return at }
	db := open(t, "store", o)
	ctx := context.Background()
	for i, ahead := range []tga.Millis{60_000, 60_001} {
		s := spec{trace: id(uint64(i + 1))}
		m := s.make(t)
		lease := acquire(t, db, s.trace)
		e, err := chain.NewTrace(s.trace).Link(m.request, tga.MillisOf(at)+ahead)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Append(ctx, lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: m.request, Entry: &e}}})
		if want := i == 1; want != errors.Is(err, tga.ValidationError) {
			t.Errorf("%d ms ahead: %v", ahead, err)
		}
	}
}
