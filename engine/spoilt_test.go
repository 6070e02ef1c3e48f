package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/keyspace"
)

// TestIndexFoundBadWhileItServesIsMadeAnew: damage that Pebble's own work meets again and
// again, and keys that are counted beside the first calls and are not those that were, end
// the store's writes; the next open makes the index anew. What is no fault of the index's
// files, and what was met less often, leaves it as it is.
func TestIndexFoundBadWhileItServesIsMadeAnew(t *testing.T) {
	damage := fmt.Errorf("a block: %w", pebble.ErrCorruption)
	fails := func(err error, times int) func(*engine.DB) {
		return func(db *engine.DB) { engine.FailBackground(db, err, times) }
	}
	for _, c := range []struct {
		name             string
		meet             func(*engine.DB)
		readOnly         bool
		poisoned, spoilt bool
	}{
		{"damage", fails(damage, engine.MaxBgErrs), false, true, true},
		{"damage, less often", fails(damage, engine.MaxBgErrs-1), false, false, false},
		{"a full disk", fails(errors.New("no space"), engine.MaxBgErrs), false, true, false},
		{"damage, of another's store", fails(damage, engine.MaxBgErrs), true, true, false},
		{"other keys", func(db *engine.DB) { engine.FilterFailed(db, engine.ErrOtherKeys) }, false, true, true},
		{"keys not read", func(db *engine.DB) { engine.FilterFailed(db, errors.New("no read")) }, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := crashmem.New()
			db := open(t, "store", options(disk))
			for n := range uint64(5) {
				run(t, db, spec{trace: id(n + 1), key: fmt.Sprint("key-", n+1)})
			}
			want := db.Rows()
			var missing string
			for key := range want {
				if key[0] == byte(keyspace.Entry) {
					missing = key
				}
			}
			db.PutRow([]byte(missing), nil) // only an index that is made anew has it again
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			var err error
			if c.readOnly {
				db, err = engine.OpenReadOnly("store", options(disk))
			} else {
				db, err = engine.Open("store", options(disk))
			}
			if err != nil {
				t.Fatal(err)
			}
			c.meet(db)
			if got := db.Stats().Poisoned; (got != "") != c.poisoned {
				t.Errorf("poisoned: %q", got)
			}
			_ = db.Close() // what it was poisoned with
			after := disk.CrashClone(vfs.CrashCloneCfg{})
			spoilt := func() bool {
				_, err := after.Stat("store/index/SPOILT")
				return err == nil
			}
			if spoilt() != c.spoilt {
				t.Errorf("the index is marked: %v", !c.spoilt)
			}
			if db, err = engine.Open("store", options(after)); err != nil {
				t.Fatal(err)
			}
			got := db.Rows()
			if !c.spoilt {
				delete(want, missing)
			}
			for _, rows := range []map[string]string{want, got} {
				delete(rows, "mincarnation") // each open raises it
			}
			if spoilt() || !maps.Equal(got, want) {
				t.Errorf("marked: %v; %d rows, want %d, or others", spoilt(), len(got), len(want))
			}
			if c.spoilt {
				check(t, db)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
