package engine_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// nth fails the nth file operation with EIO, and lets every other one pass.
type nth struct {
	n, seen atomic.Int64
	failed  atomic.Pointer[errorfs.Op]
}

func (f *nth) String() string { return "nth" }

func (f *nth) MaybeError(op errorfs.Op) error {
	if f.seen.Add(1) != f.n.Load() {
		return nil
	}
	f.failed.Store(&op)
	return &os.PathError{Op: fmt.Sprint(op.Kind), Path: op.Path, Err: syscall.EIO}
}

// faultFrom is the number of the first operation that the child fails.
const faultFrom = "TGAD_TEST_FAULT_FROM"

// TestEveryFileOperationOfOpenFails fails each file operation of the open of a killed store,
// one by one, those of Pebble's own goroutines too. The process lives; what Open returns says
// what failed, or the store it returns works or says STORE_UNAVAILABLE; and the next open has
// all that was acknowledged.
//
// It is done in a process of its own: a panic in a goroutine of Pebble ends that, and the
// next one goes on with the operation after.
func TestEveryFileOperationOfOpenFails(t *testing.T) {
	serial.Test(t)
	if from := os.Getenv(faultFrom); from != "" {
		n, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		failEachFrom(t, n)
		return
	}
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	next, done, deaths := int64(1), false, 0
	for !done {
		cmd := exec.Command(exe, "-test.run=^TestEveryFileOperationOfOpenFails$", "-test.v")
		cmd.Env = append(os.Environ(), faultFrom+"="+strconv.FormatInt(next, 10))
		out, err := cmd.CombinedOutput()
		lines := bufio.NewScanner(strings.NewReader(string(out)))
		for lines.Scan() {
			if n, ok := strings.CutPrefix(lines.Text(), "failing "); ok {
				if next, err = strconv.ParseInt(n, 10, 64); err != nil {
					t.Fatal(err)
				}
			}
			done = done || strings.HasPrefix(lines.Text(), "all ")
		}
		if done {
			if !strings.Contains(string(out), "--- PASS") {
				t.Errorf("%s", out)
			}
			break
		}
		t.Errorf("operation %d ended the process: %v\n%s", next, err, out)
		next++
		if deaths++; deaths > 5 {
			t.Fatal("and so on")
		}
	}
}

func failEachFrom(t *testing.T, n int64) {
	sound := killed(t, 7)
	for ; ; n++ {
		fmt.Printf("failing %d\n", n)
		disk := sound.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)})
		f := &nth{}
		f.n.Store(n)
		o := options(errorfs.Wrap(disk, f))
		outcome := "opened"
		db, err := engine.Open("store", o)
		if err != nil {
			if code := tga.CodeOf(err); code != tga.StoreUnavailable && code != tga.StateChecksumMismatch {
				t.Errorf("operation %d (%v): %v", n, f.failed.Load(), err)
			}
			outcome = err.Error()
		} else {
			live(t, n, f, db)
		}
		if f.failed.Load() == nil {
			fmt.Printf("all %d\n", n-1)
			return
		}
		fmt.Println(f.failed.Load().Kind, f.failed.Load().Path, outcome)
		again(t, n, disk)
	}
}

// live uses a store that opened although an operation failed.
func live(t *testing.T, n int64, f *nth, db *engine.DB) {
	s := spec{trace: id(9000), key: "after"}
	m := s.make(t)
	lease, err := db.Acquire(t.Context(), s.trace)
	if err == nil {
		_, err = db.Append(t.Context(), lease, m.begin())
		db.Release(lease)
	}
	if err != nil && tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("operation %d (%v): append: %v", n, f.failed.Load(), err)
	}
	if err := db.Close(); err != nil && tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("operation %d (%v): close: %v", n, f.failed.Load(), err)
	}
}

// again opens the disk without faults: nothing that was acknowledged is missing.
func again(t *testing.T, n int64, disk *crashmem.FS) {
	db, err := engine.Open("store", options(disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: newRand(1)})))
	if err != nil {
		t.Errorf("operation %d: the next open: %v", n, err)
		return
	}
	if why := db.Stats().Frozen; why != "" {
		t.Errorf("operation %d: the next open is frozen: %s", n, why)
	}
	for i := range uint64(20) {
		if st, err := db.State(t.Context(), id(700+i)); err != nil || st.LastSeq != 4 {
			t.Errorf("operation %d: trace %d is at %d, %v", n, i, st.LastSeq, err)
		}
	}
	if err := db.Close(); err != nil && !errors.Is(err, tga.StoreUnavailable) {
		t.Errorf("operation %d: close: %v", n, err)
	}
}
