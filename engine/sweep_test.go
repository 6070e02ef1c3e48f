package engine_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// bodyFiles counts the files of bodies of a log.
func bodyFiles(t *testing.T, fs vfs.FS) (n int) {
	t.Helper()
	names, err := fs.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(name, ".body") {
			n++
		}
	}
	return n
}

// TestSweepKeepsABodyWhoseRowIsComing: between the sync of a record and its rows in the index, no row names the file of its
// body yet. A sweep at that moment leaves the file.
func TestSweepKeepsABodyWhoseRowIsComing(t *testing.T) {
	var hold atomic.Bool
	held, free := make(chan struct{}), make(chan struct{})
	o := options(vfs.NewMem())
	o.Synced = func(time.Duration) {
		if hold.Swap(false) {
			close(held)
			<-free
		}
	}
	db := open(t, "store", o)
	kept := item(id(50), 1, strings.Repeat("kept ", 300<<10))
	lease := acquire(t, db, id(50))
	hold.Store(true)
	appended, swept := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := db.Append(t.Context(), lease, kept)
		appended <- err
	}()
	<-held
	go func() {
		_, err := db.SealTraces(t.Context(), start)
		swept <- err
	}()
	until(t, "the sweep", func() bool { return db.Queued() > 0 }) // it waits for the commit that is held
	close(free)
	for what, ended := range map[string]chan error{"append": appended, "sweep": swept} {
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	db.Release(lease)
	wantBeside(t, db, kept, true)
}

// TestReplacedBodiesGoAfterAnOpen: the file of a body that was replaced goes after the next open, also if the store was
// closed in order and nothing is ever archived.
func TestReplacedBodiesGoAfterAnOpen(t *testing.T) {
	for name, work := range map[string]func(*engine.DB) error{
		"by the rewriter": func(db *engine.DB) error { _, err := engine.RewriteStep(db); return err },
		"when asked":      func(db *engine.DB) error { _, err := db.Rewrite(t.Context()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			db := open(t, "store", options(fs))
			last := item(id(50), 1, "")
			for n := range byte(4) {
				last.Attachments[0].Value = bytes.Repeat([]byte{n}, 2<<20)
				lay(t, db, id(50), last)
			}
			if n := bodyFiles(t, fs); n != 4 {
				t.Fatalf("%d files", n)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open(t, "store", options(fs))
			if err := work(db); err != nil {
				t.Fatal(err)
			}
			if n := bodyFiles(t, fs); n != 1 {
				t.Errorf("%d files of bodies are there, 1 is needed", n)
			}
			wantBeside(t, db, last, true)
		})
	}
}

// TestTooManyOperationsAreRefused: what no record has room for is refused, and stops nothing.
func TestTooManyOperationsAreRefused(t *testing.T) {
	db := open(t, "store", readable(vfs.NewMem()))
	for name, value := range map[string][]byte{"deletions": nil, "values": []byte("x")} {
		b := item(id(50), 0, "")
		for n := range uint64(90_000) {
			one := item(id(50), n, "").Attachments[0]
			one.Value = value
			b.Attachments = append(b.Attachments, one)
		}
		lease := acquire(t, db, id(50))
		_, err := db.Append(t.Context(), lease, b)
		if tga.CodeOf(err) != tga.LimitExceeded {
			t.Errorf("%s: %v", name, err)
		}
		b.Attachments = b.Attachments[:30_000]
		append_(t, db, lease, b)
		db.Release(lease)
	}
	run(t, db, spec{trace: id(1)})
}

// TestSyncedThatPanicsEndsNothing: the embedder's function is called in the goroutine that writes for all.
func TestSyncedThatPanicsEndsNothing(t *testing.T) {
	var log strings.Builder
	called := 0
	o := options(vfs.NewMem())
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.Synced = func(time.Duration) {
		called++
		panic("no clock on the wall")
	}
	db := open(t, "store", o)
	for n := range uint64(2) {
		if _, err := db.Append(t.Context(), acquire(t, db, id(60+n)), item(id(60+n), 1, "kept")); err != nil {
			t.Fatal(err)
		}
	}
	check(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if called < 2 || !strings.Contains(log.String(), "no clock on the wall") || !strings.Contains(log.String(), "sweep_test.go") {
		t.Errorf("called %d times; the log has %.300s", called, log.String())
	}
}
