package wal

import "errors"

// spare is a segment that is made ahead of its use, beside the writer.
type spare struct {
	id   Identity
	done chan struct{}
	err  error
}

func (s *spare) wait() { <-s.done }

// prepare begins to make the next segment, unless one is there or being made.
func (l *Log) prepare() {
	if l.spare != nil {
		return
	}
	id, err := l.successor()
	s := &spare{id: id, done: make(chan struct{}), err: err}
	l.spare = s
	if err != nil {
		close(s.done)
		return
	}
	go func() {
		defer close(s.done)
		s.err = l.files.make(id)
	}()
}

// takeSpare returns a segment of at least that many bytes that is ready for its first
// record.
func (l *Log) takeSpare(size uint32) (Identity, error) {
	l.prepare()
	s := l.spare
	s.wait()
	l.spare = nil
	if s.err != nil { // it was made before: a disk that was full then may not be now
		s.err = l.files.make(s.id)
	}
	if s.err == nil && s.id.Size < size {
		if s.id, s.err = l.successor(); s.err == nil {
			s.id.Size = (size + identityLen - 1) / identityLen * identityLen
			s.err = errors.Join(l.handles.forget(s.id.Number), l.files.make(s.id))
		}
	}
	return s.id, s.err
}

// successor is the identity of the next segment. A store begins small and grows: a segment
// is twice as long as the one before, where that was used. After one that a crash ended early
// it is as short as the first: a process that is killed again and again fills no disk.
func (l *Log) successor() (Identity, error) {
	salt, err := draw(l.opts.Random)
	id := Identity{Store: l.id.Store, Timeline: l.line, Number: l.id.Number + 1, Salt: salt, Size: l.opts.FirstSize}
	if l.at.End > l.id.Size/2 {
		id.Size = uint32(min(uint64(l.opts.Size), max(2*uint64(l.id.Size), uint64(id.Size))))
	}
	return id, err
}
