package engine_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// moment is what a log says up to one of its groups.
type moment struct {
	at     wal.Position
	time   tga.Millis // newest commit time
	values map[string]string
	order  []string // the leaves of the global order
}

// moments reads a log from its start: what each key's newest operation says, after each group.
// A body that is no longer there is "".
func moments(t *testing.T, fs vfs.FS, dir string) (all []moment, timeline tga.ID) {
	t.Helper()
	l, err := wal.Open(wal.Options{FS: fs, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	now, leaves := map[string]string{}, []string(nil)
	body := func(b []byte, err error) string {
		if err != nil && !wal.Gone(err) && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatal(err)
		}
		return string(b)
	}
	tail, err := l.Scan(wal.Position{}, func(r *wal.Record) error {
		err := r.Ops(func(op *wal.Op) error {
			switch key := string(op.Key); {
			case op.Kind == wal.Delete:
				delete(now, key)
			case op.Kind == wal.Order:
				leaves = append(leaves, string(op.Value))
			case op.Place == wal.Inline:
				now[key] = body(l.Read(op.Ref, op.Key))
			case op.Place == wal.InFile:
				now[key] = body(l.ReadFile(op.File, op.Key))
			case op.Kind == wal.Put || op.Kind == wal.Insert:
				now[key] = string(op.Value)
			}
			return nil
		})
		all = append(all, moment{r.At, r.Times.Committed, maps.Clone(now), slices.Clip(leaves)})
		return err
	})
	if err != nil || tail.Doubt != nil {
		t.Fatal(err, tail.Doubt)
	}
	return all, l.Timeline()
}

// comparable_ drops what a restored store or its index has of its own, and what an open finishes of an
// archiving that was under way at that moment.
func comparable_(values map[string]string, sealing bool) map[string]string {
	out := maps.Clone(values)
	for _, key := range append(ofItself, "mfloor", "msealing", "mformat") {
		delete(out, key)
	}
	for key := range out {
		// A landmark of the order says where a record lies.
		if key[0] == 'g' || sealing && strings.ContainsRune("ebnc", rune(key[0])) {
			delete(out, key)
		}
	}
	return out
}

// TestRestoreAtEveryGroup walks every group of two backups of a store, of before and after its
// archiving. Restored at a group, the store has exactly what the log says up to that group, and
// goes on behind it in a timeline of its own. Before the floor of the archiving it is refused,
// and so is what lies behind the end.
func TestRestoreAtEveryGroup(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	o := readable(fs)
	o.SegmentBytes = 64 << 10
	tick := start
	o.Clock = func() time.Time { tick += 1000; return tick.Time() }
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for i := range uint64(12) {
		run(t, db, spec{trace: id(i + 1), args: `{"fill":"` + noise(i, 40) + `"}`})
	}
	run(t, db, spec{trace: id(50), args: `{"fill":"` + noise(50, 17_000) + `"}`})
	backups := map[string]bool{"copy1": false, "copy2": true}
	if err := db.Backup(t.Context(), "copy1"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.SealTraces(t.Context(), tick+1); err != nil {
		t.Fatal(err)
	}
	run(t, db, spec{trace: id(60)})
	append_(t, db, acquire(t, db, id(61)), spec{trace: id(61)}.make(t).begin())
	if err := db.Backup(t.Context(), "copy2"); err != nil {
		t.Fatal(err)
	}
	for copied, archived := range backups {
		all, parent := moments(t, fs, copied+"/log")
		floor := uint64(0)
		if text, ok := all[len(all)-1].values["mfloor"]; ok != archived {
			t.Fatalf("%s: a floor is there: %v", copied, ok)
		} else if ok {
			for _, b := range []byte(text) {
				floor = floor<<8 | uint64(b)
			}
		}
		restore := func(at engine.Point) error {
			if err := fs.RemoveAll("restored"); err != nil {
				t.Fatal(err)
			}
			return engine.RestoreAt(t.Context(), copied, "restored", at, o)
		}
		refused := func(what string, at engine.Point, says string) {
			t.Helper()
			err := restore(at)
			wantCode(t, err, tga.RestoreFailed)
			if !errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s, %s: %v", copied, what, err)
			}
			if _, err := fs.Stat("restored"); err == nil {
				t.Errorf("%s, %s: a store was left", copied, what)
			}
		}
		is := func(want moment) {
			t.Helper()
			log, line := moments(t, fs, "restored/log")
			if has := log[want.at.Group-1]; has.at.Sum != want.at.Sum || line == parent || !slices.Equal(log[len(log)-1].order, want.order) {
				t.Errorf("%s: group %d is %+v, want %+v; timeline %s of %s", copied, want.at.Group, has.at, want.at, line, parent)
			}
			got, err := engine.OpenReadOnly("restored", o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = got.Close() }()
			_, sealing := want.values["msealing"]
			if has, want := comparable_(got.Dump(), sealing), comparable_(want.values, sealing); !maps.Equal(has, want) {
				t.Errorf("%s: %d values, want %d, or others", copied, len(has), len(want))
			}
			if got.Stats().Frozen == "" || got.Cursor() != uint64(len(want.order)) {
				t.Errorf("%s: frozen %q, with %d appends, want %d", copied, got.Stats().Frozen, got.Cursor(), len(want.order))
			}
			if names, err := fs.List("restored/log"); err != nil || strings.Contains(strings.Join(names, " "), wal.AsidePrefix) {
				t.Errorf("%s: %v %v", copied, names, err)
			}
		}
		for i, m := range all {
			if m.at.Group < floor {
				refused("before the floor", engine.Point{Group: m.at.Group}, "The earliest group is "+strconv.FormatUint(floor, 10))
				continue
			}
			if err := restore(engine.Point{Group: m.at.Group}); err != nil {
				t.Fatalf("%s, group %d: %v", copied, m.at.Group, err)
			}
			is(m)
			if i%3 > 0 || i+1 == len(all) || all[i+1].time == m.time || m.time == 0 {
				continue
			}
			for _, at := range []tga.Millis{m.time, all[i+1].time - 1} {
				if err := restore(engine.Point{Time: at}); err != nil {
					t.Fatalf("%s, at %s: %v", copied, at, err)
				}
				is(m)
			}
		}
		refused("behind the end", engine.Point{Group: all[len(all)-1].at.Group + 1}, "the log ends with group")
		refused("after it was made", engine.Point{Time: tick + 1e6}, "the backup was made at")
		refused("before it all", engine.Point{Time: 1}, "nothing was committed by then")
	}
	// The backup has groups that the store which was restored lacks: it is not replaced.
	all, _ := moments(t, fs, "copy2/log")
	last := all[len(all)-1].at.Group
	if err := engine.RestoreAt(t.Context(), "copy2", "earlier", engine.Point{Group: last - 1}, o); err != nil {
		t.Fatal(err)
	}
	earlier := open(t, "earlier", o)
	if err := earlier.Unfreeze(t.Context(), true, "me"); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(9) {
		run(t, earlier, spec{trace: id(70 + i)})
	}
	wantCode(t, earlier.Backup(t.Context(), "copy2"), tga.ValidationError)
	if err := engine.Restore(t.Context(), "copy2", "again", o); err != nil {
		t.Error(err)
	}
}

// TestBackupIsMadeBeforeItsEnd: an append is acknowledged while a backup is made, and is not in it. A restore to a time
// at which the store had the append is refused.
func TestBackupIsMadeBeforeItsEnd(t *testing.T) {
	for _, again := range []bool{false, true} {
		var db *engine.DB
		now, during := start, func() {}
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.HasPrefix(op.Path, "copy") && strings.Contains(op.Path, "/log/") && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileWriteAt) {
				do := during
				during = func() {}
				do()
			}
			return nil
		}))
		o := options(fs)
		o.Clock = func() time.Time { return now.Time() }
		db = open(t, "store", o)
		run(t, db, spec{trace: id(1)})
		if again {
			if err := db.Backup(t.Context(), "copy"); err != nil {
				t.Fatal(err)
			}
			run(t, db, spec{trace: id(3)})
		}
		did := false
		during = func() {
			did = true
			now += 60_000
			run(t, db, spec{trace: id(2)})
		}
		if err := db.Backup(t.Context(), "copy"); err != nil || !did {
			t.Fatalf("%v, an append beside it: %v", err, did)
		}
		err := engine.RestoreAt(t.Context(), "copy", "restored", engine.Point{Time: now}, o)
		if !errors.Is(err, tga.ValidationError) {
			t.Errorf("again %v: restored at %s: %v", again, now, err)
		}
		if err := engine.RestoreAt(t.Context(), "copy", "restored", engine.Point{Time: start}, o); err != nil {
			t.Errorf("again %v: restored at %s: %v", again, start, err)
		}
	}
}

// TestInterruptedBackupIsTheOneBefore: a backup that is being extended verifies as the backup that it was, at
// each moment at which the extension can end, until it is the new one.
func TestInterruptedBackupIsTheOneBefore(t *testing.T) {
	var left atomic.Int64
	left.Store(1 << 30)
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		names := op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpRename || op.Kind == errorfs.OpRemove
		if strings.HasPrefix(op.Path, "copy") && names && left.Add(-1) < 0 {
			return errors.New("stop")
		}
		return nil
	}))
	o := readable(fs)
	db := open(t, "store", o)
	size := 9 << 17 // it has a file of its own
	if testing.Short() {
		size = 9 << 10 // the race detector makes compression very slow
	}
	more := func(n uint64) {
		run(t, db, spec{trace: id(n)}, spec{trace: id(n + 1)})
		if _, err := db.SealTraces(t.Context(), start+1); err != nil {
			t.Fatal(err)
		}
		if err := db.NextSegment(); err != nil {
			t.Fatal(err)
		}
		run(t, db, spec{trace: id(n + 2), documents: noisy(n+1, size)})
	}
	has := func() int {
		t.Helper()
		copied, err := engine.OpenReadOnly("copy", o)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := copied.Check(t.Context())
		if err = errors.Join(err, copied.Close()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("%+v, %v", rep.Problems, err)
		}
		return rep.Traces
	}
	more(1)
	if err := db.Backup(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	more(11)
	for n, ended := int64(0), false; !ended; n++ {
		left.Store(n)
		err := db.Backup(t.Context(), "copy")
		left.Store(1 << 30)
		if traces := has(); traces != 3 && traces != 6 || err == nil && traces != 6 {
			t.Fatalf("ended at operation %d (%v): %d traces", n, err, traces)
		}
		ended = err == nil
	}
	// A backup that was opened for writing is a store.
	own, err := engine.Open("copy", o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, own, spec{trace: id(99)})
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	if traces := has(); traces != 7 {
		t.Errorf("%d traces", traces)
	}
}
