package wal

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestLandmarksGoOverAMultiple of 64 KiB, or begin there.
func TestLandmarksGoOverAMultiple(t *testing.T) {
	const k = 64 << 10
	for _, c := range []struct {
		start, end uint32
		is         bool
	}{
		{k - 128, k - 8, false},
		{k - 128, k, false}, // its last byte is the one before
		{k - 128, k + 8, true},
		{k, k + 128, true},
		{k + 8, 2*k - 8, false},
		{k + 8, 2 * k, false},
		{k + 8, 2*k + 8, true},
		{k + 8, 5 * k, true},
		{3 * k, 3*k + 8, true},
		{1<<31 + 8, 1<<31 + k, false},
	} {
		if is := (Position{Start: c.start, End: c.end}).Landmark(); is != c.is {
			t.Errorf("%d to %d: %v", c.start, c.end, is)
		}
	}
}

// TestGroupTakesWhatHasRoom: the size of a group includes the operations and bodies of all its
// appends, the header and the padding. The first append is never refused.
func TestGroupTakesWhatHasRoom(t *testing.T) {
	sized := func(values, bodies int) *Ops {
		o := new(Ops)
		o.PutBody([]byte("k"), make([]byte, values), make([]byte, bodies))
		return o
	}
	for _, c := range []struct{ first, second *Ops }{
		{sized(10, 0), sized(20, 0)},
		{sized(10, 5000), sized(20, 3)},
		{sized(3000, 70), sized(1, 9000)},
	} {
		fits := headerLen + 2*align + c.first.Len() + c.second.Len()
		for _, limit := range []int{fits - 1, fits, fits + 1} {
			var g Group
			if !g.Add(c.first, 1) {
				t.Error("an append that is alone is refused")
			}
			if took := g.Add(c.second, limit); took != (limit >= fits) {
				t.Errorf("%d bytes of %d: taken %v", fits, limit, took)
			}
			if limit >= fits && (g.Len() > limit || g.Len() <= limit-2*align-2) {
				t.Errorf("a record of %d bytes, the limit is %d", g.Len(), limit)
			}
		}
	}
	b := newBench(t, vfs.NewMem())
	var g Group
	for n := range 5 {
		var o Ops
		o.Order([]byte("leaf"))
		g.Reset()
		for range n {
			g.Add(&o, MaxRecord)
		}
		if n == 0 {
			g.Add(sized(1, 1), MaxRecord)
		}
		before := b.log.next
		if _, err := b.log.Append(&g); err != nil || g.First() != before || g.Next() != before+uint64(n) || b.log.next != g.Next() {
			t.Errorf("a group of %d appends begins at %d and ends at %d, the log is at %d of %d: %v", n, g.First(), g.Next(), b.log.next, before, err)
		}
	}
}

// TestKeyHasOneByteOfLength: the longest key has 255 bytes.
func TestKeyHasOneByteOfLength(t *testing.T) {
	panics := func(n int) (is bool) {
		defer func() { is = recover() != nil }()
		new(Ops).Put(make([]byte, n), []byte("value"))
		return false
	}
	for n, want := range map[int]bool{0: true, 1: false, 255: false, 256: true} {
		if panics(n) != want {
			t.Errorf("a key of %d bytes: refused %v", n, !want)
		}
	}
}

// TestBodyPastItsRecordIsNoOperation: an operation whose body ends behind the record is not passed
// on, nor is one after it, wherever sums of 32 bits come out.
func TestBodyPastItsRecordIsNoOperation(t *testing.T) {
	one := func(bodies ...int) *Ops {
		o := new(Ops)
		for _, n := range bodies {
			o.PutBody([]byte("k"), nil, make([]byte, n))
		}
		return o
	}
	for _, c := range []struct {
		ops    *Ops
		has    uint32 // bytes of bodies that the record has
		passed int
		ok     bool
	}{
		{one(100, 50), 150, 2, true},
		{one(100, 50), 149, 1, false},
		{one(100, 50), 151, 2, false},
		{one(100, 50), 99, 0, false},
		{one(100, 50), 0, 0, false},
	} {
		for _, offset := range []uint32{identityLen, 1 << 30, MaxSegment - 4096} {
			h := header{ops: uint32(c.ops.n), opsLen: uint32(len(c.ops.ops)), bodiesLen: c.has}
			passed := 0
			ok, err := decodeOps(bytes.Clone(c.ops.ops), &h, 1, offset, func(op *Op) error {
				passed++
				if end := offset + h.bodies() + h.bodiesLen; op.Ref.Offset+op.Ref.Length > end {
					t.Errorf("a body at %d of %d bytes, the record ends at %d", op.Ref.Offset, op.Ref.Length, end)
				}
				return nil
			})
			if ok != c.ok || err != nil || passed != c.passed {
				t.Errorf("bodies of 100 and 50 bytes in %d at %d: %d passed on, %v %v", c.has, offset, passed, ok, err)
			}
		}
	}
}
