package engine

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// inMemory is a store of its own.
func inMemory(t *testing.T) *DB {
	t.Helper()
	db, err := Open("store", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// TestAppendTakesABatchAtItsLimit: what an append commits may have chain.MaxBatch bytes, and one
// byte more is refused before anything of it is written.
func TestAppendTakesABatchAtItsLimit(t *testing.T) {
	const value = 10
	db, id := inMemory(t), tga.ID{6: 0x70, 8: 0x80}
	for over := range 2 {
		s := &step{after: chain.NewTrace(id), attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: id[:], Value: make([]byte, value)}}}
		w := db.commits.newWriter()
		w.size = chain.MaxBatch - value + over // as if so much were in it
		w.step(s)
		ops := w.ops.Inline()
		var c commitment
		err := w.end(&c)
		if over == 0 && (err != nil || ops != value) {
			t.Errorf("at the limit: %v, %d bytes in it", err, ops)
		}
		if over == 1 && (tga.CodeOf(err) != tga.LimitExceeded || ops != 0 || c.ops != nil) {
			t.Errorf("past the limit: %v, %d bytes in it", err, ops)
		}
	}
}

// TestBodyPastTheRecordHasAFile: bodies of one append lie in its record up to wal.MaxInline bytes
// together; the one that goes past it has a file.
func TestBodyPastTheRecordHasAFile(t *testing.T) {
	db := inMemory(t)
	for _, c := range []struct {
		sizes []int
		files int
	}{
		{[]int{wal.MaxInline}, 0},
		{[]int{wal.MaxInline + 1}, 1},
		{[]int{wal.MaxInline - 5, 5}, 0},
		{[]int{wal.MaxInline - 5, 6}, 1},
		{[]int{wal.MaxInline - 5, 6, 5}, 1},
	} {
		w := db.commits.newWriter()
		for i, n := range c.sizes {
			w.body([]byte{'x', byte(i)}, make([]byte, n))
		}
		var of commitment
		if err := w.end(&of); err != nil {
			t.Fatal(err)
		}
		files := of.ops.Files()
		if len(files) != c.files {
			t.Errorf("bodies of %d bytes: %d files, want %d", c.sizes, len(files), c.files)
		}
		for _, f := range files {
			if err := db.wal.DropFile(f); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestGroupsEndAtTheirLimit: appends that wait together are one group up to maxGroup bytes.
func TestGroupsEndAtTheirLimit(t *testing.T) {
	var empty wal.Ops
	empty.PutBody([]byte{1}, nil, nil)
	header := empty.Len()
	const half = maxGroup / 2
	for _, c := range []struct {
		sizes []int // in bytes of the record
		want  []int // members of each group
	}{
		{[]int{half, half}, []int{2}},
		{[]int{half, half + 1}, []int{1, 1}},
		{[]int{half, half - 100, 100}, []int{3}},
		{[]int{half, half - 100, 101}, []int{2, 1}},
		{[]int{half, half + 1, 100}, []int{1, 2}}, // never into a group that is not the last
	} {
		k := new(committer)
		k.work.L = &k.mu
		for _, n := range c.sizes {
			x := &commitment{ops: new(wal.Ops)}
			for left := n; left > 0; {
				one := min(left, wal.MaxInline/2)
				if rest := left - one; rest > 0 && rest < header {
					one -= header
				}
				x.ops.PutBody([]byte{1}, nil, make([]byte, one-header))
				left -= one
			}
			if x.ops.Len() != n {
				t.Fatalf("%d bytes, want %d", x.ops.Len(), n)
			}
			k.add(x)
		}
		var got []int
		for _, g := range k.queue {
			got = append(got, len(g.members))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("appends of %d bytes are groups of %d, want %d", c.sizes, got, c.want)
		}
	}
}
