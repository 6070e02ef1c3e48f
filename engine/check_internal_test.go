package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// problems are what a check of the store says, in its words.
func problems(t *testing.T, db *DB) string {
	t.Helper()
	rep, err := db.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range rep.Problems {
		all = append(all, p.String())
	}
	return strings.Join(all, "\n")
}

// TestForgedSegmentIsAProblem: an archive segment whose row is valid but whose content is no segment is
// reported.
func TestForgedSegmentIsAProblem(t *testing.T) {
	db := inMemory(t)
	key := keyspace.AppendSegment(nil, 1)
	db.Put(key, []byte("no segment at all, and long enough to have a footer: 0123456789abcdef0123456789abcdef"))
	if said := problems(t, db); !strings.Contains(said, "segment") {
		t.Errorf("%q", said)
	}
	db.Put(key, nil)
}

// TestSpoiltIndexIsRemoved: a store that finds wrong ledger keys in its index marks the index on disk, and
// the next open builds a new one.
func TestSpoiltIndexIsRemoved(t *testing.T) {
	db := inMemory(t)
	if db.index.dir.spoilt() {
		t.Fatal("a new index is spoilt")
	}
	if err := db.index.dir.spoil(); err != nil || !db.index.dir.spoilt() {
		t.Errorf("%v", err)
	}
}

// TestCheckReadsEveryBodyThatItsWalkDoesNot: rows of timers and approvals are read by nothing else that
// a check does.
func TestCheckReadsEveryBodyThatItsWalkDoesNot(t *testing.T) {
	db := inMemory(t)
	id := tga.ID{6: 0x70, 8: 0x80}
	key, err := keyspace.AppendAttachment(nil, keyspace.Kind(chain.AttachApproval), id[:])
	if err != nil {
		t.Fatal(err)
	}
	w := db.commits.newWriter()
	w.body(key, []byte("a value"))
	if err := db.commits.apply(w); err != nil {
		t.Fatal(err)
	}
	row, err := db.index.row(key)
	if err != nil {
		t.Fatal(err)
	}
	if said := problems(t, db); said != "" {
		t.Errorf("as it is: %s", said)
	}
	bad := bytes.Clone(row)
	bad[len(bad)-1] ^= 1
	db.PutRow(key, bad)
	if said := problems(t, db); said == "" {
		t.Error("its body is another one, and nobody says so")
	}
	db.PutRow(key, row)
}

// TestKeysOfASegmentOnItsWayAreNoProblem: what is left of a trace whose entries were archived is removed
// by the seal that is under way, or by the next open. Nobody else may have keys without a first entry.
func TestKeysOfASegmentOnItsWayAreNoProblem(t *testing.T) {
	db := inMemory(t)
	archived, other := numbered(1, 1), numbered(1, 2)
	stone := tombstone{First: 1, Last: 4, Segment: 2}
	db.Put(keyspace.AppendTombstone(nil, archived), stone.appendValue(nil))
	sealing := keyspace.AppendMeta(nil, metaSealing)
	for _, c := range []struct {
		of      tga.ID
		segment uint64 // that is being sealed
		is      bool
	}{
		{archived, 2, false}, {archived, 1, true}, {archived, 3, true}, {archived, 0, true}, {other, 2, true}, {other, 0, true},
	} {
		db.Put(sealing, nil)
		if c.segment > 0 {
			db.Put(sealing, binary.BigEndian.AppendUint64(nil, c.segment))
		}
		key := keyspace.AppendCheckpoint(nil, c.of, 1)
		db.Put(key, []byte("x"))
		if said := problems(t, db); strings.Contains(said, "no first entry") != c.is {
			t.Errorf("trace %s beside segment %d: %q", c.of, c.segment, said)
		}
		db.Put(key, nil)
	}
	db.Put(sealing, nil)
	// While nothing is sealed no tombstone is asked: neither one that is none, nor one that names segment 0.
	for _, stone := range [][]byte{[]byte("none"), tombstone{First: 1, Last: 4}.appendValue(nil)} {
		db.Put(keyspace.AppendTombstone(nil, archived), stone)
		key := keyspace.AppendCheckpoint(nil, archived, 1)
		db.Put(key, []byte("x"))
		if said := problems(t, db); !strings.Contains(said, "no first entry") {
			t.Errorf("beside the tombstone %q: %q", stone, said)
		}
		db.Put(key, nil)
	}
	// A tombstone that cannot be read while its segment is sealed is a problem of its trace, and the
	// check goes on: it finds the key of the other one, which it looks at later.
	db.Put(sealing, binary.BigEndian.AppendUint64(nil, 2))
	db.Put(keyspace.AppendTombstone(nil, archived), []byte("none"))
	keys := [][]byte{keyspace.AppendCheckpoint(nil, archived, 1), keyspace.AppendCheckpoint(nil, other, 1)}
	for _, key := range keys {
		db.Put(key, []byte("x"))
	}
	said := problems(t, db)
	for _, want := range []string{"tombstone", other.String() + " has a key of kind"} {
		if !strings.Contains(said, want) {
			t.Errorf("beside a damaged tombstone: %q, want %q in it", said, want)
		}
	}
	for _, key := range append(keys, sealing, keyspace.AppendTombstone(nil, archived)) {
		db.Put(key, nil)
	}
}

// TestProblemSaysItsDigestsWhereTheyDiffer, and nothing of them where it has none.
func TestProblemSaysItsDigestsWhereTheyDiffer(t *testing.T) {
	why := errors.New("it is not so")
	one, other := tga.Digest{1}, tga.Digest{2}
	for _, c := range []struct {
		p    Problem
		want string
	}{
		{Problem{Err: why}, "it is not so"},
		{Problem{Err: why, Stored: one, Computed: one}, "it is not so"},
		{Problem{Err: why, Stored: one, Computed: other}, "it is not so (stored " + one.String() + ", computed " + other.String() + ")"},
	} {
		if got := c.p.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestCheckWantsTheLastAppend: an order that ends before the durable prefix is a problem, even if only one
// append is missing. An order that ends with the prefix or after it is not.
func TestCheckWantsTheLastAppend(t *testing.T) {
	db := inMemory(t)
	v := db.index.view()
	defer func() {
		if err := closeView(v, nil); err != nil {
			t.Error(err)
		}
	}()
	for last, missing := range map[uint64]bool{7: true, 8: true, 9: true, 10: false, 11: false} {
		c := &checker{ctx: t.Context(), v: v, nextLeaf: last + 1}
		if err := c.order(10); err != nil {
			t.Fatal(err)
		}
		if (len(c.Problems) == 1) != missing || missing && !strings.Contains(c.Problems[0].String(), "10 was durable") {
			t.Errorf("10 are durable, the last is %d: %v", last, c.Problems)
		}
	}
}

// TestWriterKeepsSmallBuffers: what a value was encoded in is used again up to 64 KiB, so that one
// long value does not stay in memory with every writer.
func TestWriterKeepsSmallBuffers(t *testing.T) {
	for size, kept := range map[int]bool{1: true, 64 << 10: true, 64<<10 + 1: false, 1 << 20: false} {
		w := &writer{}
		if got := w.keep(make([]byte, 0, size)); cap(got) != size || (w.value != nil) != kept {
			t.Errorf("%d bytes: returned %d, kept %d", size, cap(got), cap(w.value))
		}
	}
}
