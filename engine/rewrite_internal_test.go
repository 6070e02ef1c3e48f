package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// TestLiveBytesAreAddedUpBySegment: bodies of every kind of row that can name one count, before, between
// and behind the kinds that are passed over; the pace is kept for each row that was looked at, and what
// it says ends the count, as the end of the context and a row that is none do.
func TestLiveBytesAreAddedUpBySegment(t *testing.T) {
	db := inMemory(t)
	one, other := numbered(1, 1), numbered(2, 2)
	put := func(key []byte, segment uint64, length uint32) {
		db.PutRow(key, appendRow(nil, &wal.Op{Place: wal.Inline, Ref: wal.Ref{Segment: segment, Length: length}}))
	}
	put(attached(keyspace.Approval, keyspace.ApprovalKey(one)), 100, 5)
	put(attached(keyspace.Blob, keyspace.DigestKey([32]byte{1})), 100, 7)
	put(keyspace.AppendEntry(nil, one, 1), 101, 11)
	put(keyspace.AppendEntry(nil, other, 1), 100, 13)
	put(keyspace.AppendSegment(nil, 1), 102, 17)
	db.PutRow(keyspace.AppendEntry(nil, other, 2), appendRow(nil, &wal.Op{Place: wal.InFile, File: wal.File{Length: 19}}))
	rows := len(db.Rows()) + 1 // and the position
	paced := 0
	live, err := db.index.liveBytes(t.Context(), func(context.Context) error { paced++; return nil })
	if want := map[uint64]int64{100: 25, 101: 11, 102: 17}; err != nil || !maps.Equal(live, want) {
		t.Errorf("%v, %v; want %v", live, err, want)
	}
	if paced != rows {
		t.Errorf("the pace is kept %d times for %d rows", paced, rows)
	}
	put(keyspace.AppendLedger(nil, [32]byte{1}), 100, 1)
	put(keyspace.AppendTombstone(nil, one), 100, 1)
	if again, err := db.index.liveBytes(t.Context(), nil); err != nil || !maps.Equal(again, live) {
		t.Errorf("with rows that never name a body: %v, %v", again, err)
	}
	enough := errors.New("enough")
	if live, err := db.index.liveBytes(t.Context(), func(context.Context) error { return enough }); live != nil || !errors.Is(err, enough) {
		t.Errorf("where the pace ends it: %v, %v", live, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if live, err := db.index.liveBytes(ended, nil); live != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("where the context ends it: %v, %v", live, err)
	}
	db.PutRow(keyspace.AppendEntry(nil, other, 3), []byte{rowBody, 1})
	if live, err := db.index.liveBytes(t.Context(), nil); live != nil || tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("with a row that is none: %v, %v", live, err)
	}
}

// TestRewriteMakesEverySegmentSmaller: those of which much is nobody's and those that are raw, each once,
// and none where the disk may have no room for it.
func TestRewriteMakesEverySegmentSmaller(t *testing.T) {
	disk := &someFree{vfs.NewMem(), 1 << 40}
	db, err := Open("store", Options{FS: disk, FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20, RewriteShare: -1, LowWaterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	random := rand.NewChaCha8([32]byte{})
	put := func(key byte) {
		t.Helper()
		body := make([]byte, 200<<10) // does not compress: what is dead in a segment stays a part of it
		if _, err := random.Read(body); err != nil {
			t.Fatal(err)
		}
		w := db.commits.newWriter()
		w.body([]byte{'x', key}, body)
		if err := db.commits.apply(w); err != nil {
			t.Fatal(err)
		}
	}
	for range 12 { // each is nobody's with the next
		put(0)
	}
	for i := range byte(12) { // and each of these somebody's
		put(1 + i)
	}
	full := db.wal.Full()
	waste, err := db.rewriting.wasteful(t.Context(), nil)
	if err != nil || len(waste) < 2 || len(full) < len(waste)+2 {
		t.Fatalf("%d of %d segments are wasteful, %v", len(waste), len(full), err)
	}
	free := func(bytes uint64) {
		disk.become(db, bytes)
	}
	free(1)
	if n, err := db.Rewrite(t.Context()); n != 0 || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("on a full disk %d are rewritten, %v", n, err)
	}
	if again, err := db.rewriting.wasteful(t.Context(), nil); err != nil || len(again) != len(waste) {
		t.Errorf("%d segments are wasteful after that, %v", len(again), err)
	}
	if err := db.rewriting.rewrite(t.Context(), waste[0].Number, nil); err != nil {
		t.Fatal(err)
	}
	free(1 << 40)
	if n, err := db.Rewrite(t.Context()); n != len(full)-1 || err != nil {
		t.Errorf("%d segments are rewritten beside one, want %d: %v", n, len(full)-1, err)
	}
	for _, seg := range db.wal.Full() {
		if seg.Generation == 0 {
			t.Errorf("segment %d is as it was", seg.Number)
		}
	}
	if n, err := db.Rewrite(t.Context()); n != 0 || err != nil {
		t.Errorf("once more: %d, %v", n, err)
	}
}

// TestRewriteOfRawSegmentsAsksForRoom, where nothing in them is nobody's.
func TestRewriteOfRawSegmentsAsksForRoom(t *testing.T) {
	disk := &someFree{vfs.NewMem(), 1 << 40}
	db, err := Open("store", Options{FS: disk, FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20, RewriteShare: -1, LowWaterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range byte(12) {
		w := db.commits.newWriter()
		w.body([]byte{'x', i}, make([]byte, 200<<10))
		if err := db.commits.apply(w); err != nil {
			t.Fatal(err)
		}
	}
	raw, _ := db.rewriting.raw(0)
	if len(raw) < 2 {
		t.Fatalf("%d segments are raw", len(raw))
	}
	disk.become(db, 1)
	if n, err := db.Rewrite(t.Context()); n != 0 || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("on a full disk %d are rewritten, %v", n, err)
	}
	disk.become(db, 1<<40)
	if n, err := db.Rewrite(t.Context()); n != len(raw) || err != nil {
		t.Errorf("%d segments are rewritten, want %d: %v", n, len(raw), err)
	}
}

// TestOpenAfterACrashGivesEverythingBack: where there is no rewriter, the rest of the segment that the crash
// ended and the files of bodies that nothing names, both in one open.
func TestOpenAfterACrashGivesEverythingBack(t *testing.T) {
	disk, log := crashmem.New(), &told{}
	o := Options{FS: disk, FirstSegmentBytes: 4 << 20, SegmentBytes: 4 << 20, RewriteShare: -1, Logger: slog.New(log)}
	db, err := Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.wal.WriteFile([]byte("mx"), []byte("nobody's")); err != nil {
		t.Fatal(err)
	}
	o.FS = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = Open("store", o); err != nil {
		t.Fatal(err)
	}
	full := db.wal.Full()
	if len(full) != 1 || full[0].Generation == 0 || full[0].Idle > mostIdle {
		t.Errorf("after the crash: %+v", full)
	}
	if n := log.of("removed files of bodies that nothing names"); n != 1 {
		t.Errorf("files were removed %d times, want once", n)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
