//go:build linux

package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// asChild names, for a process that is this test again, what to do with which store.
const asChild = "TGAD_TEST_CHILD"

func TestMain(m *testing.M) {
	role, dir, _ := strings.Cut(os.Getenv(asChild), ":")
	switch role {
	case "hold":
		hold(dir)
	case "read":
		read(dir)
	case "fill":
		fill(dir)
	default:
		os.Exit(m.Run())
	}
}

// child starts this test again in another role and returns its output.
func child(t *testing.T, role, dir string) (*exec.Cmd, *bufio.Scanner, io.Closer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), asChild+"="+role+":"+dir)
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c, bufio.NewScanner(stdout), stdin
}

// hold opens a store, says so, and keeps it until its input ends.
func hold(dir string) {
	db, err := engine.Open(dir, engine.Options{FirstSegmentBytes: 64 << 10, Create: true})
	if err != nil {
		fmt.Println(tga.CodeOf(err))
		os.Exit(1)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := db.Close(); err != nil {
		os.Exit(1)
	}
}

// read opens a store for reading, says so, and keeps it until its input ends.
func read(dir string) {
	db, err := engine.OpenReadOnly(dir, engine.Options{FirstSegmentBytes: 64 << 10})
	if err != nil {
		fmt.Println(tga.CodeOf(err))
		os.Exit(1)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := db.Close(); err != nil {
		os.Exit(1)
	}
}

// What a reader made under TMPDIR is removed by the next that makes an index there, where
// the reader was killed, and stays where it lives; and nobody else's files are touched.
func TestKilledReadersIndexIsRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	without := func() string { // a store whose index has to be made
		dir := filepath.Join(t.TempDir(), "store")
		db := open(t, dir, small)
		m := spec{trace: id(1)}.make(t)
		lease, err := db.Acquire(t.Context(), id(1))
		if err == nil {
			_, err = db.Append(t.Context(), lease, m.begin())
		}
		if err = errors.Join(err, db.Close(), os.RemoveAll(filepath.Join(dir, "index"))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	left := func() (names []string) {
		found, err := os.ReadDir(tmp)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			names = append(names, e.Name())
		}
		return names
	}
	reader := func() (*exec.Cmd, io.Closer) {
		c, out, stdin := child(t, "read", without())
		if !out.Scan() || out.Text() != "open" {
			t.Fatalf("the reader says %q, %v", out.Text(), out.Err())
		}
		return c, stdin
	}
	lives, end := reader()
	alive := left()
	if len(alive) != 1 || !strings.HasPrefix(alive[0], "tgad-index-") {
		t.Fatalf("a reader made %v", alive)
	}
	for range 2 { // the second removes what is left of the first
		killed, _ := reader()
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = killed.Wait()
		if now := left(); len(now) != 2 {
			t.Fatalf("a killed reader and one that lives left %v", now)
		}
	}
	// A file of the name, a link, and a directory without a lock: a crash in between.
	elsewhere := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(tmp, "tgad-index-file"), nil, 0o600), os.Symlink(elsewhere, filepath.Join(tmp, "tgad-index-link")), os.Mkdir(filepath.Join(tmp, "tgad-index-empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	db, err := engine.OpenReadOnly(without(), engine.Options{FirstSegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if now := left(); len(now) != 4 || !slices.Contains(now, alive[0]) {
		t.Errorf("beside a reader that lives there are %v", now)
	}
	if list, err := os.ReadDir(filepath.Join(tmp, alive[0], "index")); err != nil || len(list) == 0 {
		t.Errorf("of the index of a reader that lives there is %v, %v", list, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_ = end.Close()
	if err := lives.Wait(); err != nil {
		t.Error(err)
	}
	if now := left(); len(now) != 2 {
		t.Errorf("at the end there are %v", now)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}

// Only one process can have a store open, whatever path a second process uses. A stopped holder
// keeps the store. When the holder dies, the store is free.
func TestTwoProcessesOneStore(t *testing.T) {
	real := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(real, 0o750); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	parent := filepath.Join(t.TempDir(), "parent")
	if err := os.Symlink(filepath.Dir(real), parent); err != nil {
		t.Fatal(err)
	}
	paths := []string{real, link, filepath.Join(parent, "store"), real + "/../store/."}

	holder, out, stdin := child(t, "hold", link)
	if !out.Scan() || out.Text() != "open" {
		t.Fatalf("the holder says %q, %v", out.Text(), out.Err())
	}
	refused := func(when string) {
		t.Helper()
		for _, path := range paths {
			for name, f := range map[string]func(string, engine.Options) (*engine.DB, error){"Open": engine.Open, "OpenReadOnly": engine.OpenReadOnly} {
				db, err := f(path, engine.Options{FirstSegmentBytes: 64 << 10})
				if err == nil {
					t.Errorf("%s: %s of %s succeeded", when, name, path)
					_ = db.Close()
					continue
				}
				wantCode(t, err, tga.StateLockAcquireFailed)
				if want := fmt.Sprint("process ", holder.Process.Pid); !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v does not name %s", when, err, want)
				}
			}
		}
	}
	refused("while the holder runs")
	if err := holder.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	refused("while the holder is stopped")
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	_ = stdin.Close()

	db, err := engine.Open(link, engine.Options{FirstSegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	// Within one process the same holds.
	for _, path := range paths {
		if second, err := engine.Open(path, engine.Options{FirstSegmentBytes: 64 << 10}); tga.CodeOf(err) != tga.StateLockAcquireFailed {
			t.Errorf("second open of %s in one process: %v", path, err)
			_ = second.Close()
		}
	}
	check(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A full file system stops appends with an error, and loses nothing that was
// acknowledged. The disk is a small tmpfs where the test may mount one.
func TestDiskFull(t *testing.T) {
	serial.Test(t)
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tgad-test", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("no tmpfs can be mounted here (%v); TestFullDiskStopsAppends covers the errors", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	store := filepath.Join(dir, "store")
	_, out, _ := child(t, "fill", store)
	acknowledged := uint64(0)
	for out.Scan() {
		if n, err := strconv.ParseUint(out.Text(), 10, 64); err == nil {
			acknowledged = n
			continue
		}
		if out.Text() != string(tga.StoreUnavailable) {
			t.Errorf("the append on a full disk failed with %s", out.Text())
		}
	}
	if acknowledged < 50 {
		t.Errorf("only %d appends fitted", acknowledged)
	}
	// Space comes back, and with it everything that was acknowledged.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=256m"); err != nil {
		t.Fatal(err)
	}
	after := open(t, store, small)
	for i := uint64(1); i <= acknowledged; i++ {
		if st, err := after.State(context.Background(), id(i)); err != nil || st.LastSeq != 3 {
			t.Fatalf("acknowledged trace %d of %d: %+v, %v", i, acknowledged, st, err)
		}
	}
	t.Logf("%d appends acknowledged before the disk was full", acknowledged)
}

// small is a store that a small disk can hold.
var small = engine.Options{MemTableBytes: 1 << 20, LowWaterBytes: 1, FirstSegmentBytes: 64 << 10}

// fill appends until it cannot, and prints each trace that was acknowledged and then
// the code of the error.
func fill(dir string) {
	db, err := engine.Open(dir, small)
	for i := uint64(1); err == nil; i++ {
		m := spec{trace: id(i), args: `{"fill":"` + noise(i, 300) + `"}`}.make(&testing.T{})
		var lease chain.Lease
		if lease, err = db.Acquire(context.Background(), id(i)); err == nil {
			if _, err = db.Append(context.Background(), lease, m.begin()); err == nil {
				fmt.Println(i)
			}
		}
	}
	fmt.Println(tga.CodeOf(err))
}
