package engine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestAddedTraceIsNeverAbsent: whatever the ids and their order, what was added is not
// called absent, through every change of the two sets; and an id above all of them is.
func TestAddedTraceIsNeverAbsent(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(rng *rand.Rand, i int) uint64 // upper eight bytes of the i-th id
	}{
		{"rising", func(_ *rand.Rand, i int) uint64 { return uint64(i) + 1 }},
		{"falling", func(_ *rand.Rand, i int) uint64 { return 1<<40 - uint64(i) }},
		{"in no order", func(rng *rand.Rand, _ int) uint64 { return rng.Uint64N(1 << 40) }},
		{"nearly rising", func(rng *rand.Rand, i int) uint64 { return uint64(i) + rng.Uint64N(5000) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var n newTraces
			n.init(tga.ID{})
			var ids []tga.ID
			for i := range 3*youngTraces + 3 {
				id := numbered(c.next(rng, i), uint64(i))
				n.add(id)
				ids = append(ids, id)
				// What the last change of sets did away with is the most likely to be forgotten.
				for _, at := range []int{i, i - youngTraces, i - 2*youngTraces, rng.IntN(i + 1)} {
					if at >= 0 && n.absent(ids[at]) {
						t.Fatalf("trace %d is absent after %d", at, i)
					}
				}
				if len(n.young) >= youngTraces || len(n.old) > youngTraces {
					t.Fatalf("%d young and %d old ids", len(n.young), len(n.old))
				}
			}
			for i, id := range ids {
				if n.absent(id) {
					t.Fatalf("trace %d is absent at the end", i)
				}
			}
			if !n.absent(numbered(1<<41, 0)) {
				t.Error("an id above all others is looked for")
			}
		})
	}
}

// TestNothingIsAbsentBelowTheFloor, at the floor itself and one above it.
func TestNothingIsAbsentBelowTheFloor(t *testing.T) {
	var n newTraces
	n.init(numbered(7, 7))
	if n.absent(numbered(7, 6)) || n.absent(numbered(7, 7)) || !n.absent(numbered(7, 8)) {
		t.Error("the floor is not where it was set")
	}
	n.init(nowhere)
	if n.absent(numbered(1<<63, 0)) || n.absent(nowhere) {
		t.Error("with nothing known, something is absent")
	}
}

func numbered(high, low uint64) (id tga.ID) {
	for i := range 8 {
		id[i], id[8+i] = byte(high>>(56-8*i)), byte(low>>(56-8*i))
	}
	return id
}

// TestFewNewTracesLiftNoFloor: until there are youngTraces of them, an id that is made later and lies
// below theirs is known to be absent. With one more the first of them make way.
func TestFewNewTracesLiftNoFloor(t *testing.T) {
	var n newTraces
	n.init(tga.ID{})
	for i := range uint64(2*youngTraces - 1) {
		n.add(numbered(10+i, 0))
	}
	if n.floor != (tga.ID{}) || !n.absent(numbered(5, 0)) {
		t.Fatalf("the floor is %s after %d traces", n.floor, 2*youngTraces-1)
	}
	n.add(numbered(10+2*youngTraces, 0))
	if want := numbered(10+youngTraces-1, 0); n.floor != want || n.absent(numbered(5, 0)) {
		t.Errorf("the floor is %s, want %s", n.floor, want)
	}
}

// TestLargestTraceOfADamagedKey: where the last key is too short to have an id, nothing is known.
func TestLargestTraceOfADamagedKey(t *testing.T) {
	db := inMemory(t)
	key := keyspace.AppendEntry(nil, numbered(3, 3), 1)
	for length, want := range map[int]tga.ID{len(key): numbered(3, 3), 17: numbered(3, 3), 16: nowhere, 2: nowhere, 1: nowhere} {
		db.PutRow(key[:length], []byte{rowValue})
		if got, err := db.index.largestTrace(); got != want || err != nil {
			t.Errorf("a key of %d bytes: %s, %v", length, got, err)
		}
		db.PutRow(key[:length], nil)
	}
}

// TestLargestTraceOfEitherKind: it is the larger one of those with entries and those that are archived,
// none counts for nothing, and a key that is the lower bound itself is damaged.
func TestLargestTraceOfEitherKind(t *testing.T) {
	serial.Test(t)
	small, large := numbered(3, 3), numbered(5, 5)
	for _, c := range []struct {
		entry, stone tga.ID
		want         tga.ID
	}{
		{tga.ID{}, tga.ID{}, tga.ID{}}, {small, tga.ID{}, small}, {tga.ID{}, small, small}, {small, large, large}, {large, small, large},
	} {
		db := inMemory(t)
		if !c.entry.IsZero() {
			db.PutRow(keyspace.AppendEntry(nil, c.entry, 1), []byte{rowValue})
		}
		if !c.stone.IsZero() {
			db.PutRow(keyspace.AppendTombstone(nil, c.stone), []byte{rowValue})
		}
		if got, err := db.index.largestTrace(); got != c.want || err != nil {
			t.Errorf("entries of %s, tombstone of %s: %s, %v", c.entry, c.stone, got, err)
		}
	}
}

// TestFloorAtOpenIsTheLargestTrace: what is above it need not be looked for.
func TestFloorAtOpenIsTheLargestTrace(t *testing.T) {
	fs := vfs.NewMem()
	want := tga.ID{}
	for i := range uint64(3) {
		db, err := Open("store", Options{FS: fs, RewriteShare: -1})
		if err != nil {
			t.Fatal(err)
		}
		if db.traces.begun.floor != want {
			t.Errorf("open %d: the floor is %s, want %s", i, db.traces.begun.floor, want)
		}
		id := numbered(9-3*i%2, i) // the second one lies below the first
		id[6], id[8] = 0x70, 0x80  // version 7
		lease, err := db.Acquire(t.Context(), id)
		if err == nil {
			_, err = db.Append(t.Context(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: requestOf(t, id)}}})
		}
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if bytes.Compare(id[:], want[:]) > 0 {
			want = id
		}
	}
}
