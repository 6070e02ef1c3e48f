package segment_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/schemas/tga"
)

// listing is the part of a list that describes one trace, made here from the documented format.
func listing(since, deadline uint64, call tga.ID, words ...string) []byte {
	b := binary.BigEndian.AppendUint64(nil, since)
	b = binary.BigEndian.AppendUint64(b, deadline)
	b = append(b, call[:]...)
	for _, w := range words {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(w))), w...)
	}
	return b
}

// TestListSaysWhatTheTracesDo: the list shows each trace as its entries do, also one with the longest key.
func TestListSaysWhatTheTracesDo(t *testing.T) {
	traces := append(few(), trace(chaintest.Options{Seed: 9, Key: strings.Repeat("\U0010ffff", 255), Meta: tga.Meta{tga.MetaDeadline: "2033-05-18T03:33:20.000Z", tga.MetaNamespace: strings.Repeat("n", 64)}}))
	b := seal(t, traces...)
	r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.List()
	if err != nil {
		t.Fatal(err)
	}
	var keys, tools int
	for _, tr := range traces {
		folded, err := tr.Replay()
		if err != nil {
			t.Fatal(err)
		}
		shown, info, ok := list.Listing(tr.ID)
		if want, _ := r.Lookup(tr.ID); !ok || shown != folded.Listing() || info != want {
			t.Errorf("shows %+v of %+v, want %+v of %+v", shown, info, folded.Listing(), want)
		}
		keys, tools = keys+len(shown.Key), tools+len(shown.Tool)
	}
	if keys < 4*255 || tools == 0 || list.Size() < int64(keys+tools) {
		t.Errorf("%d bytes of keys and %d of tools in a list of %d", keys, tools, list.Size())
	}
	if _, _, ok := list.Listing(chaintest.ID(999, 999)); ok {
		t.Error("shows a trace that is not there")
	}
}

// TestForgedListsAreRefused makes forged lists whose digests are right. Verify must compare the list with
// the traces, and a reader of the list accepts only its one form.
func TestForgedListsAreRefused(t *testing.T) {
	one := few()[0]
	folded, err := one.Replay()
	if err != nil {
		t.Fatal(err)
	}
	l := folded.Listing()
	state, key := l.State.String(), l.Key
	made := func(state, key string) []byte {
		return listing(uint64(l.Since), uint64(l.Deadline), l.ToolCallID, state, l.Namespace, l.Server, l.Tool, key)
	}
	for name, c := range map[string]struct {
		records  []byte
		traces   uint32
		verified bool
		read     bool
	}{
		"as it was sealed":          {made(state, key), 1, true, true},
		"another key":               {made(state, key+"x"), 1, false, true},
		"another call":              {listing(uint64(l.Since), uint64(l.Deadline), tga.ID{}, state, l.Namespace, l.Server, l.Tool, key), 1, false, true},
		"a state that is not final": {made("EXECUTING", key), 1, false, false},
		"no state":                  {made("", key), 1, false, false},
		"one trace more":            {append(made(state, key), made(state, key)...), 2, false, false},
		"a trace nobody counts":     {append(made(state, key), made(state, key)...), 1, false, false},
		"a byte nobody counts":      {append(made(state, key), 0), 1, false, false},
		"a byte less":               {made(state, key)[:len(made(state, key))-1], 1, false, false},
		"no trace":                  {nil, 0, false, false},
		"a length without bytes":    {append(made(state, key)[:32], 0xff, 0xff, 0xff, 0xff), 1, false, false},
		"without end":               {make([]byte, 64<<20), 1, false, false},
	} {
		b := withList(t, seal(t, one), c.traces, c.records)
		_, err := verify(b)
		if (err == nil) != c.verified || err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: verify: %v", name, err)
		}
		r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
		if err == nil {
			_, err = r.List()
		}
		if (err == nil) != c.read || err != nil && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: read: %v", name, err)
		}
	}
}

// withList replaces the list of a segment of one block.
func withList(t *testing.T, b []byte, traces uint32, records []byte) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := enc.EncodeAll(records, nil)
	at := bytes.LastIndex(b, []byte("LIST"))
	footer := bytes.Clone(b[binary.BigEndian.Uint64(b[len(b)-88:]) : len(b)-88])
	copy(footer[16+48:], placed(at, stored))
	return ended(appendPart(bytes.Clone(b[:at]), "LIST", traces, stored), footer)
}
