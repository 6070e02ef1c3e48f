package main

import (
	"io"
	"testing"
)

// TestCostsThatGrewFail: each figure passes at its bound and fails one past it. A figure that was not
// measured fails too.
func TestCostsThatGrewFail(t *testing.T) {
	want := costs{"append": {Allocs: 100, Bytes: 1000, Syncs: 10, CPU: 100}}
	for _, c := range []struct {
		got  cost
		fits bool
	}{
		{cost{100, 1000, 10, 100}, true},
		{cost{50, 500, 5, 50}, true},
		{cost{110, 1100, 11, 150}, true},
		{cost{111, 1000, 10, 100}, false},
		{cost{100, 1101, 10, 100}, false},
		{cost{100, 1000, 11.1, 100}, false},
		{cost{100, 1000, 10, 151}, false},
		{cost{0, 1000, 10, 100}, false},
		{cost{100, 1000, 10, 0}, false},
	} {
		if err := compareCosts(costs{"append": c.got}, want, io.Discard); (err == nil) != c.fits {
			t.Errorf("%+v: %v", c.got, err)
		}
	}
	// A figure without a committed value is not checked; allocations always are.
	want["begin"] = cost{Allocs: 10}
	for allocs, fits := range map[float64]bool{11: true, 11.1: false, 0: false} {
		got := costs{"append": want["append"], "begin": {Allocs: allocs}}
		if err := compareCosts(got, want, io.Discard); (err == nil) != fits {
			t.Errorf("%v allocations of 10: %v", allocs, err)
		}
	}
	if err := compareCosts(want, costs{"begin": {Syncs: 1}}, io.Discard); err == nil {
		t.Error("a row without allocations passes")
	}
	if err := compareCosts(costs{}, want, io.Discard); err == nil {
		t.Error("a case that was not measured passes")
	}
	if err := compareCosts(costs{}, costs{}, io.Discard); err == nil {
		t.Error("an empty file of figures passes")
	}
}
