package state

import (
	"bytes"

	"github.com/tgad/tgad/schemas/tga"
)

// write is what a transaction has done to a key: it set or deleted the key, or appended to its
// earlier value. A write is replaced, never changed, so that a savepoint can return to it.
type write struct {
	value   []byte     // of a set, canonical; nil: deleted
	expires tga.Millis // of value; 0 = never

	added []byte // of an append, canonical; value is then nil
	onto  *write // of an append: the write that it is appended to; nil: the committed value

	size  int    // bytes of the value, or of what is appended to the committed value
	stamp uint64 // orders the writes of all transactions of a scope
}

// bottom returns the write that w's appends are appended to, nil for the committed value.
func (w *write) bottom() *write {
	for w != nil && w.added != nil {
		w = w.onto
	}
	return w
}

// blind says that w does not depend on what is committed.
func (w *write) blind() bool { return w.bottom() != nil }

// operation names what w has done, as a change of its key.
func (w *write) operation() Operation {
	switch b := w.bottom(); {
	case b == nil:
		return Append
	case b.value == nil && w == b:
		return Delete
	}
	return Set
}

// over returns the value after w is applied to a committed value at an instant: the zero cell if
// there is none. ok is false if w appends to a value that is not a list.
func (w *write) over(base cell, now tga.Millis) (out cell, ok bool) {
	if b := w.bottom(); b != nil {
		base = cell{value: b.value, expires: b.expires}
		if base.value != nil && !base.alive(now) {
			return cell{}, true // it has expired, with everything appended to it
		}
	}
	if !base.alive(now) {
		base = cell{value: []byte("[]")}
		if w.added == nil {
			return cell{}, true
		}
	}
	var added [][]byte
	n := len(base.value)
	for a := w; a != nil && a.added != nil; a = a.onto {
		added = append(added, a.added)
		n += len(a.added) + 1
	}
	if len(added) == 0 {
		return base, true
	}
	if !list(base.value) {
		return cell{}, false
	}
	text := append(make([]byte, 0, n), base.value[:len(base.value)-1]...)
	for i := len(added) - 1; i >= 0; i-- {
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(text, added[i]...)
	}
	return cell{version: base.version, value: append(text, ']'), expires: base.expires}, true
}

func list(value []byte) bool { return bytes.HasPrefix(value, []byte("[")) }
