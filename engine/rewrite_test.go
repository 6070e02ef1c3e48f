package engine_test

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// deadOf reads a log from its start and adds up, by segment, the bodies that are there and that
// no later operation left to anybody. The segment that is written to is not counted.
func deadOf(t *testing.T, fs vfs.FS, dir string) map[uint64]int64 {
	t.Helper()
	l, err := wal.Open(wal.Options{FS: fs, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	newest := map[string]wal.Ref{}
	bodies, live := map[uint64]int64{}, map[uint64]int64{}
	tail, err := l.Scan(wal.Position{}, func(r *wal.Record) error {
		bodies[r.At.Segment] += 0
		return r.Ops(func(op *wal.Op) error {
			if op.Key == nil {
				return nil
			}
			delete(newest, string(op.Key))
			if op.Place != wal.Inline {
				return nil
			}
			newest[string(op.Key)] = op.Ref
			_, err := l.Read(op.Ref, op.Key)
			if wal.Gone(err) {
				return nil // it is dead, and not here any more
			}
			bodies[op.Ref.Segment] += int64(op.Ref.Length)
			return err
		})
	})
	if err = errors.Join(err, l.Close()); err != nil || tail.Doubt != nil {
		t.Fatal(err, tail.Doubt)
	}
	for _, ref := range newest {
		live[ref.Segment] += int64(ref.Length)
	}
	delete(bodies, tail.At.Segment)
	for n := range bodies {
		bodies[n] -= live[n]
	}
	return bodies
}

// TestDeadBytesAreWhatTheyWere counts bodies that nobody needs: of archived traces, of
// attachments that were replaced and removed, in segments that were rewritten and in others.
// The count is that of the log, also after a reopen and with an index that was made anew.
func TestDeadBytesAreWhatTheyWere(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	db := lived(t, fs)
	for i := range uint64(20) {
		lease := acquire(t, db, id(300+i))
		append_(t, db, lease, spec{trace: id(300 + i)}.make(t).begin())
		for j := range 4 {
			value := bytes.Repeat([]byte{byte(j)}, 3000)
			if j == 3 && i%2 == 0 {
				value = nil
			}
			append_(t, db, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: bytes.Repeat([]byte{byte(i % 5)}, 32), Value: value}}})
		}
		db.Release(lease)
	}
	got := engine.DeadBytes(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	want := deadOf(t, fs, "store/log")
	some := false
	for _, n := range want {
		some = some || n > 0
	}
	if !some || len(want) < 4 {
		t.Fatalf("nothing to count: %v", want)
	}
	if !maps.Equal(got, want) {
		t.Errorf("while it was used: %v, want %v", got, want)
	}
	o := options(fs)
	o.SegmentBytes = 64 << 10
	for _, what := range []string{"after a reopen", "with another index"} {
		db, err := engine.Open("store", o)
		if err != nil {
			t.Fatal(err)
		}
		if got := engine.DeadBytes(db); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := fs.RemoveAll("store/index"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestArchivedBeforeAReopenGivesRoomBack archives what lies in the segment that is written to,
// which stays as it is. When it is full, the store has been opened anew, and the room is given
// back all the same.
func TestArchivedBeforeAReopenGivesRoomBack(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	o := options(fs)
	o.FirstSegmentBytes, o.SegmentBytes = 1<<20, 1<<20
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(45) {
		run(t, db, spec{trace: id(i + 1), args: `{"fill":"` + noise(i, 100) + `"}`})
	}
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 45 {
		t.Fatalf("%+v %v", done, err)
	}
	if dead := engine.DeadBytes(db); len(dead) > 0 {
		t.Fatalf("a segment is full already: %v", dead)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "store", o)
	lease := acquire(t, db, id(1000))
	append_(t, db, lease, spec{trace: id(1000), args: `{"fill":"` + noise(7, 5_000) + `"}`}.make(t).begin())
	db.Release(lease)
	before := db.Stats().LogBytes
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 0 {
		t.Fatalf("%+v %v", done, err)
	}
	if dead := engine.DeadBytes(db); len(dead) != 1 || dead[1] != 0 {
		t.Errorf("dead bytes are left: %v", dead)
	}
	if after := db.Stats().LogBytes; before-after < 400<<10 {
		t.Errorf("the log has %d bytes, %d before", after, before)
	}
	if st, err := db.State(t.Context(), id(1)); err != nil || st.Current != tga.Completed {
		t.Errorf("%+v %v", st, err)
	}
}

// TestOpenAfterACrashLeavesTheRestOfASegment: what a crash left of a segment is given back, by the
// open where there is no rewriter, and else behind it: the open does not wait for that. On a disk
// without room the store opens, and the rest stays.
func TestOpenAfterACrashLeavesTheRestOfASegment(t *testing.T) {
	serial.Test(t)
	crashed := crashmem.New()
	o := options(crashed)
	o.FirstSegmentBytes = 4 << 20
	db := open(t, "store", o)
	run(t, db, spec{trace: id(1), key: "key"})
	crashed = crashed.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)})
	// length is how many bytes the segment takes that the crash ended.
	length := func(db *engine.DB) int64 { return db.Stats().UncompressedBytes }
	for name, c := range map[string]struct {
		share int
		free  uint64
		given bool
	}{
		"no rewriter":          {-1, 1 << 30, true},
		"no rewriter, no room": {-1, 2 << 20, false},
		"a rewriter":           {100, 1 << 30, true},
		"a rewriter, no room":  {100, 2 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &smallDisk{crashed.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)}), c.free}
			fs := &faultFS{FS: disk, suffix: "packing"}
			opened := make(chan struct{})
			fs.onWrite(func(real func() (int, error)) (int, error) {
				if c.share > 0 {
					<-opened // an open that waited for this would never return
				}
				return real()
			})
			o := options(fs)
			o.FirstSegmentBytes, o.RewriteShare, o.LowWaterBytes = 4<<20, c.share, 2<<20
			db := open(t, "store", o)
			if length(db) == 0 && (c.share > 0 || !c.given) {
				t.Error("it is given back before the open returned")
			}
			close(opened)
			if c.given {
				until(t, "the rest of the segment is given back", func() bool { return length(db) == 0 })
			} else if length(db) < 3<<20 {
				t.Errorf("%d bytes stay", length(db))
			}
			run(t, db, spec{trace: id(2), key: "another key"})
		})
	}
	for _, c := range []struct {
		share int
		idle  int64
		want  bool
	}{{-1, 1, false}, {0, engine.MostIdleInAll, true}, {15, engine.MostIdleInAll + 1, false}} {
		if got := engine.MayWait(c.share, c.idle); got != c.want {
			t.Errorf("a share of %d and %d bytes: waits: %v", c.share, c.idle, got)
		}
	}
}
