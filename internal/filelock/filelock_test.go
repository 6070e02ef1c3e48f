//go:build unix

package filelock

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Roles that this test binary plays as a process of its own.
const (
	envHold = "FILELOCK_TEST_HOLD" // locks the file of that name, starts a keeper, and waits
	envKeep = "FILELOCK_TEST_KEEP" // has a copy of the locked file until its input ends
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envKeep) != "":
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case os.Getenv(envHold) != "":
		if err := hold(os.Getenv(envHold)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// hold is a process that is killed while another one that it started still has its files.
func hold(path string) error {
	f, err := Lock(path)
	if err != nil {
		return err
	}
	keeper := exec.Command(os.Args[0])
	keeper.Env = append(os.Environ(), envKeep+"=1")
	keeper.Stdin, keeper.ExtraFiles = os.Stdin, []*os.File{f}
	if err := keeper.Start(); err != nil {
		return err
	}
	fmt.Println("locked")
	for {
		time.Sleep(time.Hour) // not select {}: without cgo the runtime calls that a deadlock
	}
}

// held returns a lock whose holder is another process. kill kills that; done ends the
// process that it had started, which still has the file.
func held(t *testing.T) (path string, pid int, kill, done func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), envHold+"="+path), os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	done = func() { _ = w.Close() }
	t.Cleanup(func() {
		kill()
		done()
		_ = r.Close()
	})
	return path, cmd.Process.Pid, kill, done
}

func TestLockOfALivingProcess(t *testing.T) {
	path, pid, _, _ := held(t)
	_, err := lock(path, deadWait, func(time.Duration) { t.Error("it was waited for") })
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d has it", pid)) {
		t.Errorf("got %v", err)
	}
}

// TestLockOfAKilledProcess: a process that it was about to start has the file a while longer.
func TestLockOfAKilledProcess(t *testing.T) {
	path, _, kill, done := held(t)
	kill()
	waits := 0
	f, err := lock(path, deadWait, func(time.Duration) {
		if waits++; waits == 3 {
			done()
		}
		time.Sleep(time.Millisecond)
		if waits > 10_000 {
			t.Fatal("the lock does not come free")
		}
	})
	if err != nil {
		// The process that had the file takes its time to end on a busy machine.
		f, err = Lock(path)
	}
	if err != nil || waits < 3 {
		t.Fatalf("after %d waits: %v", waits, err)
	}
	if got := holder(path); got != os.Getpid() {
		t.Errorf("the file names process %d", got)
	}
	if _, err := Lock(path); err == nil || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("locked twice: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if f, err = Lock(path); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestLockThatIsNotGivenBack(t *testing.T) {
	path, pid, kill, _ := held(t)
	kill()
	var waited time.Duration
	_, err := lock(path, deadWait, func(d time.Duration) { waited += d })
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d has it", pid)) {
		t.Errorf("got %v", err)
	}
	if waited < deadWait || waited > deadWait+time.Second {
		t.Errorf("waited %v", waited)
	}
}

// TestNumberOfAnEarlierProcessIsGone: it may have been longer.
func TestNumberOfAnEarlierProcessIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte("4194304000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != fmt.Sprintln(os.Getpid()) {
		t.Errorf("%q %v", b, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestLockIsNoLink(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(filepath.Join(dir, "lock")); err == nil {
		t.Error("a link was followed")
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
}
