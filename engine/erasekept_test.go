package engine_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// destroying is a ring that says when it is to destroy a key.
type destroying struct {
	*chaintest.Ring
	destroy func() error
}

func (d *destroying) Destroy(key chain.KeyID) error {
	if err := d.destroy(); err != nil {
		return err
	}
	return d.Ring.Destroy(key)
}

// TestWhatIsKeptDuringAnErasureStays: a value that is written to a stream after its items were erased is not part of the
// erasure. That holds while the keys are still to be destroyed. It also holds if an unfinished erasure is finished later, by
// the next erasure, by an open, or by FinishErasure.
func TestWhatIsKeptDuringAnErasureStays(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for _, goesOn := range []string{"erases more", "reopens", "is asked to"} {
			t.Run(fmt.Sprintf("fails %v, %s", fails, goesOn), func(t *testing.T) {
				ring := &destroying{Ring: new(chaintest.Ring)}
				o := options(vfs.NewMem())
				o.Keyring = ring
				db := open(t, "store", o)
				kept := keyspace.KeptStream("tenant", "payments")
				since := item(kept, 1, "kept since "+secret)
				lay(t, db, kept, item(kept, 1, "1 "+secret), item(kept, 2, "2 "+secret))
				asked := 0
				ring.destroy = func() error {
					if asked++; asked == 1 {
						lay(t, db, kept, since)
						if fails {
							return tga.Errorf(tga.StoreUnavailable, "the ring is away")
						}
					}
					return nil
				}
				what := engine.Erasure{Kept: []string{"payments"}, Namespace: "tenant", Who: "operator", Reason: "r"}
				_, err := db.Erase(t.Context(), what)
				if want := map[bool]tga.Code{true: tga.StoreUnavailable}[fails]; tga.CodeOf(err) != want {
					t.Fatalf("%v, want %q", err, want)
				}
				if is, err := db.Erasing(); err != nil || is != fails {
					t.Errorf("an erasure is not finished: %v, %v", is, err)
				}
				switch goesOn {
				case "reopens":
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					db = open(t, "store", o)
				case "is asked to":
					if err := db.FinishErasure(t.Context()); err != nil {
						t.Fatal(err)
					}
				default:
					lay(t, db, id(1), item(id(1), 1, "another's"))
					erase(t, db, engine.Erasure{Turns: []tga.ID{id(1)}}) // finishes what was begun
				}
				wantBeside(t, db, since, true)
				wantBeside(t, db, item(kept, 2, ""), false)
				if len(ring.Destroyed) == 0 {
					t.Error("no key was destroyed")
				}
				if is, err := db.Erasing(); err != nil || is {
					t.Errorf("it is not finished: %v, %v", is, err)
				}
				check(t, db)
			})
		}
	}
}
