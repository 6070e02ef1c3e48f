package wal

import (
	"errors"
	"fmt"
	"sync"
)

// Read returns the body at ref, which must belong to key. STATE_CHECKSUM_MISMATCH: it is not
// there, or the disk does not give it.
func (l *Log) Read(ref Ref, key []byte) (body []byte, err error) {
	if ref.Length > MaxInline {
		return nil, damaged("a body of %d bytes in segment %d", ref.Length, ref.Segment)
	}
	body = make([]byte, ref.Length)
	if err = l.handles.with(ref.Segment, func(h *handle) error { return h.body(body, ref, key) }); err != nil {
		return nil, valueError(err)
	}
	return body, nil
}

// Gone reports whether err says that a body was left out when its segment was rewritten,
// because it was no longer needed.
func Gone(err error) bool { return errors.Is(err, errGone) }

var errUnread = errors.New("the disk does not give what was written")

// unread is the error of a read that the disk failed.
func unread(err error) error { return unavailable("read", fmt.Errorf("%w: %w", errUnread, err)) }

// valueError is the error of a read of one value, or of the work on one segment. That the disk does not give a sector concerns
// that value or segment alone, as damage does. Otherwise one bad sector would end every list, check and archiving of the
// store, the compression of its log, and each later erasure.
func valueError(err error) error {
	if errors.Is(err, errUnread) {
		return damaged("it cannot be read: %w", err)
	}
	return err
}

// Pin keeps every body that an index names now, until the returned function is called. A
// rewrite waits for that before it removes bodies. A reader that reads a row and then its body
// without a pin may find the body gone, and then has to read the row again.
func (l *Log) Pin() (unpin func()) {
	era := l.handles.pin()
	return sync.OnceFunc(func() { l.handles.unpin(era) })
}
