package state_test

import (
	"encoding/json"
	"testing"

	"github.com/tgad/tgad/internal/turn/state"
)

// anomaly runs two transactions of one level in an order that shows an anomaly, and returns
// whether the level permitted it. x and y are 1 when it begins, z is absent.
type anomaly struct {
	name    string
	permits map[state.Isolation]bool
	run     func(w *world, level state.Isolation) bool
}

var (
	allLevels = []state.Isolation{state.ReadUncommitted, state.ReadCommitted, state.RepeatableRead, state.Serializable}
	dirtyOnly = map[state.Isolation]bool{state.ReadUncommitted: true}
	committed = map[state.Isolation]bool{state.ReadUncommitted: true, state.ReadCommitted: true}
	allButTop = map[state.Isolation]bool{state.ReadUncommitted: true, state.ReadCommitted: true, state.RepeatableRead: true}
	never     = map[state.Isolation]bool{}
)

var anomalies = []anomaly{
	{"dirty read", dirtyOnly, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		a.set("x", "2")
		got := b.get("x")
		a.Discard()
		b.Discard()
		return got == "2"
	}},
	{"dirty read of a key that is not there", dirtyOnly, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		a.set("z", "2")
		got := b.exists("z")
		a.Discard()
		b.Discard()
		return got
	}},
	{"dirty write: two commits are interleaved", never, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		a.set("x", "2")
		b.set("x", "3").set("y", "3")
		a.set("y", "2")
		b.commit()
		a.commit()
		c := w.begin(session, state.Serializable)
		defer c.Discard()
		return c.get("x") != c.get("y")
	}},
	{"non-repeatable read", committed, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		defer a.Discard()
		before := a.get("x")
		b.set("x", "2").commit()
		return a.get("x") != before
	}},
	{"read skew", committed, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		defer a.Discard()
		x := a.get("x")
		b.set("x", "2").set("y", "2").commit()
		return a.get("y") != x
	}},
	{"read skew in one GetMany", never, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		defer a.Discard()
		b.set("x", "2").set("y", "2").commit()
		got, err := a.GetMany([]string{"x", "y"})
		must(w, err)
		return string(got["x"]) != string(got["y"])
	}},
	{"phantom, Exists", committed, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		defer a.Discard()
		before := a.exists("z")
		b.set("z", "1").commit()
		return a.exists("z") != before
	}},
	{"phantom, GetMany", committed, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		defer a.Discard()
		before, err := a.GetMany([]string{"x", "z"})
		must(w, err)
		b.set("z", "1").del("x").commit()
		after, err := a.GetMany([]string{"x", "z"})
		must(w, err)
		return len(before) != 1 || after["z"] != nil || after["x"] == nil
	}},
	{"phantom, Keys", committed, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		defer a.Discard()
		before, err := a.Keys()
		must(w, err)
		b.set("z", "1").commit()
		after, err := a.Keys()
		must(w, err)
		return len(before) != len(after)
	}},
	{"lost update", committed, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		defer a.Discard()
		a.set("x", increased(a.get("x")))
		b.set("x", increased(b.get("x"))).commit()
		if err := a.try(); err != nil {
			wantConflict(w, err, "x")
		}
		c := w.begin(session, level)
		defer c.Discard()
		return c.get("x") == "2" && a.Status() == state.Committed
	}},
	{"write skew", allButTop, func(w *world, level state.Isolation) bool {
		return skewed(w, level, func(t *tx) bool { return t.get("x") == "1" && t.get("y") == "1" }, "x", "y")
	}},
	{"write skew by an insert", allButTop, func(w *world, level state.Isolation) bool {
		return skewed(w, level, func(t *tx) bool { return !t.exists("z") && !t.exists("zz") }, "z", "zz")
	}},
	{"write skew by an insert among the keys", allButTop, func(w *world, level state.Isolation) bool {
		return skewed(w, level, func(t *tx) bool {
			keys, err := t.Keys()
			must(w, err)
			return len(keys) == 2
		}, "z", "zz")
	}},
	{"lost append", never, func(w *world, level state.Isolation) bool {
		a, b := w.begin(session, level), w.begin(session, level)
		a.add("list", "1")
		b.add("list", "2").commit()
		a.commit()
		c := w.begin(session, level)
		defer c.Discard()
		return c.get("list") != "[2,1]"
	}},
}

func increased(number string) string {
	var n int
	if json.Unmarshal([]byte(number), &n) != nil {
		return "null"
	}
	return string(rune('0' + n + 1))
}

// skewed runs two transactions that both check the same condition and set one key each. If the
// level permits it, both commit, and then neither ran after the other.
func skewed(w *world, level state.Isolation, holds func(*tx) bool, first, second string) bool {
	a, b := w.begin(session, level), w.begin(session, level)
	defer a.Discard()
	if !holds(a) || !holds(b) {
		w.Fatal("it does not hold when it begins")
	}
	a.set(first, "7")
	b.set(second, "7").commit()
	err := a.try()
	if err != nil {
		wantConflict(w, err, second)
	}
	return err == nil
}

// TestAnomaliesByLevel: each level permits exactly the anomalies that the package comment lists.
func TestAnomaliesByLevel(t *testing.T) {
	w := newWorld(t)
	for _, a := range anomalies {
		for _, level := range allLevels {
			t.Run(a.name+"/"+string(level), func(t *testing.T) {
				w.tb = t
				w.begin(session, "").set("x", "1").set("y", "1").del("z").del("zz").del("list").commit()
				if got := a.run(w, level); got != a.permits[level] {
					t.Errorf("%s under %s: %v, want %v", a.name, level, got, a.permits[level])
				}
			})
		}
	}
	w.tb = t
}

// TestDirtyReadIsOfTheNewestWrite: the newest pending write of others is read, unless the
// transaction's own write hides it. A discarded write is gone, and a commit never contains a
// write of another transaction.
func TestDirtyReadIsOfTheNewestWrite(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.begin(session, state.Serializable), w.begin(session, state.RepeatableRead), w.begin(session, state.ReadUncommitted)
	a.set("x", "1").set("list", "[1]")
	b.set("x", "2")
	c.wants("x", "2")
	a.set("x", "3")
	c.wants("x", "3")
	c.add("list", "9")
	c.wants("list", "[1,9]")
	c.set("x", "4")
	a.set("x", "5")
	c.wants("x", "4")
	a.Discard()
	c.wants("list", "[9]")
	c.commit()
	w.stored("list", "[9]")
	w.stored("x", "4")
	b.commit()
	w.stored("x", "2")
}

// TestReadOnlySerializableIsNeverRefused: it counts as run when it began.
func TestReadOnlySerializableIsNeverRefused(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("x", "1").commit()
	a := w.begin(session, state.Serializable)
	a.wants("x", "1")
	w.begin(session, "").set("x", "2").commit()
	a.commit()
}

// TestBlindWritesDoNotConflict: if the key was not read, the last set wins.
func TestBlindWritesDoNotConflict(t *testing.T) {
	w := newWorld(t)
	for _, level := range allLevels {
		a, b := w.begin(session, level), w.begin(session, level)
		a.set("x", "1").del("y")
		b.set("x", "2").set("y", "2").commit()
		a.commit()
		w.stored("x", "1")
		w.stored("y", "")
	}
}

// TestAppendThatReadConflicts: an append is blind until its key is read, at levels with
// repeatable reads.
func TestAppendThatReadConflicts(t *testing.T) {
	w := newWorld(t)
	for _, level := range allLevels {
		w.begin(session, "").set("list", "[0]").commit()
		a, b := w.begin(session, level), w.begin(session, level)
		a.add("list", "1")
		a.wants("list", "[0,1]")
		b.add("list", "2").commit()
		err := a.try()
		if level == state.RepeatableRead || level == state.Serializable {
			wantConflict(t, err, "list")
			w.stored("list", "[0,2]")
		} else {
			must(t, err)
			w.stored("list", "[0,2,1]")
		}
		a.Discard()
	}
}

// TestAppendToWhatIsNoListAnyMore is a conflict at every level, because the append was accepted
// when it was made.
func TestAppendToWhatIsNoListAnyMore(t *testing.T) {
	w := newWorld(t)
	for _, level := range allLevels {
		w.begin(session, "").set("list", "[0]").commit()
		a := w.begin(session, level)
		a.add("list", "1")
		w.begin(session, "").set("list", `"text"`).commit()
		wantConflict(t, a.try(), "list")
		a.Discard()
	}
}
