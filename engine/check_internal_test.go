package engine

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/keyspace"
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

// TestForgedSegmentIsAProblem: a segment of archived traces whose row is good and whose content is no
// segment is said to be that.
func TestForgedSegmentIsAProblem(t *testing.T) {
	db := inMemory(t)
	key := keyspace.AppendSegment(nil, 1)
	db.Put(key, []byte("no segment at all, and long enough to have a footer: 0123456789abcdef0123456789abcdef"))
	if said := problems(t, db); !strings.Contains(said, "segment") {
		t.Errorf("%q", said)
	}
	db.Put(key, nil)
}

// TestSpoiltIndexIsRemoved: a store that finds its index to be another's says so on the disk, and the
// next open makes it anew.
func TestSpoiltIndexIsRemoved(t *testing.T) {
	db := inMemory(t)
	if spoilt(db.opts.FS, db.dir) {
		t.Fatal("a new index is spoilt")
	}
	if err := db.spoilIndex(); err != nil || !spoilt(db.opts.FS, db.dir) {
		t.Errorf("%v", err)
	}
}
