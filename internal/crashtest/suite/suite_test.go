package suite

import (
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/crashtest"
)

// TestPlantedComesFirst: in any order of names, the tier that tests the others is the first, and gets the
// time that it needs in a short run.
func TestPlantedComesFirst(t *testing.T) {
	chosen, err := choose([]string{"mem", "double", "planted"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range chosen {
		names = append(names, c.Name)
	}
	if want := []string{"planted", "mem", "double"}; !slices.Equal(names, want) {
		t.Errorf("order is %v, want %v", names, want)
	}
	if _, err := choose([]string{"mem", "memory"}); err == nil {
		t.Error("a tier that is none is no error")
	}
}

// TestShare: a tier gets its share of the time, but at least its minimum.
func TestShare(t *testing.T) {
	list := []crashtest.Tier{{Share: 1, Least: 100}, {Share: 3}}
	for left, want := range map[time.Duration]time.Duration{1000: 250, 401: 100, 400: 100, 399: 100, 99: 100, 0: 100, -50: 100} {
		if got := share(list, left); got != want {
			t.Errorf("of %d: %d, want %d", left, got, want)
		}
	}
	if got := share(list[1:], 1000); got != 1000 {
		t.Errorf("the last one gets %d of 1000", got)
	}
	if got := share(list[1:], -50); got > 0 {
		t.Errorf("the last one gets %d of nothing", got)
	}
}
