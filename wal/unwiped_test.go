//go:build unix

package wal

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestFileOfACrashIsWipedLater: a crash left the file that a rewrite had replaced, and the next open cannot wipe it. A rewrite that
// erases nothing then removes the file, and wipes it first: the rewrite of before may have been for an erasure. An append does
// not wait for a wipe.
func TestFileOfACrashIsWipedLater(t *testing.T) {
	var removes, wipes, hangs atomic.Bool
	bad := errors.New("a bad block")
	wiping, hung := make(chan struct{}), make(chan struct{})
	hang := sync.OnceFunc(func() { close(wiping); <-hung })
	old := "log/" + segmentName(1)
	fs := &removing{links: oneLink, seen: map[string][]byte{}, FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Path == old && (removes.Load() && op.Kind == errorfs.OpRemove || wipes.Load() && op.Kind == errorfs.OpFileWriteAt) {
			if hangs.Load() {
				hang()
			}
			return bad
		}
		return nil
	}))}
	b := newBench(t, fs)
	for range 18 {
		b.append(1, 900<<10)
	}
	removes.Store(true)
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); !errors.Is(err, bad) {
		t.Fatalf("the rewrite: %v", err)
	}
	b.log.Close()
	removes.Store(false)
	wipes.Store(true)
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tail, err := l.Scan(Position{}, func(*Record) error { return nil })
	if err == nil {
		err = l.Resume(tail)
	}
	if err != nil {
		t.Fatalf("the open: %v", err)
	}
	hangs.Store(true)
	erased := make(chan error, 1)
	go func() { erased <- l.Wipe(true) }()
	<-wiping
	appended := make(chan error, 1)
	go func() {
		var o Ops
		o.Put([]byte("key"), []byte("value"))
		var g Group
		g.Add(&o, MaxRecord)
		_, err := l.Append(&g)
		appended <- err
	}()
	select {
	case err := <-appended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("an append waits until an old file is wiped")
	}
	close(hung)
	if err := <-erased; !errors.Is(err, bad) {
		t.Errorf("an erasure: %v", err)
	}
	if err := l.Wipe(false); err != nil {
		t.Error(err)
	}
	wipes.Store(false)
	if _, err := l.Rewrite(t.Context(), 2, every, nil); err != nil {
		t.Error(err)
	}
	if got, there := fs.seen[old]; !there || len(bytes.Trim(got, "\x00")) > 0 {
		t.Errorf("the file: removed is %v, %d bytes are not wiped", there, len(bytes.Trim(got, "\x00")))
	}
}
