package wal

import (
	"errors"
	"sync"
)

// Read returns the body that lies at ref under key. STATE_CHECKSUM_MISMATCH: it is not
// there.
func (l *Log) Read(ref Ref, key []byte) (body []byte, err error) {
	if ref.Length > MaxInline {
		return nil, damaged("a body of %d bytes in segment %d", ref.Length, ref.Segment)
	}
	body = make([]byte, ref.Length)
	if err = l.handles.with(ref.Segment, func(h *handle) error { return h.body(body, ref, key) }); err != nil {
		return nil, err
	}
	return body, nil
}

// Gone reports whether a body is not there because nobody needed it when its segment was
// rewritten.
func Gone(err error) bool { return errors.Is(err, errGone) }

// Pin keeps every body that an index names now, until the returned function is called: a
// rewrite waits with its end. Who reads a row and then its body without a pin may find the
// body gone, and has to look at the row again.
func (l *Log) Pin() (unpin func()) {
	era := l.handles.pin()
	return sync.OnceFunc(func() { l.handles.unpin(era) })
}
