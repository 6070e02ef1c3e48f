// Package filelock locks a file for a process, until the process ends.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/access"
)

// deadWait is how long to wait for a lock whose holder is dead.
const deadWait = 10 * time.Second

// ErrHeld says that another process has the lock.
var ErrHeld = errors.New("it is locked")

// Lock opens a file, creates it if it does not exist, and locks it. The lock ends when the
// file is closed or the process ends. If another process has the lock, the error is ErrHeld and
// names that process, by the number that it wrote into the file.
//
// A lock belongs to the open file. If a process is killed while it starts a child, the child
// has a copy of the open file until it has executed its own program, or until it ends if it
// inherits files. So Lock waits for the lock of a dead holder. Otherwise a restart right after
// a kill would be refused now and then.
//
// The file is never removed: then two processes could lock two files of one name.
func Lock(path string) (*os.File, error) {
	return lock(path, deadWait, time.Sleep)
}

// Share takes a shared lock: several processes can have it at once, and none can have the lock of
// [Lock] meanwhile. ErrHeld: a process has that one. ErrUnsupported: this system has no shared locks.
func Share(path string) (*os.File, error) {
	return lockBy(shared, path, deadWait, time.Sleep)
}

// ErrUnsupported says that this system lacks the requested kind of lock.
var ErrUnsupported = errors.New("this system has no locks that processes share")

func lock(path string, wait time.Duration, sleep func(time.Duration)) (*os.File, error) {
	return lockBy(flock, path, wait, sleep)
}

func lockBy(take func(*os.File) error, path string, wait time.Duration, sleep func(time.Duration)) (*os.File, error) {
	if f, err := access.Create(path); err == nil {
		err = f.Close()
		if err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|noFollow, 0)
	if err != nil {
		return nil, err
	}
	err = awaitBy(take, f, path, wait, sleep)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// await locks an open file. path is the file into which its holder wrote its process number.
func await(f *os.File, path string, wait time.Duration, sleep func(time.Duration)) error {
	return awaitBy(flock, f, path, wait, sleep)
}

func awaitBy(take func(*os.File) error, f *os.File, path string, wait time.Duration, sleep func(time.Duration)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := take(f)
		if !errors.Is(err, ErrHeld) {
			return err
		}
		pid := holder(path)
		if wait <= 0 || pid != 0 && alive(pid) {
			return fmt.Errorf("%s has it: %w", named(pid), ErrHeld)
		}
		sleep(pause)
		wait -= pause
	}
}

// Holder returns the process that locked a file last, by the number that it wrote into it; 0 if
// that is not known. Holder does not check whether the process still has the lock.
func Holder(path string) int { return holder(path) }

// holder returns the process that wrote the lock file, 0 if that is not known.
func holder(path string) int {
	f, _, err := access.Open(path) // which waits for no writer of a pipe
	if err != nil {
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

func named(pid int) string {
	if pid == 0 {
		return "another process"
	}
	return "process " + strconv.Itoa(pid)
}
