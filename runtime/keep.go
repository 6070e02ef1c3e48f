package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"iter"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Kept is a value that a remote executor keeps in the store beside its calls, to know it again
// after it was killed. It permits no send and is no part of any trace.
type Kept struct {
	Name  string // 1..255 bytes
	Value []byte // nil if there is none
}

// KeepRequest changes one kept value.
type KeepRequest struct {
	Namespace string // "" means tga.DefaultNamespace
	Server    string // the tool server that the value is about
	Name      string
	Old       []byte // the value that the caller expects; nil = nothing is kept
	Value     []byte // nil removes it
}

// Limits of kept values.
const (
	MaxKeptName  = 255
	MaxKeptValue = 1 << 20
)

// Keep changes a kept value from Old to Value and returns once that is on disk. If
// another value than Old is kept, nothing is written: changed is false, and now is that
// value. If Value is kept already, changed is true and nothing is written, so a caller that
// lost the answer may repeat.
func (rt *Runtime) Keep(ctx context.Context, r KeepRequest) (now Kept, changed bool, err error) {
	if n := len(r.Name); n < 1 || n > MaxKeptName {
		return Kept{}, false, tga.Errorf(tga.ValidationError, "name has %d bytes, want 1..%d", n, MaxKeptName).At("/name")
	}
	if n := len(r.Value); n > MaxKeptValue {
		return Kept{}, false, tga.Errorf(tga.LimitExceeded, "value has %d bytes, over %d", n, MaxKeptValue).At("/value_base64")
	}
	ctx = InNamespace(ctx, r.Namespace)
	stream := keyspace.KeptStream(firstOf(r.Namespace, tga.DefaultNamespace), r.Server)
	// Take the lease of a trace that never exists, so that two executors change a value in turn.
	lease, err := rt.store.Acquire(ctx, stream)
	if err != nil {
		return Kept{}, false, err
	}
	defer rt.store.Release(lease)
	key := keyspace.KeptKey(stream, r.Name)
	raw, err := rt.store.Attachment(ctx, chain.AttachStream, key)
	if err != nil {
		return Kept{}, false, err
	}
	now = Kept{Name: r.Name}
	if len(raw) > 0 { // an erased value has no byte
		if now, err = parseKept(raw); err != nil {
			return Kept{}, false, err
		}
		if now.Name != r.Name {
			return Kept{}, false, tga.Errorf(tga.StateConflict, "the names %q and %q fall on one place", r.Name, now.Name)
		}
	}
	switch {
	case same(now.Value, r.Value):
		return now, true, nil
	case !same(now.Value, r.Old):
		return now, false, nil
	}
	a := chain.Attachment{Kind: chain.AttachStream, Key: key, Owner: stream} // its values come and go
	if r.Value != nil {
		a.Value = binary.BigEndian.AppendUint16(nil, uint16(len(r.Name)))
		a.Value = append(append(a.Value, r.Name...), r.Value...)
	}
	if _, err := rt.store.Append(ctx, lease, chain.Batch{Attachments: []chain.Attachment{a}}); err != nil {
		return Kept{}, false, err
	}
	return Kept{Name: r.Name, Value: r.Value}, true, nil
}

// Kept yields the values that are kept about a tool server, in an order that stays the same: all
// of them, or those after a name, which need not exist any more.
func (rt *Runtime) Kept(ctx context.Context, namespace, server, after string) iter.Seq2[Kept, error] {
	return func(yield func(Kept, error) bool) {
		ctx := InNamespace(ctx, namespace)
		stream := keyspace.KeptStream(firstOf(namespace, tga.DefaultNamespace), server)
		for a, err := range rt.store.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(stream)) {
			if err == nil && after != "" && bytes.Compare(a.Key, keyspace.KeptKey(stream, after)) <= 0 {
				continue
			}
			if err == nil && len(a.Value) == 0 {
				continue // it was erased
			}
			var k Kept
			if err == nil {
				k, err = parseKept(a.Value)
			}
			if !yield(k, err) || err != nil {
				return
			}
		}
	}
}

// same reports whether a and b are equal; nil (no value) is not equal to an empty value.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func parseKept(raw []byte) (Kept, error) {
	if len(raw) < 2 || len(raw)-2 < int(binary.BigEndian.Uint16(raw)) {
		return Kept{}, tga.Errorf(tga.StateChecksumMismatch, "a kept value of %d bytes is cut short", len(raw))
	}
	n := 2 + int(binary.BigEndian.Uint16(raw))
	return Kept{Name: string(raw[2:n]), Value: bytes.Clone(raw[n:])}, nil
}
