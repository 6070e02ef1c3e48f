package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// head is item 0 of a scope's stream, as JSON. A scope to which nothing was ever committed has
// the zero head.
type head struct {
	Format      int    `json:"format"`
	Mode        Mode   `json:"mode"`
	ID          string `json:"id"`
	Version     uint64 `json:"version"`     // of the newest commit, from 1
	Transaction tga.ID `json:"transaction"` // the transaction that made it

	erased bool // nothing was committed since the scope was erased; the other fields are zero
}

// next returns the version of the next commit. After an erasure no earlier version number is used
// again. Otherwise a turn that was parked before the erasure would take another value for the one
// that it has read.
func (c *scope) next() (uint64, error) {
	if !c.head.erased {
		return c.head.Version + 1, nil
	}
	const mostPerMilli = 1 << 10 // commits of one scope
	newest := c.space.store.NewestTS()
	if newest == tga.LastMillis {
		return 0, tga.Errorf(tga.StoreUnavailable, "begin the erased state %s %q anew: the store does not tell its newest time", c.name.Mode, c.name.ID)
	}
	return max(1, uint64(newest)*mostPerMilli), nil
}

// cell is one version of a key's value.
type cell struct {
	version uint64
	value   []byte     // canonical JSON; nil: the key was deleted
	expires tga.Millis // 0 = never
}

// alive says that the cell has a value at an instant.
func (c cell) alive(at tga.Millis) bool {
	return c.value != nil && (c.expires == 0 || at < c.expires)
}

// valueStream returns the stream of a key's values.
func (c *scope) valueStream(key string) tga.ID { return keyspace.ValueStream(c.id, key) }

// item makes an item of the scope's stream, or of the stream of one of its keys. All of them are
// sealed under the scope's key.
func (c *scope) item(stream tga.ID, n uint64, value []byte) chain.Attachment {
	return chain.Attachment{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, n), Value: value, Owner: c.id}
}

// put makes the item of a cell: format[1] expires[8] deleted[1] key length[1] key value.
func (c *scope) put(key string, v cell) chain.Attachment {
	b := make([]byte, 0, 11+len(key)+len(v.value))
	b = binary.BigEndian.AppendUint64(append(b, tga.AgentStateVersion), uint64(v.expires))
	b = append(b, 0, byte(len(key)))
	if v.value == nil {
		b[9] = 1
	}
	return c.item(c.valueStream(key), v.version, append(append(b, key...), v.value...))
}

// cells returns the stored versions of a key, oldest first.
func (c *scope) cells(ctx context.Context, key string) ([]cell, error) {
	if c.name.Mode == None {
		return nil, nil
	}
	var out []cell
	for a, err := range c.space.store.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(c.valueStream(key))) {
		if err != nil {
			return nil, err
		}
		if len(a.Value) == 0 {
			continue // erased; seen in a copy of the store from before the erasure
		}
		v, err := decodeCell(key, a)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func decodeCell(key string, a chain.Attachment) (cell, error) {
	b := a.Value
	if len(b) > 0 && b[0] != tga.AgentStateVersion {
		return cell{}, tooNew(int(b[0]))
	}
	const fixed = 11
	if len(b) < fixed || len(b) < fixed+int(b[10]) || b[9] > 1 {
		return cell{}, damaged("state of key %q: %d bytes are no value", key, len(b))
	}
	n := fixed + int(b[10])
	if got := string(b[fixed:n]); got != key {
		return cell{}, damaged("state of key %q: it is of key %q", key, got)
	}
	_, version, err := keyspace.ParseStream(a.Key)
	if err != nil {
		return cell{}, err
	}
	v := cell{version: version, expires: tga.Millis(binary.BigEndian.Uint64(b[1:]))}
	switch {
	case b[9] == 0 && len(b) > n:
		v.value = b[n:]
	case b[9] == 0 || len(b) > n:
		return cell{}, damaged("state of key %q: %d bytes of value, deleted %d", key, len(b)-n, b[9])
	}
	return v, nil
}

func damaged(text string, args ...any) error {
	err := tga.Errorf(tga.StateChecksumMismatch, text, args...)
	err.Where = "stored"
	return err
}

func tooNew(got int) error {
	return tga.Errorf(tga.FormatTooNew, "state has format %d, this program reads %d", got, tga.AgentStateVersion)
}

// at returns the newest of a key's versions at a version of the scope; the zero cell if there is
// none.
func at(cells []cell, version uint64) (out cell) {
	for _, v := range cells {
		if v.version <= version {
			out = v
		}
	}
	return out
}

// needed returns the versions of a key that the readers of the given scope versions see. A
// version that deletes the key is needed only if an earlier version is kept.
func needed(cells []cell, pins []uint64) map[uint64]bool {
	out := map[uint64]bool{}
	for _, p := range pins {
		if v := at(cells, p); v.version != 0 {
			out[v.version] = true
		}
	}
	for _, v := range cells {
		if v.value == nil {
			delete(out, v.version)
		} else if out[v.version] {
			break
		}
	}
	return out
}

// readHead reads item 0 of the scope's stream.
func (c *scope) readHead(ctx context.Context) (head, error) {
	if c.name.Mode == None {
		return head{}, nil
	}
	raw, err := c.space.store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(c.id, 0))
	if err != nil || raw == nil {
		return head{}, err
	}
	var h head
	if was, err := chain.ReadStateErasure(raw); was != nil || err != nil {
		h.erased = true
		return h, err
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		return head{}, damaged("head of a scope: %w", err)
	}
	if h.Format != tga.AgentStateVersion {
		return head{}, tooNew(h.Format)
	}
	if h.Mode != c.name.Mode || h.ID != c.name.ID {
		return head{}, damaged("head of %s %q: it is of %s %q", c.name.Mode, c.name.ID, h.Mode, h.ID)
	}
	return h, nil
}

// encode returns v as JSON without the escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, tga.Errorf(tga.GenericStateError, "record of state: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeList reads a list of keys. An erased list, in a copy of the store from before the
// erasure, is empty.
func decodeList(raw []byte) (keys []string, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, damaged("list of keys: %w", err)
	}
	return keys, nil
}

// listing collects the changes of one batch to the lists of a scope's keys. Two keys may
// share a list.
type listing struct {
	scope *scope
	lists map[uint64][]string
}

func (l *listing) change(ctx context.Context, key string, there bool) error {
	slot := l.scope.space.slot(key)
	if _, ok := l.lists[slot]; !ok {
		raw, err := l.scope.space.store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(l.scope.id, slot))
		if err != nil {
			return err
		}
		var keys []string
		if raw != nil {
			if keys, err = decodeList(raw); err != nil {
				return err
			}
		}
		if l.lists == nil {
			l.lists = map[uint64][]string{}
		}
		l.lists[slot] = keys
	}
	keys := slices.DeleteFunc(l.lists[slot], func(k string) bool { return k == key })
	if there {
		keys = append(keys, key)
	}
	l.lists[slot] = keys
	return nil
}

func (l *listing) attachments() ([]chain.Attachment, error) {
	var out []chain.Attachment
	for slot, keys := range l.lists {
		if len(keys) == 0 {
			out = append(out, l.scope.item(l.scope.id, slot, nil))
			continue
		}
		raw, err := encode(keys)
		if err != nil {
			return nil, err
		}
		out = append(out, l.scope.item(l.scope.id, slot, raw))
	}
	return out, nil
}

// listed returns the keys of a scope that have any version in the store, in order.
func (c *scope) listed(ctx context.Context) ([]string, error) {
	if c.name.Mode == None {
		return nil, nil
	}
	var out []string
	for a, err := range c.space.store.Attachments(ctx, chain.AttachStream, keyspace.StreamPrefix(c.id)) {
		if err != nil {
			return nil, err
		}
		if _, item, err := keyspace.ParseStream(a.Key); err != nil {
			return nil, err
		} else if item == 0 {
			continue
		}
		keys, err := decodeList(a.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, keys...)
	}
	slices.Sort(out)
	return out, nil
}

// checkName returns VALIDATION_ERROR for an invalid key or scope id.
func checkName(what, s string) error {
	if n := len(s); n < 1 || n > MaxKey {
		return tga.Errorf(tga.ValidationError, "%s has %d bytes: want 1..%d", what, n, MaxKey)
	}
	if !utf8.ValidString(s) {
		return tga.Errorf(tga.ValidationError, "%s %q is not UTF-8", what, s)
	}
	return nil
}

// canonical returns the canonical form of a value: VALIDATION_ERROR for a value that is not JSON,
// LIMIT_EXCEEDED for a value that is over MaxValue, or nested too deeply to be put inside that
// many more lists.
func canonical(key string, raw []byte, inner int) ([]byte, error) {
	out, err := tga.Canonicalize(raw, tga.Limits{MaxDepth: tga.DefaultMaxDepth - inner})
	if err != nil {
		return nil, tga.Errorf(tga.CodeOf(err), "value of key %q: %w", key, err)
	}
	if len(out) > MaxValue {
		return nil, tooLong(key, len(out))
	}
	return out, nil
}

func tooLong(key string, n int) error {
	return tga.Errorf(tga.LimitExceeded, "value of key %q has %d bytes: at most %d", key, n, MaxValue)
}
