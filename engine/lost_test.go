package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// TestFailedRotationDoesNotEndTheProcess was found by random commands: Pebble panics when a
// directory is not synced, with a mutex released that is unlocked on the way out, and a
// goroutine of its own panics where nobody recovers. Each operation on the log and on the
// directories fails once in turn. The append says so, the store closes and opens again in the same process,
// and what was acknowledged is there.
func TestFailedRotationDoesNotEndTheProcess(t *testing.T) {
	serial.Test(t)
	vital := func(op errorfs.Op) bool {
		return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && (strings.HasPrefix(op.Path, "store/log") || op.Path == "store/index" || strings.Contains(op.Path, "marker"))
	}
	failed := map[string]int{}
	for k := int64(1); ; k++ {
		var left atomic.Int64
		var hit atomic.Pointer[errorfs.Op]
		disk := crashmem.New()
		fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !vital(op) || left.Add(-1) != 0 {
				return nil
			}
			hit.Store(&op)
			return errDisk
		}))
		o := options(fs)
		o.MemTableBytes = 256 << 10
		db := open(t, "store", o)
		left.Store(k)
		acked := uint64(0)
		for i := uint64(1); i <= 5; i++ {
			size := 2
			if i%2 == 0 {
				size = 3000 // 192 kB: more than half a memtable begins a new log
			}
			m := spec{trace: id(i), args: `{"fill":"` + noise(i, size) + `"}`}.make(t)
			lease, err := db.Acquire(context.Background(), id(i))
			if err == nil {
				err = returns(t, "append", func() error {
					_, err := db.Append(context.Background(), lease, m.begin())
					return err
				})
			}
			if err == nil && i == 3 {
				err = returns(t, "flush", db.Flush)
				acked = i
			}
			if err != nil {
				wantCode(t, err, tga.StoreUnavailable)
				break
			}
			acked = i
		}
		err := returns(t, "close", db.Close)
		op := hit.Load()
		if op == nil {
			if err != nil {
				t.Errorf("nothing failed, close: %v", err)
			}
			break
		}
		failed[fmt.Sprint(op.Kind)]++
		left.Store(0)
		name := fmt.Sprintf("operation %d, %d on %s", k, op.Kind, op.Path)
		after, err := engine.Open("store", o)
		if err != nil {
			t.Fatalf("%s: open again: %v", name, err)
		}
		for i := uint64(1); i <= acked; i++ {
			if st, err := after.State(context.Background(), id(i)); err != nil || st.LastSeq != 3 {
				t.Fatalf("%s: acknowledged trace %d of %d: %+v, %v", name, i, acked, st, err)
			}
		}
		if err := after.Close(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	t.Logf("failed by kind of operation: %v", failed)
	if len(failed) < 4 {
		t.Errorf("only %v failed", failed)
	}
}
