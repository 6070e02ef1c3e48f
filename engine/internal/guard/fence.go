package guard

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// fence is a barrier between a store and the disk. Pebble panics when a directory cannot be
// synced, in places where it has released a mutex of its own: unwinding from there ends the
// process. So such a failure is not returned to Pebble, and nothing that the store does afterwards
// reaches the disk. The acknowledged appends are on disk, and a later Open reads them.
type fence struct {
	mu   sync.RWMutex // read-held during each operation that may change something
	shut bool

	locks struct {
		sync.Mutex
		held []io.Closer
	}
}

// pass runs one operation that may change something on disk. If the fence is shut, pass never
// returns.
func (e *fence) pass(do func() error) error {
	e.mu.RLock()
	if e.shut {
		e.mu.RUnlock()
		select {}
	}
	defer e.mu.RUnlock()
	return do()
}

// Shut keeps every later operation of Pebble from the disk. It returns at once; operations under
// way still end.
func (f *Fenced) Shut() {
	go func() {
		f.fence.mu.Lock()
		defer f.fence.mu.Unlock()
		f.fence.shut = true
	}()
}

// Fence keeps every later operation of Pebble from the disk and releases the locks that Pebble
// took, so that the store can be opened again. A goroutine of Pebble that tries to write blocks
// until the process ends. Fence waits for the operations under way, and reports false if they last
// longer than wait.
func (f *Fenced) Fence(wait time.Duration) (bool, error) {
	shut := make(chan struct{})
	go func() {
		f.fence.mu.Lock()
		f.fence.shut = true
		f.fence.mu.Unlock()
		close(shut)
	}()
	select {
	case <-shut:
	case <-time.After(wait):
		return false, nil
	}
	f.fence.locks.Lock()
	defer f.fence.locks.Unlock()
	var errs []error
	for _, l := range f.fence.locks.held {
		errs = append(errs, l.Close())
	}
	f.fence.locks.held = nil
	return true, errors.Join(errs...)
}

// lost passes an error to FSOptions.OnLost, which should keep it from returning to Pebble.
func (f *Fenced) lost(err error) error {
	if err != nil && f.opts.OnLost != nil {
		f.opts.OnLost(err)
	}
	return err
}

// Lock takes a lock for Pebble.
func (f *Fenced) Lock(name string) (l io.Closer, err error) {
	err = f.fence.pass(func() error {
		if l, err = f.FS.Lock(name); err == nil {
			l = &fsLock{l: l}
			f.fence.locks.Lock()
			defer f.fence.locks.Unlock()
			f.fence.locks.held = append(f.fence.locks.held, l)
		}
		return err
	})
	return l, err
}

// fsLock is a lock that is released by Pebble or by the fence, whichever comes first.
type fsLock struct {
	l    io.Closer
	once sync.Once
	err  error
}

func (l *fsLock) Close() error {
	l.once.Do(func() { l.err = l.l.Close() })
	return l.err
}

// Link makes a hard link.
func (f *Fenced) Link(oldname, newname string) error {
	return f.fence.pass(func() error { return f.FS.Link(oldname, newname) })
}

// Remove removes a file.
func (f *Fenced) Remove(name string) error {
	return f.fence.pass(func() error { return f.FS.Remove(name) })
}

// RemoveAll removes a tree.
func (f *Fenced) RemoveAll(name string) error {
	return f.fence.pass(func() error { return f.FS.RemoveAll(name) })
}

// Rename renames a file.
func (f *Fenced) Rename(oldname, newname string) error {
	return f.failed(f.pebbles(newname), f.fence.pass(func() error { return f.FS.Rename(oldname, newname) }))
}

// MkdirAll makes a directory.
func (f *Fenced) MkdirAll(dir string, perm os.FileMode) error {
	return f.fence.pass(func() error { return f.FS.MkdirAll(dir, perm) })
}
