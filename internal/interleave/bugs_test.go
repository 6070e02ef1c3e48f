package interleave

import (
	"os"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/crashtest"
)

// shared are the planted bugs of the crash tiers that this tier finds as well.
var shared = []string{
	"no-mark", "mark-after-send", "blind-resend", "remote-sent-here", "sent-twice",
	"doubt-is-not-sent", "two-reserve", "window-ignored", "not-sent-after-doubt", "probe-without-fence",
}

// bugs are all bugs that this tier is given: those that the crash tiers share, and its own,
// which need more than one actor, in one order of many.
func bugs(t *testing.T) []crashtest.Bug {
	t.Helper()
	list, err := crashtest.ReadBugs(os.DirFS("."), "testdata/planted")
	if err != nil {
		t.Fatal(err)
	}
	all, err := crashtest.PlantedBugs()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if slices.Contains(shared, b.Name) {
			list = append(list, b)
		}
	}
	return list
}

// TestPlantedBugsHaveTheirPlaces: a bug whose place has moved would be planted nowhere.
func TestPlantedBugsHaveTheirPlaces(t *testing.T) {
	if err := crashtest.HavePlaces(bugs(t)); err != nil {
		t.Error(err)
	}
}
