package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"
)

// lookEvery is how long a listener waits for a connection before it checks that its file still exists.
const lookEvery = time.Second

// Standing listens at a socket file, and makes the file again when it is gone: programs that clean up /tmp remove
// socket files too. Otherwise nobody could reach the process, and it would keep its store locked against a successor.
//
// If something else is at the path, Standing waits until it is gone. Accept returns each such event once, as a
// temporary error, which a server of [HTTP] logs.
type Standing struct {
	path string
	make func() (*net.UnixListener, error)

	mu     sync.Mutex
	l      *net.UnixListener
	info   fs.FileInfo // of the file of l
	said   string      // the last error, so that it is reported once
	closed bool
}

// Stand listens at path with the listener that make returns. It calls make again when the file is gone or is another one.
func Stand(path string, make func() (*net.UnixListener, error)) (*Standing, error) {
	s := &Standing{path: path, make: make}
	if err := s.again(); err != nil {
		return nil, err
	}
	return s, nil
}

// again makes a new listener and closes the old one. The caller holds s.mu, or nobody else has s.
func (s *Standing) again() error {
	l, err := s.make()
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // at Close the file at the path may be another one
	info, err := os.Lstat(s.path)
	if err != nil {
		return errors.Join(unavailable(err), l.Close())
	}
	if old := s.l; old != nil {
		err = old.Close()
	}
	s.l, s.info = l, info
	return err
}

// Accept waits for a connection. While none comes, it checks that the file still exists.
func (s *Standing) Accept() (net.Conn, error) {
	for {
		s.mu.Lock()
		l := s.l
		s.mu.Unlock()
		if err := l.SetDeadline(time.Now().Add(lookEvery)); err != nil {
			return nil, err
		}
		c, err := l.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		if err := s.look(); err != nil {
			return nil, passing{err}
		}
	}
}

// look makes a new listener if the file is gone, and returns an error that reports it.
func (s *Standing) look() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := os.Lstat(s.path); s.closed || err == nil && os.SameFile(now, s.info) {
		s.said = ""
		return nil
	}
	err := s.again()
	if err == nil {
		s.said = ""
		return fmt.Errorf("the socket %s was gone, and is made anew", s.path)
	}
	if s.said == err.Error() {
		return nil
	}
	s.said = err.Error()
	return fmt.Errorf("nobody reaches this process: the socket %s is gone, and cannot be made anew: %w", s.path, err)
}

// Close stops listening, and removes the file if it is still this one.
func (s *Standing) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	err := s.l.Close()
	if now, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(now, s.info) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// Addr is the address at which the socket was bound, which may differ from the path.
func (s *Standing) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.l.Addr()
}
