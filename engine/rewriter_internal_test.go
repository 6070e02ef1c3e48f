package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/wal"

	"github.com/tgad/tgad/schemas/tga"
)

// someFree is a disk with so many bytes free.
type someFree struct {
	vfs.FS
	free uint64
}

func (d *someFree) Unwrap() vfs.FS { return d.FS }

func (d *someFree) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: atomic.LoadUint64(&d.free), TotalBytes: 1 << 40}, nil
}

// become changes what is free, and has the store measure it at its next question. Pebble asks
// too, in goroutines of its own.
func (d *someFree) become(db *DB, free uint64) {
	atomic.StoreUint64(&d.free, free)
	db.space.mu.Lock()
	defer db.space.mu.Unlock()
	db.space.checked = time.Time{}
}

// TestSegmentsThatWaitForTheRewriter: those nobody rewrote yet, with enough bytes or too much idle room.
func TestSegmentsThatWaitForTheRewriter(t *testing.T) {
	const least = 1000
	for _, c := range []struct {
		seg  wal.Segment
		want bool
	}{
		{wal.Segment{Records: least}, true},
		{wal.Segment{Records: least - 1}, false},
		{wal.Segment{Records: 1, Idle: mostIdle}, false},
		{wal.Segment{Records: 1, Idle: mostIdle + 1}, true},
		{wal.Segment{Records: least, Idle: mostIdle + 1, Generation: 1}, false},
	} {
		if is := isRaw(c.seg, least); is != c.want {
			t.Errorf("%+v: %v", c.seg, is)
		}
	}
}

// TestSegmentIsWastefulFromAQuarterOn: and never where nothing in it is nobody's.
func TestSegmentIsWastefulFromAQuarterOn(t *testing.T) {
	for _, c := range []struct {
		dead, file int64
		want       bool
	}{
		{1000, 4000, true}, {999, 4000, false}, {1, 3, true}, {0, 3, false}, {0, 0, false},
	} {
		if is := (candidate{Stored: wal.Stored{File: c.file}, dead: c.dead}).wasteful(); is != c.want {
			t.Errorf("%d bytes of %d: %v", c.dead, c.file, is)
		}
	}
}

// TestRewriterRestsWhileAppendsAreMade: after a slice of work it rests for its share, and for a
// moment more where appends were made since the rest before, unless much waits for it.
func TestRewriterRestsWhileAppendsAreMade(t *testing.T) {
	disk := &someFree{vfs.NewMem(), 1 << 40}
	db, err := Open("store", Options{FS: disk, FirstSegmentBytes: 4 << 20, SegmentBytes: 4 << 20, RewriteShare: -1, LowWaterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	// Something to wait for the rewriter: values of the store's own, 256 KiB each.
	for i := range byte(40) {
		w := db.commits.newWriter()
		w.body([]byte{'x', i}, make([]byte, 256<<10))
		if err := db.commits.apply(w); err != nil {
			t.Fatal(err)
		}
	}
	_, waiting := db.rewriting.raw(minRewrite)
	if waiting < 2*minRewrite {
		t.Fatalf("%d bytes wait", waiting)
	}
	now := time.Unix(1, 0)
	var slept []time.Duration
	r := &rewriter{rewriting: db.rewriting, health: &db.health, stats: &db.stats, pacer: &pacer{rest: 2, now: func() time.Time { return now },
		sleep: func(_ context.Context, d time.Duration) { slept = append(slept, d); now = now.Add(d) }}}
	r.seen = db.stats.commits.Load()
	most := uint64(waiting) * rawPart
	for _, c := range []struct {
		what    string
		work    time.Duration
		appends uint64
		free    uint64
		want    []time.Duration
	}{
		{"the first part", 0, 1, 1 << 40, nil},
		{"within a slice", paceSlice - 1, 1, 1 << 40, nil},
		{"after a slice", 1, 0, 1 << 40, []time.Duration{2 * paceSlice, calm}},
		{"nobody appends", paceSlice, 0, 1 << 40, []time.Duration{2 * paceSlice}},
		{"somebody appends", 3 * paceSlice, 1, 1 << 40, []time.Duration{6 * paceSlice, calm}},
		{"as much waits as may", paceSlice, 1, most, []time.Duration{2 * paceSlice, calm}},
		{"more waits", paceSlice, 1, most - rawPart, []time.Duration{2 * paceSlice}},
		{"nothing was appended since", paceSlice, 0, 1 << 40, []time.Duration{2 * paceSlice}},
	} {
		now, slept = now.Add(c.work), nil
		db.stats.commits.Add(c.appends)
		disk.become(db, c.free)
		if err := r.pace(t.Context()); err != nil || !slices.Equal(slept, c.want) {
			t.Errorf("%s: rests %v, %v; want %v", c.what, slept, err, c.want)
		}
	}
	// Two wait for the segment that is being rewritten, until it is done or they leave.
	db.rewriting.turn <- struct{}{}
	ended, end := context.WithCancel(t.Context())
	left := make(chan error, 2)
	go func() { left <- db.rewriting.compress(ended, 1<<40, nil) }()
	go func() { left <- db.rewriting.rewrite(t.Context(), 1<<40, nil) }()
	rests := func(waiting int32, want bool) {
		t.Helper()
		for db.rewrites.waiting.Load() != waiting {
			time.Sleep(time.Millisecond)
		}
		now, slept = now.Add(3*paceSlice), nil
		if err := r.pace(t.Context()); err != nil || len(slept) > 0 != want {
			t.Errorf("%d wait: rests %v, %v; want %v", waiting, slept, err, want)
		}
	}
	rests(2, false)
	end()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	rests(1, false)
	<-db.rewriting.turn
	if err := <-left; err == nil {
		t.Error("a segment that is not there was rewritten")
	}
	rests(0, true)
	for _, c := range []struct {
		what string
		ctx  context.Context
		free uint64
		busy uint64
		want int
	}{
		{"nobody appends", t.Context(), 1 << 40, 0, 1},
		{"somebody appends all the time", t.Context(), most, 1, patience},
		{"much waits", t.Context(), most - rawPart, 1, 0},
		{"the store is closed", ended, 1 << 40, 1, 0},
	} {
		slept = nil
		disk.become(db, c.free)
		r.pacer.sleep = func(_ context.Context, d time.Duration) {
			slept = append(slept, d)
			db.stats.commits.Add(c.busy)
		}
		if err := r.begin(c.ctx, 1); err != nil || len(slept) != c.want {
			t.Errorf("begin, %s: rests %v, %v; want %d", c.what, slept, err, c.want)
		}
	}
	db.health.poison(tga.Errorf(tga.StoreUnavailable, "a write failed"))
	if r.pace(t.Context()) == nil {
		t.Error("it goes on in a store that stopped")
	}
}
