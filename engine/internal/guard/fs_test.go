package guard

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/tgad/tgad/engine/internal/guard.TestFenceLetsNothingPass.func2"))
}

// TestFailuresOfPebbleAreToldFirst fails each operation in Pebble's directory and in the log's. Only
// failures of Pebble are reported, and those of its directory itself separately.
func TestFailuresOfPebbleAreToldFirst(t *testing.T) {
	mem := vfs.NewMem()
	for _, d := range []string{"store/index", "store/log"} {
		if err := mem.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var lost, failed int
	fail := false
	fsys := FS(hook(mem, func(errorfs.Op) error {
		if fail {
			return errorfs.ErrInjected
		}
		return nil
	}), FSOptions{
		Index:    "store/index",
		OnLost:   func(error) { lost++ },
		OnFailed: func(err error) error { failed++; return err },
	})
	for _, d := range []string{"store/index", "store/log"} {
		file, err := fsys.Create(d+"/a", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := fsys.OpenDir(d)
		if err != nil {
			t.Fatal(err)
		}
		fail, lost, failed = true, 0, 0
		for name, do := range map[string]func() error{
			"create": func() error { _, err := fsys.Create(d+"/b", vfs.WriteCategoryUnspecified); return err },
			"open":   func() error { _, err := fsys.OpenReadWrite(d+"/a", vfs.WriteCategoryUnspecified); return err },
			"list":   func() error { _, err := fsys.List(d); return err },
			"rename": func() error { return fsys.Rename(d+"/a", d+"/b") },
			"write":  func() error { _, err := file.Write([]byte("x")); return err },
			"sync":   file.Sync,
			"data":   file.SyncData,
		} {
			if err := do(); !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("%s in %s: %v", name, d, err)
			}
		}
		told := failed
		if err := dir.Sync(); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("sync of %s: %v", d, err)
		}
		want := map[string][2]int{"store/index": {7, 1}, "store/log": {0, 0}}[d]
		if told != want[0] || lost != want[1] {
			t.Errorf("%s: %d told, %d lost, want %v", d, told, lost, want)
		}
		fail = false
		if err := errors.Join(file.Close(), dir.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := fsys.Close(); err != nil {
		t.Error(err)
	}
}

// TestFenceLetsNothingPass: operations under way end before the fence is shut. Later operations
// never return and never reach the disk.
func TestFenceLetsNothingPass(t *testing.T) {
	mem := vfs.NewMem()
	fsys := FS(mem, FSOptions{})
	if err := mem.MkdirAll("d", 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := fsys.Lock("d/LOCK")
	if err != nil {
		t.Fatal(err)
	}
	file, err := fsys.Create("d/a", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	under, release := make(chan struct{}), make(chan struct{})
	go func() {
		_ = fsys.fence.pass(func() error {
			close(under)
			<-release
			return nil
		})
	}()
	<-under
	if shut, err := fsys.Fence(time.Millisecond); shut || err != nil {
		t.Errorf("shut over an operation under way: %v, %v", shut, err)
	}
	close(release)
	if shut, err := fsys.Fence(time.Minute); !shut || err != nil {
		t.Errorf("%v, %v", shut, err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
	passed := make(chan struct{})
	go func() { // it stays where it is until the process ends
		_, _ = file.Write([]byte("late"))
		close(passed)
	}()
	select {
	case <-passed:
		t.Error("a write passed the fence")
	case <-time.After(20 * time.Millisecond):
	}
	if info, err := mem.Stat("d/a"); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
}
