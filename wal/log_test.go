package wal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// kept is an operation that a test expects to read again.
type kept struct {
	Kind       Kind
	Key, Value string
	Body       string
	Index      uint64
	File       File
}

var benches atomic.Uint64 // so that no two logs have the same salts

// bench is a log under test, with what was acknowledged.
type bench struct {
	t    *testing.T
	fs   vfs.FS
	rng  *rand.Rand
	size uint32 // of a segment, 0: firstSegment
	log  *Log
	want []kept   // in the order of the log
	last Position // newest acknowledged
}

func newBench(t *testing.T, fs vfs.FS) *bench { return newBenchOf(t, fs, 0) }

func newBenchOf(t *testing.T, fs vfs.FS, size uint32) *bench {
	b := &bench{t: t, fs: fs, size: size, rng: rand.New(rand.NewPCG(1, uint64(benches.Add(1))))}
	if err := fs.MkdirAll("log", 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := fs.OpenDir("")
	if err == nil {
		err = errors.Join(root.Sync(), root.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.log, err = Create(b.options(), tga.ID{1}, tga.ID{2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.log.Close() })
	return b
}

func (b *bench) options() Options {
	size := cmp.Or(b.size, firstSegment)
	return Options{FS: b.fs, Dir: "log", Size: size, FirstSize: size, Random: func(p []byte) error {
		for i := range p {
			p[i] = byte(b.rng.Uint32())
		}
		return nil
	}}
}

// append appends a group of n appends with bodies of about that size.
func (b *bench) append(n, size int) {
	b.t.Helper()
	var g Group
	var more []kept
	next := b.log.next
	for range n {
		o := new(Ops)
		key := fmt.Sprintf("e%d", b.rng.Uint64())
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(b.rng.Uint32())
		}
		o.PutBody([]byte(key), []byte("value"), body)
		o.Put([]byte("l"+key), []byte("record"))
		o.PutFile([]byte("f"+key), []byte("about"), File{tga.ID{3}, [32]byte{1}, 1 << 33})
		o.Delete([]byte("o" + key))
		o.Order([]byte("leaf of " + key))
		more = append(more, kept{Kind: Put, Key: key, Value: "value", Body: string(body)},
			kept{Kind: Put, Key: "l" + key, Value: "record"},
			kept{Kind: Put, Key: "f" + key, Value: "about", File: File{tga.ID{3}, [32]byte{1}, 1 << 33}},
			kept{Kind: Delete, Key: "o" + key},
			kept{Kind: Order, Value: "leaf of " + key, Index: next})
		next++
		if !g.Add(o, MaxRecord) {
			b.t.Fatal("the group is full")
		}
	}
	g.Times = Times{tga.Millis(len(b.want)), tga.Millis(len(b.want) + 1)}
	at, err := b.log.Append(&g)
	if err != nil {
		b.t.Fatal(err)
	}
	b.want, b.last = append(b.want, more...), at
}

// read is what a log returns when it is opened and read from the beginning.
type read struct {
	ops  []kept
	tail Tail
	errs []error // of bodies
	log  *Log
}

func (b *bench) read() (read, error) { return readAs(b.options()) }

func readAs(o Options) (read, error) {
	l, err := Open(o)
	if err != nil {
		return read{}, err
	}
	r := read{log: l}
	r.tail, err = l.Scan(Position{}, func(rec *Record) error {
		return rec.Ops(func(op *Op) error {
			if op.Kind > Order {
				return nil
			}
			k := kept{op.Kind, string(op.Key), string(op.Value), "", op.Index, op.File}
			if op.Place == Inline {
				body, err := l.Read(op.Ref, op.Key)
				if err != nil {
					r.errs = append(r.errs, err)
				}
				k.Body = string(body)
			}
			r.ops = append(r.ops, k)
			return nil
		})
	})
	return r, errors.Join(err, l.handles.close())
}

// same reports whether what was read is exactly what was acknowledged.
func (b *bench) same(r read) bool {
	if len(r.ops) != len(b.want) || len(r.errs) > 0 {
		return false
	}
	for i := range r.ops {
		if r.ops[i] != b.want[i] {
			return false
		}
	}
	return true
}

func TestWhatIsAppendedIsReadAgain(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for i := range 12 {
		b.append(1+i%3, 700<<10)
	}
	b.append(1, 0)
	b.append(1, MaxInline)
	r, err := b.read()
	if err != nil || r.tail.Doubt != nil || !b.same(r) {
		t.Fatalf("%d of %d operations, %+v %v %v", len(r.ops), len(b.want), r.tail, r.errs, err)
	}
	if r.tail.At != b.last || r.tail.Clean || r.tail.Torn {
		t.Errorf("tail %+v, want %+v", r.tail, b.last)
	}
	if r.tail.Next != b.log.next || r.tail.Times != b.log.times {
		t.Errorf("next %d %v, want %d %v", r.tail.Next, r.tail.Times, b.log.next, b.log.times)
	}
	if b.last.Segment < 4 {
		t.Errorf("%d segments: too few to show anything", b.last.Segment)
	}
}

// TestScanBeginsAnywhere begins behind each record there is.
func TestScanBeginsAnywhere(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for range 10 {
		b.append(1, 900<<10)
	}
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var all []Position
	count := func(r *Record) error { all = append(all, r.At); return nil }
	whole, err := l.Scan(Position{}, count)
	if err != nil {
		t.Fatal(err)
	}
	list := all
	for i, from := range list {
		all = nil
		tail, err := l.Scan(from, count)
		if err != nil || tail != whole || len(all) != len(list)-i-1 {
			t.Errorf("from record %d: %d more, %+v %v", i, len(all), tail, err)
		}
		for _, wrong := range []Position{
			{from.Segment + 1, from.Start, from.End, from.Group, from.Sum}, {from.Segment, from.Start + 8, from.End, from.Group, from.Sum},
			{from.Segment, from.Start, from.End + 8, from.Group, from.Sum}, {from.Segment, from.Start, from.End, from.Group + 1, from.Sum},
			{from.Segment, from.Start, from.End, from.Group, from.Sum + 1},
		} {
			if _, err := l.Scan(wrong, count); tga.CodeOf(err) != tga.StateChecksumMismatch {
				t.Errorf("from %+v: %v", wrong, err)
			}
		}
	}
}

// TestLogGoesOn reopens a log. After a clean end it goes on in the same segment, after any other
// end in the next one.
func TestLogGoesOn(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for i := range 6 {
		b.append(2, 1000)
		end := b.log.Close
		if i%2 == 0 {
			end = func() error { return finish(b.log) }
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		r, err := b.read()
		if err != nil || r.tail.Doubt != nil || r.tail.Clean != (i%2 == 0) || !b.same(r) {
			t.Fatalf("%+v %v", r.tail, err)
		}
		if b.log, err = Open(b.options()); err != nil {
			t.Fatal(err)
		}
		before := b.log.segments[len(b.log.segments)-1].id.Number
		if err := b.log.Resume(r.tail); err != nil {
			t.Fatal(err)
		}
		if got, want := b.log.id.Number, before+uint64(i%2); got != want {
			t.Errorf("goes on in segment %d, want %d", got, want)
		}
	}
}

// TestBodiesMayHoldAnything appends the log's own bytes as bodies, at all alignments.
func TestBodiesMayHoldAnything(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	for i := range 16 {
		b.append(1, 100)
		own := b.image()[segmentName(1)]
		var o Ops
		key := binary.BigEndian.AppendUint64([]byte("e"), uint64(i))
		body := own[max(identityLen, int(b.last.End)-20_000)-i : b.last.End]
		o.PutBody(key, nil, body)
		var g Group
		g.Add(&o, MaxRecord)
		at, err := b.log.Append(&g)
		if err != nil {
			t.Fatal(err)
		}
		b.last = at
		b.want = append(b.want, kept{Kind: Put, Key: string(key), Body: string(body)})
		if r, err := b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
			t.Fatalf("%d: %+v %v", i, r.tail, err)
		}
	}
}

// TestBodiesAreOfTheirKeys reads a body under another key, which must fail.
func TestBodiesAreOfTheirKeys(t *testing.T) {
	b := newBench(t, vfs.NewMem())
	b.append(1, 100)
	var ref Ref
	var key []byte
	l, err := Open(b.options())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = l.Scan(Position{}, func(r *Record) error {
		return r.Ops(func(op *Op) error {
			if op.Place == Inline {
				ref, key = op.Ref, bytes.Clone(op.Key)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(ref, key); err != nil {
		t.Error(err)
	}
	if _, err := l.Read(ref, append(key, 'x')); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("under another key: %v", err)
	}
	for _, wrong := range []Ref{{ref.Segment + 9, ref.Offset, ref.Length, ref.Sum}, {ref.Segment, firstSegment, ref.Length, ref.Sum}, {ref.Segment, ref.Offset, MaxInline + 1, ref.Sum}} {
		if _, err := l.Read(wrong, key); err == nil {
			t.Errorf("read at %+v", wrong)
		}
	}
}

// finish ends a log.
func finish(l *Log) error {
	_, err := l.Finish()
	return err
}
