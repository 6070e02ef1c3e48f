package state_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestDamagedItemsAreErrors: stored bytes that no commit can have written are refused by every
// reader, and never taken for an absent key.
func TestDamagedItemsAreErrors(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("key", "[1]").commit()
	var head, list, cell chain.Attachment
	for a, err := range w.db.Attachments(bg, chain.AttachStream, nil) {
		must(t, err)
		switch {
		case bytes.HasPrefix(a.Value, []byte("{")):
			head = a
		case bytes.HasPrefix(a.Value, []byte("[")):
			list = a
		default:
			cell = a
		}
	}
	begin := func() error {
		tx, err := w.space.Begin(bg, session, "")
		if err == nil {
			tx.Discard()
		}
		return err
	}
	with := func(do func(*state.Tx) error) func() error {
		return func() error {
			tx := w.begin(session, "")
			defer tx.Discard()
			return do(tx.Tx)
		}
	}
	get := with(func(tx *state.Tx) error { return second(tx.Get("key")) })
	keys := with(func(tx *state.Tx) error { return second(tx.Keys()) })
	replaced := func(a chain.Attachment, old, new string) []byte {
		if !bytes.Contains(a.Value, []byte(old)) {
			t.Fatalf("%q has no %q", a.Value, old)
		}
		return bytes.Replace(a.Value, []byte(old), []byte(new), 1)
	}
	for name, c := range map[string]struct {
		item  chain.Attachment
		value []byte
		read  func() error
		want  tga.Code
	}{
		"head, no JSON":         {head, head.Value[:5], begin, tga.StateChecksumMismatch},
		"head, newer":           {head, replaced(head, `"format":1`, `"format":2`), begin, tga.FormatTooNew},
		"head of another":       {head, replaced(head, `"id":"s"`, `"id":"t"`), begin, tga.StateChecksumMismatch},
		"head of another mode":  {head, replaced(head, `session`, `persistent`), begin, tga.StateChecksumMismatch},
		"keys, no JSON":         {list, list.Value[:3], keys, tga.StateChecksumMismatch},
		"head, no erasure":      {head, []byte(`{"erased":`), begin, tga.StateChecksumMismatch},
		"keys, erased":          {list, []byte{}, keys, ""},
		"value, erased":         {cell, []byte{}, get, ""},
		"value, newer":          {cell, slices.Concat([]byte{2}, cell.Value[1:]), get, tga.FormatTooNew},
		"value, header only":    {cell, cell.Value[:10], get, tga.StateChecksumMismatch},
		"value, no whole key":   {cell, cell.Value[:13], get, tga.StateChecksumMismatch},
		"value, no value":       {cell, cell.Value[:14], get, tga.StateChecksumMismatch},
		"value of another key":  {cell, replaced(cell, "key", "kez"), get, tga.StateChecksumMismatch},
		"deleted, with a value": {cell, slices.Concat(cell.Value[:9], []byte{1}, cell.Value[10:]), get, tga.StateChecksumMismatch},
		"deleted twice":         {cell, slices.Concat(cell.Value[:9], []byte{2}, cell.Value[10:]), get, tga.StateChecksumMismatch},
	} {
		before := slices.Clone(c.item.Value)
		must(t, w.append(bg, []chain.Attachment{{Kind: c.item.Kind, Key: c.item.Key, Value: c.value}}))
		if err := c.read(); tga.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		must(t, w.append(bg, []chain.Attachment{{Kind: c.item.Kind, Key: c.item.Key, Value: before}}))
	}
	w.stored("key", "[1]")
}
