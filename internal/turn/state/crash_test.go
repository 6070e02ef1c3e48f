package state_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn/state"
)

// TestPowerCutLeavesAllOrNothing: the power fails at write operations in a series of commits, and
// none to all of the unsynced data is kept. Each time, all keys are of one commit, either the
// newest acknowledged one or the one under way. The list has one item of each commit, in order,
// and further commits succeed.
func TestPowerCutLeavesAllOrNothing(t *testing.T) {
	serial.Test(t)
	type crash struct {
		fs           *crashmem.FS
		acknowledged int
		op           string
	}
	var (
		mu      sync.Mutex
		crashes []crash
		acked   int
		ops     int
	)
	disk, rng := crashmem.New(), rand.New(rand.NewPCG(7, 4))
	recording := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		ops++
		for _, kept := range []int{0, 50, 100} {
			crashes = append(crashes, crash{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}), acked, fmt.Sprintf("op %d, %s, %d%% kept", ops, op.Path, kept)})
		}
		return nil
	}))
	const commits = 6
	life := &world{tb: t, disk: recording}
	life.open()
	parked := life.begin(session, state.Serializable) // older versions stay in the store for it
	for n := 1; n <= commits; n++ {
		generation(life, n).commit()
		if n == 3 {
			parked.Discard()
		}
		if n == 4 {
			_, err := life.space.CollectSome(bg, session, 2)
			must(t, err)
		}
		if n == 5 {
			_, err := life.space.Collect(bg, session)
			must(t, err)
		}
		mu.Lock()
		acked = n
		mu.Unlock()
	}
	life.close()

	seen := map[int]int{}
	for _, c := range crashes {
		w := &world{tb: t, disk: c.fs}
		w.open()
		n := generationOf(w, c.op)
		if n < c.acknowledged || n > c.acknowledged+1 {
			t.Errorf("%s: it is of commit %d, acknowledged are %d", c.op, n, c.acknowledged)
		}
		seen[n]++
		generation(w, n+1).commit()
		if got := generationOf(w, c.op); got != n+1 {
			t.Errorf("%s: gone on with, it is of commit %d, want %d", c.op, got, n+1)
		}
		if _, err := w.space.CollectSome(bg, session, 2); err != nil {
			t.Errorf("%s: collection of some: %v", c.op, err)
		}
		if got := generationOf(w, c.op); got != n+1 {
			t.Errorf("%s: collected in part, it is of commit %d, want %d", c.op, got, n+1)
		}
		if _, err := w.space.Collect(bg, session); err != nil {
			t.Errorf("%s: collection: %v", c.op, err)
		}
		if got := generationOf(w, c.op); got != n+1 {
			t.Errorf("%s: collected, it is of commit %d, want %d", c.op, got, n+1)
		}
		w.close()
	}
	t.Logf("%d write operations, %d crashes, commits left: %v", ops, len(crashes), seen)
	for n := range commits + 1 {
		if seen[n] == 0 {
			t.Errorf("no crash left commit %d", n)
		}
	}
}

// generation is the n-th transaction: it sets, appends and, alternately, adds or deletes a key.
func generation(w *world, n int) *tx {
	a := w.begin(session, state.Serializable)
	a.set("a", fmt.Sprint(n)).set("b", fmt.Sprint(n)).add("log", fmt.Sprint(n))
	if n%2 == 0 {
		return a.del("odd").set("even", fmt.Sprint(n))
	}
	return a.del("even").set("odd", fmt.Sprint(n))
}

// generationOf returns the commit that all keys belong to.
func generationOf(w *world, op string) (n int) {
	w.Helper()
	a := w.begin(session, state.Serializable)
	defer a.Discard()
	got, err := a.GetMany([]string{"a", "b", "log", "odd", "even"})
	must(w, err)
	keys, err := a.Keys()
	must(w, err)
	if len(got) == 0 && len(keys) == 0 {
		return 0
	}
	must(w, json.Unmarshal(got["a"], &n))
	want := map[string]string{"a": fmt.Sprint(n), "b": fmt.Sprint(n), "log": "["}
	for i := 1; i <= n; i++ {
		if i > 1 {
			want["log"] += ","
		}
		want["log"] += fmt.Sprint(i)
	}
	want["log"] += "]"
	want[[]string{"even", "odd"}[n%2]] = fmt.Sprint(n)
	var names []string
	for key, v := range want {
		names = append(names, key)
		if string(got[key]) != v {
			w.Errorf("%s: of commit %d, and %s is %s", op, n, key, got[key])
		}
	}
	slices.Sort(names)
	if len(got) != len(want) || !slices.Equal(names, keys) {
		w.Errorf("%s: of commit %d, and the keys are %q", op, n, keys)
	}
	return n
}
