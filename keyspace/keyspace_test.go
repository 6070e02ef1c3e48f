package keyspace_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// row is one kind of key, as a tuple of fields: uint64, string of bytes.
type row struct {
	kind   keyspace.Kind
	fields []gen // how to draw a tuple
	key    func(f []any) []byte
	parse  func(key []byte) ([]any, error)
}

type gen func(t *rapid.T) any

// ids has neighbours and extremes beside random ids: with two ids that differ in one bit at an end, a wrong
// prefix would show.
func genID(t *rapid.T) any {
	b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xfe, 0xff, 0x33}), 16, 16).Draw(t, "id")
	b[6] = 0x70 | b[6]&0x0f
	b[8] = 0x80 | b[8]&0x3f
	return string(b)
}

func genNumber(least, most uint64) gen {
	return func(t *rapid.T) any {
		edge := rapid.SampledFrom([]uint64{least, least + 1, 0xff, 0x100, most - 1, most})
		return rapid.OneOf(edge, rapid.Uint64Range(least, most)).Draw(t, "number")
	}
}

func genDigest(t *rapid.T) any {
	return string(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
}

func genName(t *rapid.T) any {
	return rapid.StringMatching(`[a-z0-9_.-]{1,6}|[a-z0-9_.-]{64}`).Draw(t, "name")
}

func theID(v any) tga.ID         { return tga.ID([]byte(v.(string))) }
func theDigest(v any) tga.Digest { return tga.Digest([]byte(v.(string))) }
func str[T ~[16]byte | ~[32]byte](v T) string {
	switch v := any(v).(type) {
	case tga.ID:
		return string(v[:])
	case tga.Digest:
		return string(v[:])
	case [32]byte:
		return string(v[:])
	}
	panic("other type")
}

const maxUint = 1<<64 - 1

var rows = []row{
	attachmentRow(keyspace.Approval, []gen{genID}, func(f []any) []byte { return keyspace.ApprovalKey(theID(f[0])) },
		func(k []byte) ([]any, error) { return []any{string(k)}, nil }),
	{keyspace.Chunk, []gen{genID, genNumber(1, maxUint), genNumber(0, 1<<16-1)},
		func(f []any) []byte {
			return keyspace.AppendChunk(nil, theID(f[0]), f[1].(uint64), uint16(f[2].(uint64)))
		},
		func(k []byte) ([]any, error) {
			trace, seq, chunk, err := keyspace.ParseChunk(k)
			return []any{str(trace), seq, uint64(chunk)}, err
		}},
	traceSeqRow(keyspace.Checkpoint, 0, keyspace.AppendCheckpoint, keyspace.ParseCheckpoint),
	traceSeqRow(keyspace.Entry, 1, keyspace.AppendEntry, keyspace.ParseEntry),
	numberRow(keyspace.Global, keyspace.AppendGlobal, keyspace.ParseGlobal),
	digestRow(keyspace.BeginID),
	{keyspace.Ledger, []gen{genDigest},
		func(f []any) []byte { return keyspace.AppendLedger(nil, theDigest(f[0])) },
		func(k []byte) ([]any, error) { d, err := keyspace.ParseLedger(k); return []any{str(d)}, err }},
	{keyspace.Meta, []gen{genName},
		func(f []any) []byte { return keyspace.AppendMeta(nil, f[0].(string)) },
		func(k []byte) ([]any, error) { n, err := keyspace.ParseMeta(k); return []any{n}, err }},
	{keyspace.Note, []gen{genID, genNumber(1, 1<<32-1)},
		func(f []any) []byte { return keyspace.AppendNote(nil, theID(f[0]), uint32(f[1].(uint64))) },
		func(k []byte) ([]any, error) {
			trace, n, err := keyspace.ParseNote(k)
			return []any{str(trace), uint64(n)}, err
		}},
	traceRow(keyspace.Open, keyspace.AppendOpen, keyspace.ParseOpen),
	attachmentRow(keyspace.Timer, []gen{genNumber(0, 1<<63-1), genID},
		func(f []any) []byte { return keyspace.TimerKey(tga.Millis(f[0].(uint64)), theID(f[1])) },
		func(k []byte) ([]any, error) {
			due, trace, err := keyspace.ParseTimer(k)
			return []any{uint64(due), str(trace)}, err
		}),
	traceRow(keyspace.Tombstone, keyspace.AppendTombstone, keyspace.ParseTombstone),
	numberRow(keyspace.Segment, keyspace.AppendSegment, keyspace.ParseSegment),
	attachmentRow(keyspace.Stream, []gen{genID, genNumber(0, maxUint)},
		func(f []any) []byte { return keyspace.StreamKey(theID(f[0]), f[1].(uint64)) },
		func(k []byte) ([]any, error) {
			stream, item, err := keyspace.ParseStream(k)
			return []any{str(stream), item}, err
		}),
	digestRow(keyspace.Blob),
}

// attachmentRow is a row of a kind whose owner's key is stored behind the kind.
func attachmentRow(kind keyspace.Kind, fields []gen, key func(f []any) []byte, parse func(k []byte) ([]any, error)) row {
	return row{kind, fields,
		func(f []any) []byte { return stored(kind, key(f)) },
		func(k []byte) ([]any, error) {
			if got, ok := keyspace.KindOf(k); !ok || got != kind {
				return nil, errors.New("other kind")
			}
			if err := keyspace.Check(k); err != nil {
				return nil, err
			}
			return parse(k[1:])
		}}
}

func digestRow(kind keyspace.Kind) row {
	return attachmentRow(kind, []gen{genDigest}, func(f []any) []byte { return keyspace.DigestKey(theDigest(f[0])) },
		func(k []byte) ([]any, error) { return []any{string(k)}, nil })
}

// stored puts the kind before an owner's key. [keyspace.AppendAttachment] does that too, and refuses an
// invalid key.
func stored(kind keyspace.Kind, key []byte) []byte {
	out, err := keyspace.AppendAttachment(nil, kind, key)
	if err != nil {
		return append([]byte{byte(kind)}, key...)
	}
	return out
}

func traceRow(kind keyspace.Kind, key func([]byte, tga.ID) []byte, parse func([]byte) (tga.ID, error)) row {
	return row{kind, []gen{genID},
		func(f []any) []byte { return key(nil, theID(f[0])) },
		func(k []byte) ([]any, error) { id, err := parse(k); return []any{str(id)}, err }}
}

func traceSeqRow(kind keyspace.Kind, least uint64, key func([]byte, tga.ID, uint64) []byte, parse func([]byte) (tga.ID, uint64, error)) row {
	return row{kind, []gen{genID, genNumber(least, maxUint)},
		func(f []any) []byte { return key(nil, theID(f[0]), f[1].(uint64)) },
		func(k []byte) ([]any, error) { id, seq, err := parse(k); return []any{str(id), seq}, err }}
}

func numberRow(kind keyspace.Kind, key func([]byte, uint64) []byte, parse func([]byte) (uint64, error)) row {
	return row{kind, []gen{genNumber(0, maxUint)},
		func(f []any) []byte { return key(nil, f[0].(uint64)) },
		func(k []byte) ([]any, error) { n, err := parse(k); return []any{n}, err }}
}

func (r row) draw(t *rapid.T) []any {
	f := make([]any, len(r.fields))
	for i, g := range r.fields {
		f[i] = g(t)
	}
	return f
}

// drawNear draws a tuple that shares a random number of leading fields with f.
func (r row) drawNear(t *rapid.T, f []any) []any {
	g := r.draw(t)
	copy(g, f[:rapid.IntRange(0, len(f)).Draw(t, "shared")])
	return g
}

func compareTuples(a, b []any) int {
	return slices.CompareFunc(a, b, func(x, y any) int {
		if n, ok := x.(uint64); ok {
			return cmp.Compare(n, y.(uint64))
		}
		return cmp.Compare(x.(string), y.(string))
	})
}

func TestByteOrderIsTupleOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(rows)-1).Draw(t, "row")
		j := rapid.IntRange(0, len(rows)-1).Draw(t, "other row")
		a := rows[i].draw(t)
		b := rows[i].drawNear(t, a)
		if got, want := bytes.Compare(rows[i].key(a), rows[i].key(b)), compareTuples(a, b); got != want {
			t.Fatalf("kind %c: keys of %q and %q compare %d, tuples %d", rows[i].kind, a, b, got, want)
		}
		c := rows[j].draw(t)
		if i != j && bytes.Compare(rows[i].key(a), rows[j].key(c)) != cmp.Compare(rows[i].kind, rows[j].kind) {
			t.Fatalf("kinds %c and %c are not in order", rows[i].kind, rows[j].kind)
		}
	})
}

func TestWhatIsWrittenParses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(rows).Draw(t, "row")
		want := r.draw(t)
		key := r.key(want)
		got, err := r.parse(key)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("kind %c: wrote %q, read %q, %v", r.kind, want, got, err)
		}
		if err := keyspace.Check(key); err != nil {
			t.Fatalf("check %x: %v", key, err)
		}
		if kind, ok := keyspace.KindOf(key); !ok || kind != r.kind || len(key) > keyspace.MaxLen {
			t.Fatalf("key %x: kind %c, %v, %d bytes", key, kind, ok, len(key))
		}
	})
}

// TestBoundsHoldExactlyTheirKeys tests each bounds function: for any two tuples, a key is within the bounds
// of the other's leading fields if and only if it has these fields.
func TestBoundsHoldExactlyTheirKeys(t *testing.T) {
	type bounds struct {
		kind   keyspace.Kind
		shared int // leading fields that the bounds fix
		of     func(f []any) (lower, upper []byte)
	}
	byID := func(kind keyspace.Kind, of func(tga.ID) ([]byte, []byte)) bounds {
		return bounds{kind, 1, func(f []any) ([]byte, []byte) { return of(theID(f[0])) }}
	}
	whole := func(kind keyspace.Kind, of func() ([]byte, []byte)) bounds {
		return bounds{kind, 0, func([]any) ([]byte, []byte) { return of() }}
	}
	all := []bounds{
		byID(keyspace.Entry, keyspace.EntryBounds),
		byID(keyspace.Chunk, keyspace.TraceChunkBounds),
		{keyspace.Chunk, 2, func(f []any) ([]byte, []byte) { return keyspace.ChunkBounds(theID(f[0]), f[1].(uint64)) }},
		byID(keyspace.Note, keyspace.NoteBounds),
		byID(keyspace.Checkpoint, keyspace.CheckpointBounds),
		byID(keyspace.Stream, attachmentBounds(keyspace.Stream, keyspace.StreamPrefix)),
		whole(keyspace.Ledger, keyspace.LedgerBounds),
		whole(keyspace.Open, keyspace.OpenBounds),
		whole(keyspace.Global, keyspace.GlobalBounds),
		whole(keyspace.Segment, keyspace.SegmentBounds),
		whole(keyspace.Tombstone, keyspace.TombstoneBounds),
		whole(keyspace.Meta, keyspace.MetaBounds),
	}
	for _, kind := range []keyspace.Kind{keyspace.Approval, keyspace.Timer, keyspace.BeginID, keyspace.Blob} {
		of := attachmentBounds(kind, func(tga.ID) []byte { return nil })
		all = append(all, whole(kind, func() ([]byte, []byte) { return of(tga.ID{}) }))
	}
	rowOf := map[keyspace.Kind]row{}
	for _, r := range rows {
		rowOf[r.kind] = r
	}
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom(all).Draw(t, "bounds")
		r := rowOf[b.kind]
		f := r.draw(t)
		g := r.drawNear(t, f)
		lower, upper := b.of(f)
		key := r.key(g)
		in := bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0
		if want := compareTuples(f[:b.shared], g[:b.shared]) == 0; in != want {
			t.Fatalf("bounds of %q over %q: in is %v, want %v", f[:b.shared], g, in, want)
		}
		other := rapid.SampledFrom(rows).Draw(t, "other")
		key = other.key(other.draw(t))
		if other.kind != b.kind && bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0 {
			t.Fatalf("bounds of kind %c hold key %x", b.kind, key)
		}
	})
}

func attachmentBounds(kind keyspace.Kind, prefix func(tga.ID) []byte) func(tga.ID) (lower, upper []byte) {
	return func(id tga.ID) (lower, upper []byte) {
		lower, upper, err := keyspace.AttachmentBounds(kind, prefix(id))
		if err != nil {
			panic(err)
		}
		return lower, upper
	}
}

// TestTimerBefore1970IsRefused: its bytes would sort after every other timer's.
func TestTimerBefore1970IsRefused(t *testing.T) {
	id := tga.ID(uuid.Must(uuid.NewV7()))
	for due, legal := range map[tga.Millis]bool{-1 << 63: false, -1: false, 0: true, 1<<63 - 1: true} {
		key := keyspace.TimerKey(due, id)
		if _, err := keyspace.AppendAttachment(nil, keyspace.Timer, key); (err == nil) != legal {
			t.Errorf("due %d is written: %v", due, err)
		}
		got, trace, err := keyspace.ParseTimer(key)
		if (err == nil) != legal || legal && (got != due || trace != id) {
			t.Errorf("due %d reads as %d of %s, %v", due, got, trace, err)
		}
	}
}

func TestMalformedKeysAreRefused(t *testing.T) {
	id := tga.ID(uuid.Must(uuid.NewV7()))
	v4 := id
	v4[6] = 0x40 | v4[6]&0x0f
	variant := id
	variant[8] = 0xc0
	type bad struct {
		name string
		key  []byte
	}
	cases := []bad{{"empty", nil}, {"unknown kind", []byte{'z'}}, {"kind 0", make([]byte, 25)},
		{"meta without name", []byte("m")}, {"meta name upper case", []byte("mA")},
		{"meta name of 65", append([]byte("m"), bytes.Repeat([]byte("a"), 65)...)},
		{"entry 0", keyspace.AppendEntry(nil, id, 0)}, {"chunk of entry 0", keyspace.AppendChunk(nil, id, 0, 1)},
		{"note 0", keyspace.AppendNote(nil, id, 0)},
		{"due over 63 bits", append([]byte{'q', 0x80, 0, 0, 0, 0, 0, 0, 0}, id[:]...)},
	}
	for _, wrong := range []struct {
		name string
		id   tga.ID
	}{{"version 4", v4}, {"variant", variant}, {"zero", tga.ID{}}} {
		for kind, key := range map[string][]byte{
			"approval": stored(keyspace.Approval, keyspace.ApprovalKey(wrong.id)), "chunk": keyspace.AppendChunk(nil, wrong.id, 1, 1),
			"checkpoint": keyspace.AppendCheckpoint(nil, wrong.id, 1), "entry": keyspace.AppendEntry(nil, wrong.id, 1),
			"note": keyspace.AppendNote(nil, wrong.id, 1), "open": keyspace.AppendOpen(nil, wrong.id),
			"timer": stored(keyspace.Timer, keyspace.TimerKey(1, wrong.id)), "tombstone": keyspace.AppendTombstone(nil, wrong.id),
			"stream": stored(keyspace.Stream, keyspace.StreamKey(wrong.id, 1)),
		} {
			cases = append(cases, bad{kind + " with id of " + wrong.name, key})
		}
	}
	for _, r := range rows {
		if r.kind == keyspace.Meta {
			continue
		}
		key := rapid.Custom(func(t *rapid.T) []byte { return r.key(r.draw(t)) }).Example(1)
		cases = append(cases, bad{fmt.Sprintf("%c one short", r.kind), key[:len(key)-1]},
			bad{fmt.Sprintf("%c one over", r.kind), append(slices.Clone(key), 0)})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := keyspace.Check(c.key)
			if tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("check %x: %v, want %s", c.key, err, tga.StateChecksumMismatch)
			}
			for _, r := range rows {
				if _, err := r.parse(c.key); err == nil {
					t.Errorf("parse of kind %c takes %x", r.kind, c.key)
				}
			}
		})
	}
}

func TestParseRefusesKeysOfOtherKinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SampledFrom(rows).Draw(t, "row"), rapid.SampledFrom(rows).Draw(t, "other")
		if a.kind == b.kind {
			return
		}
		if f, err := b.parse(a.key(a.draw(t))); err == nil {
			t.Fatalf("parse of kind %c reads a key of kind %c as %q", b.kind, a.kind, f)
		}
	})
}

func TestAttachmentOwnersStayInTheirKeys(t *testing.T) {
	id := tga.ID(uuid.Must(uuid.NewV7()))
	timer := keyspace.TimerKey(7, id)
	got, err := keyspace.AppendAttachment([]byte("x"), keyspace.Timer, timer)
	if err != nil || string(got) != "xq"+string(timer) {
		t.Fatalf("got %x, %v, want %x", got, err, timer)
	}
	for name, c := range map[string]struct {
		kind keyspace.Kind
		rest []byte
	}{
		"entry kind":  {keyspace.Entry, keyspace.AppendEntry(nil, id, 1)[1:]},
		"ledger kind": {keyspace.Ledger, make([]byte, 32)},
		"short":       {keyspace.Timer, timer[:23]},
		"long":        {keyspace.Blob, make([]byte, 33)},
		"empty":       {keyspace.Approval, nil},
	} {
		if got, err := keyspace.AppendAttachment(nil, c.kind, c.rest); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: got %x, %v", name, got, err)
		}
	}
	if _, _, err := keyspace.AttachmentBounds(keyspace.Entry, nil); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("bounds of entries as attachments: %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0xff, 1}), 0, 16).Draw(t, "prefix")
		key := append([]byte{byte(keyspace.Blob)}, genDigest(t).(string)...)
		n := rapid.IntRange(0, len(p)).Draw(t, "shared")
		copy(key[1:], p[:n])
		lower, upper, err := keyspace.AttachmentBounds(keyspace.Blob, p)
		if err != nil {
			t.Fatal(err)
		}
		if in := bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0; in != bytes.HasPrefix(key[1:], p) {
			t.Fatalf("prefix %x, key %s: in is %v", p, hex.EncodeToString(key), in)
		}
	})
}

// TestWhatIsSealedTogether: items of a stream belong to the stream, and nodes to their family. Keys of counters, locks and
// heads, and keys of other kinds, have no owner.
func TestWhatIsSealedTogether(t *testing.T) {
	stream, other := tga.ID(uuid.Must(uuid.NewV7())), tga.ID(uuid.Must(uuid.NewV7()))
	node := keyspace.NodeKey(stream, tga.Sum([]byte("node")))
	for name, c := range map[string]struct {
		kind keyspace.Kind
		key  []byte
		want []byte
	}{
		"an item":               {keyspace.Stream, keyspace.StreamKey(stream, 1), keyspace.StreamPrefix(stream)},
		"the last item":         {keyspace.Stream, keyspace.StreamKey(stream, 1<<64-1), keyspace.StreamPrefix(stream)},
		"item 0":                {keyspace.Stream, keyspace.StreamKey(stream, 0), nil},
		"half an item":          {keyspace.Stream, keyspace.StreamKey(stream, 1)[:23], nil},
		"a node":                {keyspace.Blob, node[:], keyspace.NodePrefix(stream)},
		"half a node":           {keyspace.Blob, node[:31], nil},
		"an item as a blob":     {keyspace.Blob, keyspace.StreamKey(stream, 1), nil},
		"a node as an item":     {keyspace.Stream, node[:], nil},
		"a timer of as many":    {keyspace.Timer, keyspace.StreamKey(stream, 1), nil},
		"an approval of a hash": {keyspace.Approval, node[:], nil},
	} {
		if got := keyspace.Owned(c.kind, c.key); !bytes.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %x belongs to %x, want %x", name, c.key, got, c.want)
		}
	}
	evidence := keyspace.EvidenceKey(tga.Sum([]byte("evidence")), stream)
	for name, c := range map[string]struct {
		trace tga.ID
		key   []byte
		want  bool
	}{
		"its own": {stream, evidence, true}, "another's": {other, evidence, false}, "a byte short": {stream, evidence[:31], false}, "no byte": {stream, nil, false},
	} {
		if got := keyspace.EvidenceOf(c.trace, c.key); got != c.want {
			t.Errorf("evidence, %s: %v", name, got)
		}
	}
}

// TestStateKeysAreReadBack: at the limits of both numbers, each has its own bits.
func TestStateKeysAreReadBack(t *testing.T) {
	family := tga.ID(uuid.Must(uuid.NewV7()))
	for _, number := range []uint32{0, 1, 1 << 23, 1<<24 - 1} {
		for _, n := range []uint64{0, 1, 1 << 39, 1<<40 - 1} {
			f, gotNumber, gotN, err := keyspace.ParseState(keyspace.StateKey(family, number, n))
			if err != nil || f != family || gotNumber != number || gotN != n {
				t.Errorf("boundary %d of state %d is read as %d of %d, %v", n, number, gotN, gotNumber, err)
			}
		}
	}
	if _, _, _, err := keyspace.ParseState(keyspace.StateKey(family, 1, 1)[:23]); err == nil {
		t.Error("a key that was cut is read")
	}
}
