package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// ordered appends a call, and returns the leaves of the order once it has them.
func ordered(t *testing.T, s *postgres.Store, leaves int) []chain.Leaf {
	t.Helper()
	x, lease := begun(t, s)
	if _, err := s.Append(bg, lease, x.End(tga.StatusSuccess)); err != nil {
		t.Fatal(err)
	}
	s.Release(lease)
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		got, err := s.Fleet().Evidence().Leaves(bg, 0, leaves)
		if err != nil || time.Now().After(until) {
			t.Fatalf("%d leaves, %v", len(got), err)
		}
		if len(got) == leaves {
			return got
		}
	}
}

func note(size int, text string) []byte {
	return fmt.Appendf(nil, "origin\n%d\nhead\n\n— %s\n", size, text)
}

// TestStaleSignerIsRefused: two processes sign one after the other. The first can keep nothing more, whatever it knows and in
// whichever session.
func TestStaleSignerIsRefused(t *testing.T) {
	dsn, shard := database(t)
	o := postgres.Options{Shard: shard, Lease: time.Second}
	a, b := open(t, dsn, o), open(t, dsn, o)
	x, y := a.Fleet().Evidence(), b.Fleet().Evidence()
	leaves := ordered(t, a, 2)
	first, err := x.Lead(bg)
	if err != nil || first == 0 {
		t.Fatalf("epoch %d, %v", first, err)
	}
	if again, err := x.Lead(bg); err != nil || again != first {
		t.Errorf("epoch %d, asked again %d, %v", first, again, err)
	}
	if got, err := y.Lead(bg); err != nil || got != 0 {
		t.Errorf("two sign: epoch %d, %v", got, err)
	}
	kept := postgres.Keeping{Epoch: first, Kind: 1, Size: 1, Leaf: leaves[0], Note: note(1, "a"), Key: "key"}
	if err := x.Keep(bg, kept); err != nil {
		t.Fatal(err)
	}
	c := connect(t, dsn)
	if _, err := c.Exec(bg, "UPDATE tgad.sessions SET lease = '0', expires = clock_timestamp() - interval '1 s' WHERE shard = $1 AND session = (SELECT session FROM tgad.duties WHERE shard = $1 AND duty = 'evidence')", shard); err != nil {
		t.Fatal(err)
	}
	next := int64(0)
	for until := time.Now().Add(time.Minute); next == 0; time.Sleep(10 * time.Millisecond) {
		if next, err = y.Lead(bg); err != nil || time.Now().After(until) {
			t.Fatalf("epoch %d, %v", next, err)
		}
	}
	if next <= first {
		t.Errorf("epoch %d follows %d", next, first)
	}
	stale := postgres.Keeping{Epoch: first, After: 1, Kind: 1, Size: 2, Leaf: leaves[1], Note: note(2, "a")}
	tile := postgres.Keeping{Epoch: first, Size: 2, Leaf: leaves[1], Tiles: []postgres.Tile{{Hashes: bytes.Repeat([]byte{1}, 8192)}}}
	for range 40 { // its session is over, and then it has another one
		for _, k := range []postgres.Keeping{stale, tile} {
			if err := x.Keep(bg, k); !errors.Is(err, postgres.ErrNotSigner) {
				t.Fatalf("a stale process keeps a note of %d leaves and %d tiles: %v", k.Size, len(k.Tiles), err)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := x.Resign(bg, first); err != nil {
		t.Error(err)
	}
	stale.Epoch, stale.Note = next, note(2, "b")
	if err := y.Keep(bg, stale); err != nil {
		t.Errorf("who signs now: %v", err)
	}
	if list, err := x.Notes(bg, 1, 10); err != nil || len(list) != 2 || !strings.Contains(string(list[1].Text), "— b") {
		t.Errorf("notes: %+v, %v", list, err)
	}
}

// TestKeptGoesOnFromWhatIsThere: each rule of what may be kept, for the process that signs.
func TestKeptGoesOnFromWhatIsThere(t *testing.T) {
	dsn, shard := database(t)
	s := open(t, dsn, postgres.Options{Shard: shard})
	e := s.Fleet().Evidence()
	leaves := ordered(t, s, 2)
	epoch, err := e.Lead(bg)
	if err != nil {
		t.Fatal(err)
	}
	tile := func(b byte) []postgres.Tile {
		return []postgres.Tile{{Level: 0, Number: 3, Hashes: bytes.Repeat([]byte{b}, 8192)}}
	}
	other := leaves[1]
	other.HeadDigest[0] ^= 1
	noted := leaves[1]
	noted.NoteDigest[0] ^= 1
	ahead := leaves[1]
	ahead.Index = 3
	for i, c := range []struct {
		what string
		k    postgres.Keeping
		want error
	}{
		{"a first checkpoint", postgres.Keeping{Kind: 1, Size: 1, Leaf: leaves[0], Note: note(1, "a"), Tiles: tile(1)}, nil},
		{"behind another note than the newest", postgres.Keeping{After: 0, Kind: 1, Size: 2, Leaf: leaves[1], Note: note(2, "a")}, postgres.ErrOtherNote},
		{"behind a note that is not there", postgres.Keeping{After: 2, Kind: 1, Size: 2, Leaf: leaves[1], Note: note(2, "a")}, postgres.ErrOtherNote},
		{"of more than the order has", postgres.Keeping{After: 1, Kind: 1, Size: 3, Leaf: ahead, Note: note(3, "a")}, postgres.ErrOtherOrder},
		{"of another last append", postgres.Keeping{After: 1, Kind: 1, Size: 2, Leaf: other, Note: note(2, "a")}, postgres.ErrOtherOrder},
		{"of another last note", postgres.Keeping{After: 1, Kind: 1, Size: 2, Leaf: noted, Note: note(2, "a")}, postgres.ErrOtherOrder},
		{"with another tile in the place of one", postgres.Keeping{After: 1, Kind: 1, Size: 2, Leaf: leaves[1], Note: note(2, "a"), Tiles: tile(2)}, postgres.ErrOtherOrder},
		{"another tile alone", postgres.Keeping{Size: 2, Leaf: leaves[1], Tiles: tile(2)}, postgres.ErrOtherOrder},
		{"with the same tile", postgres.Keeping{After: 1, Kind: 1, Size: 2, Leaf: leaves[1], Note: note(2, "a"), Tiles: tile(1)}, nil},
		{"of the same size, with a cosignature", postgres.Keeping{After: 2, Kind: 1, Size: 2, Leaf: leaves[1], Note: note(2, "a and b")}, nil},
		{"of the same size, with another head", postgres.Keeping{After: 3, Kind: 1, Size: 2, Leaf: leaves[1], Note: []byte("origin\n2\nother\n\n— a\n")}, postgres.ErrOtherNote},
		{"of a smaller size", postgres.Keeping{After: 3, Kind: 1, Size: 1, Leaf: leaves[0], Note: note(1, "a")}, postgres.ErrOtherNote},
		{"a hand-over of a smaller size", postgres.Keeping{After: 3, Kind: 2, Size: 1, Leaf: leaves[0], Note: note(1, "a")}, postgres.ErrOtherNote},
		{"an accepted loss", postgres.Keeping{After: 3, Kind: 3, Size: 1, Leaf: leaves[0], Note: note(1, "a")}, nil},
		{"of what was accepted", postgres.Keeping{After: 4, Kind: 1, Size: 1, Leaf: leaves[0], Note: note(1, "a")}, nil},
	} {
		if c.k.Kind != 3 { // which a person says, to any process
			c.k.Epoch = epoch
		}
		if err := e.Keep(bg, c.k); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%d, %s: %v, want %v", i, c.what, err, c.want)
		}
	}
	c := connect(t, dsn)
	for _, change := range []string{"UPDATE tgad.tiles SET hashes = hashes", "DELETE FROM tgad.tiles", "UPDATE tgad.signed_notes SET note = note", "DELETE FROM tgad.signed_notes"} {
		_, err := c.Exec(bg, fmt.Sprintf("%s WHERE shard = %d", change, shard))
		if e := (*pgconn.PgError)(nil); !errors.As(err, &e) || e.Code != "TG001" {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// TestFrozenStoreIsFenced: a process that has not heard that the store is frozen appends nothing, and sends nothing.
func TestFrozenStoreIsFenced(t *testing.T) {
	dsn, shard := database(t)
	a, b := open(t, dsn, postgres.Options{Shard: shard, Lease: time.Minute}), open(t, dsn, postgres.Options{Shard: shard})
	x, lease := begun(t, a)
	y, other := begun(t, a)
	if err := b.Fleet().Freeze("the first reason"); err != nil {
		t.Fatal(err)
	}
	if a.Current(other) {
		t.Error("a lease of a frozen store holds: a call would be sent under it")
	}
	for _, next := range []struct {
		lease chain.Lease
		b     *storetest.Builder
	}{{lease, x}, {other, y}} {
		if _, err := a.Append(bg, next.lease, next.b.End(tga.StatusSuccess)); err == nil {
			t.Error("an append to a frozen store")
		}
	}
	c := open(t, dsn, postgres.Options{Shard: shard})
	if err := c.Fleet().Freeze("another reason"); err != nil {
		t.Error(err)
	}
	for i, s := range []*postgres.Store{a, b, c} {
		if why := s.Fleet().Stats().Frozen; !strings.Contains(why, "the first reason") {
			t.Errorf("process %d: frozen for %q", i, why)
		}
	}
	if err := c.Fleet().Unfreeze(bg, true, "somebody"); err != nil {
		t.Error(err)
	}
	since, in := c.Quarantined()
	if d := open(t, dsn, postgres.Options{Shard: shard}); !in || d.Fleet().Stats().Frozen != "" {
		t.Errorf("in quarantine: %v; frozen: %q", in, d.Fleet().Stats().Frozen)
	} else if at, in := d.Quarantined(); !in || at != since {
		t.Errorf("in quarantine since %d, and %d", since, at)
	} else if newest, _ := begun(t, d); newest.TraceID == (tga.ID{}) {
		t.Error("no trace")
	}
}

// TestUnfreezeNeedsTheNewestTime: a database that does not tell its newest time ends no freezing. The quarantine would
// begin at the end of the year 9999, and every later time of the store after it.
func TestUnfreezeNeedsTheNewestTime(t *testing.T) {
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{})
	if err := s.Fleet().Freeze("a reason"); err != nil {
		t.Fatal(err)
	}
	if err := p.Exec("ALTER FUNCTION tgad.newest RENAME TO away"); err != nil {
		t.Fatal(err)
	}
	if err := s.Fleet().Unfreeze(bg, true, "somebody"); tga.CodeOf(err) != tga.StoreUnavailable {
		since, _ := s.Quarantined()
		t.Errorf("unfrozen: %v, in quarantine since %s", err, since)
	}
	if err := p.Exec("ALTER FUNCTION tgad.away RENAME TO newest"); err != nil {
		t.Fatal(err)
	}
	if err := s.Fleet().Unfreeze(bg, true, "somebody"); err != nil {
		t.Fatal(err)
	}
	if since, in := s.Quarantined(); !in || since > tga.MillisOf(time.Now().Add(time.Hour)) {
		t.Errorf("in quarantine: %v, since %s", in, since)
	}
}
