package engine_test

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// numberedRing says which numbers its keys have, as a ring in a file does. It makes four keys at once.
type numberedRing struct {
	chaintest.Ring
	last, next chain.KeyID
	left       int
	given      []chain.KeyID
}

func (r *numberedRing) Last() chain.KeyID { return r.last }

func (r *numberedRing) Missing() int { return r.left }

func (r *numberedRing) Reserve(upTo chain.KeyID) error {
	if upTo <= r.last {
		return nil
	}
	r.left += int(upTo - r.last)
	r.last, r.next = upTo, upTo
	return nil
}

func (r *numberedRing) Key(string, string) (chain.KeyID, error) {
	if r.next++; r.next > r.last {
		r.last += 4
	}
	r.given = append(r.given, r.next)
	return r.next, nil
}

// TestOlderRingGivesNoKeyOfTheStore: after any crash, a ring that was put back from a copy begins behind
// all keys that the store has used, and what they sealed is still what the newest ring opens.
func TestOlderRingGivesNoKeyOfTheStore(t *testing.T) {
	disk, ring := vfs.NewCrashableMem(), new(numberedRing)
	o := options(disk)
	o.Keyring = ring
	db := open(t, "store", o)
	for n := uint64(1); n <= 10; n++ {
		lease := acquire(t, db, id(n))
		append_(t, db, lease, secretive(n, 10).make(t).begin())
		for _, kept := range []int{0, 100} {
			crashed := options(disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: newRand(n)}))
			older := &numberedRing{last: 4, next: 4} // a copy of the first batch; an open gives none of what was made before
			crashed.Keyring = older
			again := open(t, "store", crashed)
			run(t, again, secretive(100, 10))
			if got := older.given[0]; got <= slices.Max(ring.given) {
				t.Fatalf("after %d calls, %d %% kept: the older ring gave key %d, which the store had used", n, kept, got)
			}
		}
	}
	// The second ring is put aside, and the newest copy of the first is back.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	older := &numberedRing{last: 4, next: 4}
	o.Keyring = older
	db = open(t, "store", o)
	run(t, db, secretive(50, 10))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	o.Keyring = ring
	db = open(t, "store", o)
	for n := uint64(1); n <= 10; n++ {
		if _, err := db.Load(t.Context(), id(n)); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
	run(t, db, secretive(60, 10))
	if slices.Contains(older.given, ring.given[len(ring.given)-1]) {
		t.Errorf("key %d is of two rings", ring.given[len(ring.given)-1])
	}
}

// lackingRing is a ring that has some keys alone.
type lackingRing struct {
	*numberedRing
	has []chain.KeyID
}

func (r lackingRing) Open(dst []byte, key chain.KeyID, sealed, aad []byte) ([]byte, error) {
	if !slices.Contains(r.has, key) {
		return nil, tga.Errorf(tga.StoreUnavailable, "no key %d", key)
	}
	return r.numberedRing.Open(dst, key, sealed, aad)
}

// TestWhatCannotBeReadIsNotVerified: a check says of how many traces it could not read what they carry,
// archived ones too, and goes on; that a ring lacks their keys is a problem, at each start again.
func TestWhatCannotBeReadIsNotVerified(t *testing.T) {
	disk, ring := vfs.NewMem(), new(numberedRing)
	o := options(disk)
	o.Keyring = ring
	db := open(t, "store", o)
	for n := uint64(1); n <= 6; n++ {
		run(t, db, secretive(n, 10))
		if n == 3 {
			if done, err := db.SealTraces(t.Context(), 1<<60); err != nil || done.Traces != 3 {
				t.Fatalf("%+v, %v", done, err)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	part, none := &numberedRing{last: 4, next: 4}, &numberedRing{}
	for _, c := range []struct {
		ring     engine.Keyring
		unread   int
		problems int
		missing  int
	}{
		{nil, 6, 0, 0},
		{lackingRing{ring, ring.given}, 0, 0, 0},
		{lackingRing{part, []chain.KeyID{2, 5}}, 4, 1, 4}, {lackingRing{part, []chain.KeyID{2, 5}}, 4, 1, 4},
		{lackingRing{none, nil}, 6, 1, 8}, {lackingRing{none, nil}, 6, 1, 8},
	} {
		o.Keyring = c.ring
		db := open(t, "store", o)
		rep, err := db.Check(t.Context())
		if err != nil || rep.Traces != 6 || rep.Unread != c.unread || len(rep.Problems) != c.problems {
			t.Errorf("%+v, %v; want %+v", rep, err, c)
		}
		for _, p := range rep.Problems {
			wantCode(t, p.Err, tga.StoreUnavailable)
		}
		if got := db.Stats().MissingKeys; got != c.missing {
			t.Errorf("%d keys are missing, want %d", got, c.missing)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
