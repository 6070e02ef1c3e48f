package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
)

// aged returns the disk of a store at two moments of one process: in the middle of its calls,
// and closed after them. Stores of different seeds have files of the same names.
func aged(t *testing.T, seed uint64) (early, late *crashmem.FS) {
	t.Helper()
	disk := crashmem.New()
	clone := func() *crashmem.FS {
		return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(seed)})
	}
	for _, part := range [][3]uint64{{0, 5, 5}, {5, 10, 10}, {10, 13, 20}} { // a log becomes a table at the next open
		db, err := engine.Open("store", options(disk))
		if err != nil {
			t.Fatal(err)
		}
		for i := part[0]; i < part[2]; i++ {
			if i == part[1] {
				early = clone()
			}
			run(t, db, spec{trace: id(seed*100 + i), key: fmt.Sprintf("key-%03d", seed*100+i)})
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return early, clone()
}

// kindOf is the kind of a file of a store.
func kindOf(dir, base string) string {
	switch {
	case dir == "store/log" && base != "spare":
		return "log"
	case strings.HasSuffix(base, ".sst"):
		return "table"
	case strings.HasPrefix(base, "MANIFEST-"):
		return "manifest"
	case strings.HasPrefix(base, "marker."):
		return "marker"
	case strings.HasPrefix(base, "OPTIONS-"):
		return "options"
	case base == "WATERMARK":
		return "watermark"
	}
	return ""
}

func filesOf(t *testing.T, fs vfs.FS, kind string) (names []string) {
	t.Helper()
	for _, dir := range []string{"store", "store/log", "store/index"} {
		all, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if kindOf(dir, name) == kind {
				names = append(names, dir+"/"+name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// whatShows opens a store in which a file is not what it was, and says what an operator sees.
func whatShows(t *testing.T, disk *crashmem.FS, seed uint64) string {
	t.Helper()
	db, err := engine.Open("store", options(disk))
	if err != nil {
		return "refused"
	}
	defer func() { _ = db.Close() }() // of a damaged store
	if db.Stats().Frozen != "" {
		return "frozen"
	}
	report, err := db.Check(t.Context())
	if err != nil || len(report.Problems) > 0 {
		return "shown by verify"
	}
	for i := range uint64(20) {
		if st, err := db.State(t.Context(), id(seed*100+i)); err != nil || st.LastSeq != 4 {
			return "silent"
		}
	}
	return "harmless"
}

// TestFilesThatAreNotTheStoresOwn takes one file of each kind for another store's file of
// that name, takes it away, and puts an earlier version of it back. Files of the index cost
// nothing but a rebuild. A file of the log, or the watermark, freezes the store or refuses
// the open: nothing is silent.
func TestFilesThatAreNotTheStoresOwn(t *testing.T) {
	serial.Test(t)
	early, late := aged(t, 4)
	_, other := aged(t, 5)
	for _, kind := range []string{"log", "table", "manifest", "marker", "options", "watermark"} {
		names := filesOf(t, late, kind)
		if len(names) == 0 {
			t.Errorf("the store has no %s", kind)
		}
		for _, change := range []string{"another store's", "gone", "an earlier one"} {
			seen := map[string]int{}
			for _, name := range names {
				from := other
				if change == "an earlier one" {
					from = early
				}
				disk := late.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand(1)})
				switch _, err := from.Stat(name); {
				case change == "gone":
					if err := disk.Remove(name); err != nil {
						t.Fatal(err)
					}
				case err != nil:
					continue // there was none of this name
				default:
					replace(t, disk, name, content(t, from, name))
				}
				seen[whatShows(t, disk, 4)]++
			}
			row := kind + ", " + change
			t.Logf("%-28s %v", row, seen)
			ofIndex := kind != "log" && kind != "watermark"
			if seen["silent"] > 0 || ofIndex && seen["refused"]+seen["frozen"]+seen["shown by verify"] > 0 {
				t.Errorf("%s: %v", row, seen)
			}
		}
	}
}
