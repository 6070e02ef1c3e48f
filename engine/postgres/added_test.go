package postgres_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// added is the whole log of a store, read several appends at once.
func added(t *testing.T, s *postgres.Store) (all []postgres.Added, err error) {
	t.Helper()
	for after := uint64(0); ; after = all[len(all)-1].Leaf.Index {
		page, err := s.Fleet().Added(bg, after)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
}

// TestAddedIsWhatEachAppendAdded: reading several appends at once gives the same log as reading trace by trace, with notes, long
// parts and erased entries, over several pages. Rows that somebody changed are not returned.
func TestAddedIsWhatEachAppendAdded(t *testing.T) {
	x := newMoving(t)
	s := x.bound(x.one)
	tools := &outside{sends: map[string]int{}}
	var keys []string
	for i := range 34 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	x.fill(s, tools, keys...)
	long := x.charge("long")
	long.Args = fmt.Appendf(nil, `{"text":%q}`, bytes.Repeat([]byte("x"), 100_000))
	if _, err := governed(t, s, tools).Call(bg, long); err != nil {
		t.Fatal(err)
	}
	b, lease := x.begun(s)
	if _, err := s.Append(bg, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}}); err != nil {
		t.Fatal(b.TraceID, err)
	}
	s.Release(lease)
	for until := time.Now().Add(time.Minute); query(t, x.one, "SELECT count(*)::text FROM tgad.pending WHERE shard = $1", x.store) != "0"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the order does not come to its end")
		}
	}
	want, err := s.Fleet().Evidence().End(bg)
	if err != nil {
		t.Fatal(err)
	}
	all, err := added(t, s)
	if err != nil || uint64(len(all)) != want || want <= 64 {
		t.Fatalf("%d appends of %d, %v", len(all), want, err)
	}
	notes, erased, spilled := 0, 0, 0
	for i, l := range leaves(t, s, want) {
		a := all[i]
		if a.Leaf != l || len(a.Entries) != int(l.Entries) || len(a.Notes) != int(l.Notes) {
			t.Fatalf("append %d: leaf %+v, want %+v; %d entries, %d notes", i+1, a.Leaf, l, len(a.Entries), len(a.Notes))
		}
		at := 0
		for e, err := range s.Entries(bg, l.TraceID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq < l.FirstSeq || e.Seq >= l.FirstSeq+uint64(l.Entries) {
				continue
			}
			is, isSpill := chain.AppendFrame(nil, &a.Entries[at])
			was, wasSpill := chain.AppendFrame(nil, &e)
			if !bytes.Equal(is, was) || !bytes.Equal(isSpill, wasSpill) {
				t.Errorf("entry %d of append %d is another", at, i+1)
			}
			if e.Artifact == nil {
				erased++
			}
			spilled += len(wasSpill)
			at++
		}
		for n, err := range s.Notes(bg, l.TraceID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if at := int(n.Number) - int(l.FirstNote); at >= 0 && at < int(l.Notes) {
				if notes++; !bytes.Equal(n.AppendCanonical(nil), a.Notes[at].AppendCanonical(nil)) {
					t.Errorf("note %d of append %d is another", n.Number, i+1)
				}
			}
		}
	}
	if notes == 0 || erased == 0 || spilled == 0 {
		t.Errorf("%d notes, %d erased entries, %d bytes of long parts: there is nothing to compare", notes, erased, spilled)
	}
	c := connect(t, pgserver.DSN(x.one))
	unguarded := func(statements ...string) {
		t.Helper()
		for _, statement := range append([]string{"SET session_replication_role = replica"}, statements...) {
			if _, err := c.Exec(bg, statement); err != nil {
				t.Fatal(statement, err)
			}
		}
	}
	for _, table := range []string{"leaves", "entries"} {
		unguarded(fmt.Sprintf("CREATE TEMP TABLE was_%[1]s AS SELECT * FROM tgad.%[1]s WHERE shard = %[2]d", table, x.store))
	}
	for _, change := range []string{
		"UPDATE tgad.leaves SET digest = sha256(digest) WHERE shard = %d AND index = 3",
		"UPDATE tgad.leaves SET note_digest = sha256(note_digest) WHERE shard = %d AND index = (SELECT min(index) FROM tgad.leaves WHERE shard = %[1]d AND notes > 0)",
		"DELETE FROM tgad.entries e USING tgad.leaves l WHERE l.shard = %d AND l.index = 3 AND e.shard = l.shard AND e.trace = l.trace AND e.seq = l.first_seq",
		"DELETE FROM tgad.leaves WHERE shard = %d AND index = 3",
		"UPDATE tgad.entries e SET header = set_byte(header, 190, 255 - get_byte(header, 190)) FROM tgad.leaves l WHERE l.shard = %d AND l.index = 3 AND e.shard = l.shard AND e.trace = l.trace AND e.seq = l.first_seq",
	} {
		unguarded(fmt.Sprintf(change, x.store))
		if _, err := added(t, s); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: %v", change, err)
		}
		for _, table := range []string{"leaves", "entries"} {
			unguarded(fmt.Sprintf("DELETE FROM tgad.%s WHERE shard = %d", table, x.store), fmt.Sprintf("INSERT INTO tgad.%[1]s SELECT * FROM was_%[1]s", table))
		}
	}
	if again, err := added(t, s); err != nil || len(again) != len(all) {
		t.Errorf("put right again: %d appends, %v", len(again), err)
	}
}

// leaves are those of the order up to a number.
func leaves(t *testing.T, s *postgres.Store, last uint64) (all []chain.Leaf) {
	t.Helper()
	for l, err := range s.Follow(bg, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, l); l.Index == last {
			break
		}
	}
	return all
}
