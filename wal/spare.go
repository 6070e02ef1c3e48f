package wal

import (
	"errors"
	"math"
	"sync"
)

// spare is a segment that is made ahead of its use, in a goroutine beside the writer. It is
// filled with zeros at the pace at which the segment in use fills up. If it were filled at
// once, every sync would wait behind its zeros.
type spare struct {
	id   Identity
	done chan struct{}
	err  error

	mu      sync.Mutex
	changed sync.Cond
	allowed int64 // how many bytes may be filled
	awaited int64 // how many the filler waits for, so that appends do not wake it for less
	stopped bool  // the segment is no longer wanted
}

func newSpare(id Identity) *spare {
	s := &spare{id: id, done: make(chan struct{})}
	s.changed.L = &s.mu
	return s
}

func (s *spare) wait() { <-s.done }

// allow lets the filler fill the segment's first n bytes.
func (s *spare) allow(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= s.allowed {
		return
	}
	s.allowed = n
	if n >= s.awaited {
		s.changed.Signal()
	}
}

// stop makes the filler give up.
func (s *spare) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.changed.Signal()
}

var errNotWanted = errors.New("the segment is not wanted any more")

// pace returns once n bytes may be filled.
func (s *spare) pace(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited = n
	for s.allowed < n && !s.stopped {
		s.changed.Wait()
	}
	if s.stopped {
		return errNotWanted
	}
	return nil
}

// prepare makes the next segment while the segment in use fills up. It begins when a quarter
// of that is used, and the next segment is whole when three quarters are used.
func (l *Log) prepare() {
	used, quarter := int64(l.at.End), int64(l.id.Size)/4
	if used <= quarter {
		return
	}
	if l.spare == nil {
		l.begin(true) // grow: the segment in use will be over half full by then
	}
	l.spare.allow(int64(l.spare.id.Size) * (used - quarter) / (2 * quarter))
}

// begin begins to make the next segment.
func (l *Log) begin(grow bool) {
	id, err := l.successor(grow)
	s := newSpare(id)
	l.spare = s
	l.made.Store(s)
	if s.err = err; err != nil {
		close(s.done)
		return
	}
	go func() {
		defer close(s.done)
		s.err = l.files.make(id, s.pace)
	}()
}

// takeSpare returns a segment of at least that many bytes that is ready for its first
// record.
func (l *Log) takeSpare(size uint32) (Identity, error) {
	grow := l.at.End > l.id.Size/2
	if l.spare == nil {
		l.begin(grow)
	}
	s := l.spare
	s.allow(math.MaxInt64)
	s.wait()
	l.spare = nil
	if s.err != nil { // try again: the disk may no longer be full, or drawing a salt may have failed
		if s.id, s.err = l.successor(grow); s.err == nil {
			s.err = l.files.make(s.id, atOnce)
		}
	}
	if s.err == nil && s.id.Size < size {
		if s.id, s.err = l.successor(grow); s.err == nil {
			s.id.Size = (size + identityLen - 1) / identityLen * identityLen
			s.err = errors.Join(l.handles.forget(s.id.Number), l.files.make(s.id, atOnce))
		}
	}
	return s.id, s.err
}

// successor returns the identity of the next segment. A store begins small and grows: with
// grow, which is set if over half of the segment before was used, the next is twice as long.
// Otherwise a crash ended the segment before early, and the next is as short as the first. So
// a process that is killed again and again does not fill the disk.
func (l *Log) successor(grow bool) (Identity, error) {
	salt, err := draw(l.opts.Random)
	id := Identity{Store: l.id.Store, Timeline: l.line, Number: l.id.Number + 1, Salt: salt, Size: l.opts.FirstSize}
	if grow {
		id.Size = uint32(min(uint64(l.opts.Size), max(2*uint64(l.id.Size), uint64(id.Size))))
	}
	return id, err
}
