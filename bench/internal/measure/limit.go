package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Limit is the least that durability costs on a disk. One goroutine takes the bytes of all
// waiters, writes them with one pwrite into a file whose blocks are allocated already, calls
// fdatasync once, and wakes the waiters. It has no checksum, no index and no order beyond
// arrival, so no store that has one of these can be faster.
type Limit struct {
	f     *os.File
	size  int64
	at    int64
	syncs atomic.Uint64

	mu      sync.Mutex
	work    sync.Cond
	pending []byte
	waiting []chan error
	closed  bool
	done    chan struct{}
}

// NewLimit makes the file in dir, full of zeros and synced.
func NewLimit(dir string, size int64) (*Limit, error) {
	f, err := os.OpenFile(filepath.Join(dir, "limit"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, at); err != nil {
			return nil, fmt.Errorf("limit: size its file: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	l := &Limit{f: f, size: size, done: make(chan struct{})}
	l.work.L = &l.mu
	go l.run()
	return l, nil
}

// Append returns once b is on disk. done is the caller's own channel, of capacity 1.
func (l *Limit) Append(b []byte, done chan error) error {
	l.mu.Lock()
	l.pending = append(l.pending, b...)
	l.waiting = append(l.waiting, done)
	l.mu.Unlock()
	l.work.Signal()
	return <-done
}

func (l *Limit) run() {
	defer close(l.done)
	var bytes []byte
	var waiting []chan error
	for {
		l.mu.Lock()
		for len(l.waiting) == 0 && !l.closed {
			l.work.Wait()
		}
		if len(l.waiting) == 0 {
			l.mu.Unlock()
			return
		}
		bytes, l.pending = l.pending, bytes[:0]
		waiting, l.waiting = l.waiting, waiting[:0]
		l.mu.Unlock()
		err := l.write(bytes)
		for _, w := range waiting {
			w <- err
		}
	}
}

func (l *Limit) write(b []byte) error {
	if l.at+int64(len(b)) > l.size {
		l.at = 0
	}
	if _, err := l.f.WriteAt(b, l.at); err != nil {
		return err
	}
	l.at += int64(len(b))
	l.syncs.Add(1)
	return unix.Fdatasync(int(l.f.Fd()))
}

// Syncs counts the calls of fdatasync.
func (l *Limit) Syncs() uint64 { return l.syncs.Load() }

// Close stops the goroutine and removes the file.
func (l *Limit) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.work.Signal()
	<-l.done
	if err := l.f.Close(); err != nil {
		return err
	}
	return os.Remove(l.f.Name())
}

// Subject is the limit with a number of writers that each append size bytes at a time.
func (l *Limit) Subject(writers, size int) *Subject {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)
	}
	done := make([]chan error, writers)
	for w := range done {
		done[w] = make(chan error, 1)
	}
	return &Subject{Case: LimitCase, Writers: writers, Bytes: size, Syncs: l.Syncs, Op: func(w int) (time.Duration, error) {
		start := time.Now()
		err := l.Append(b, done[w])
		return time.Since(start), err
	}}
}
