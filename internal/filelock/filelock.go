// Package filelock locks a file for a process, for as long as that lives.
package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/access"
)

// deadWait is how long a lock is waited for whose holder is dead.
const deadWait = 10 * time.Second

// ErrHeld says that somebody else has the lock.
var ErrHeld = errors.New("it is locked")

// Lock opens a file, makes it where there is none, and locks it; the lock ends with the file
// or the process. Where somebody else has it the error is ErrHeld, and names the process by
// what that wrote into the file.
//
// A lock belongs to the open file. A process that was killed while it started another one
// leaves a copy of the file in that one, for as long as it takes it to become its own
// program, or to its end where files are handed down. So the lock of a holder that is dead
// is waited for: who restarts a killed process at once would be refused now and then.
//
// The file is never removed: removing it would let two processes lock two files of one name.
func Lock(path string) (*os.File, error) {
	return lock(path, deadWait, time.Sleep)
}

// Share is Lock for processes that have a file together: each has it, and nobody has what Lock gives
// meanwhile. ErrHeld: somebody has that. ErrUnsupported: this system has no such lock.
func Share(path string) (*os.File, error) {
	return lockBy(shared, path, deadWait, time.Sleep)
}

// ErrUnsupported says that what was asked for is not to be had on this system.
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

// await locks an open file. path is where its holder wrote who it is.
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

// Holder is the process that locked a file last, by what it wrote into it; 0 where that is
// not known. Whether it still has the lock is not asked.
func Holder(path string) int { return holder(path) }

// holder is the process that wrote the lock file, 0 where that is not known.
func holder(path string) int {
	b, err := os.ReadFile(path)
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
