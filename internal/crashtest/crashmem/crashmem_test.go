package crashmem

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// race repeats op on one goroutine while another clones, and returns errStuck when neither makes progress.
func race(op func(i int) error, clone func(), rounds int) error {
	var (
		wg   sync.WaitGroup
		stop = make(chan struct{})
		said = make(chan error, 1)
		tick = make(chan struct{}, 1)
	)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				clone()
			}
		}
	})
	go func() {
		for i := range rounds {
			if err := op(i); err != nil {
				said <- err
				return
			}
			select {
			case tick <- struct{}{}:
			default:
			}
		}
		said <- nil
	}()
	for {
		select {
		case <-tick:
		case err := <-said:
			close(stop)
			wg.Wait()
			return err
		case <-time.After(5 * time.Second):
			return errStuck // the goroutines stay: they block each other
		}
	}
}

var errStuck = errors.New("nothing moved for 5 s")

// ops are the operations that take MemFS's lock twice.
func ops(fsys vfs.FS) map[string]func(i int) error {
	return map[string]func(i int) error{
		"ReuseForWrite": func(i int) error {
			f, err := fsys.ReuseForWrite(fmt.Sprint("reused", i), fmt.Sprint("reused", i+1), vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			return f.Close()
		},
		"Link": func(i int) error {
			if i > 0 {
				if err := fsys.Remove("link"); err != nil {
					return err
				}
			}
			return fsys.Link("linked", "link")
		},
	}
}

func create(t *testing.T, fsys vfs.FS) {
	t.Helper()
	for _, name := range []string{"reused0", "linked"} {
		f, err := fsys.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloningBesideReuseAndLinkGoesOn checks the purpose of the package.
func TestCloningBesideReuseAndLinkGoesOn(t *testing.T) {
	for _, name := range []string{"ReuseForWrite", "Link"} {
		t.Run(name, func(t *testing.T) {
			fsys := New()
			create(t, fsys)
			if err := race(ops(fsys)[name], func() { fsys.CrashClone(vfs.CrashCloneCfg{}) }, 500_000); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPebbleAloneStandsStill shows the upstream defect. When it no longer does, the package can be deleted.
func TestPebbleAloneStandsStill(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	create(t, fsys)
	const rounds = 2_000_000
	if err := race(ops(fsys)["ReuseForWrite"], func() { fsys.CrashClone(vfs.CrashCloneCfg{}) }, rounds); !errors.Is(err, errStuck) {
		t.Fatalf("a file was reused %d times: %v. Is the defect gone?", rounds, err)
	}
}

// TestACloneHoldsWhatWasSynced checks that a clone is a crash.
func TestACloneHoldsWhatWasSynced(t *testing.T) {
	fsys := New()
	if err := fsys.MkdirAll("d", 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, sync bool) {
		f, err := fsys.Create("d/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
		if sync {
			err = f.Sync()
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write("kept", true)
	for _, dir := range []string{"", "d"} {
		d, err := fsys.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write("lost", true) // its name is not
	names, err := fsys.CrashClone(vfs.CrashCloneCfg{}).List("d")
	if err != nil || fmt.Sprint(names) != "[kept]" {
		t.Errorf("after the crash: %v, %v", names, err)
	}
	if names, err := fsys.List("d"); err != nil || len(names) != 2 {
		t.Errorf("beside it: %v, %v", names, err)
	}
}
