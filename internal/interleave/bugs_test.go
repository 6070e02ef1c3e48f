package interleave

import (
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/crashtest"
)

// shared are the planted bugs of the crash tiers that this tier finds as well.
var shared = []string{
	"no-mark", "mark-after-send", "blind-resend", "remote-sent-here", "sent-twice",
	"doubt-is-not-sent", "two-reserve", "window-ignored", "not-sent-after-doubt",
}

// own are bugs that need more than one actor, in one order of many.
var own = []crashtest.Mutation{
	// The executor of an overtaken attempt is told to send, beside the newer one.
	{Name: "overtaken-begin", File: "runtime/remote.go",
		Old: "p.beginID == l.remote.beginID && p.last && !p.notSent",
		New: "p.beginID == l.remote.beginID && (p.last || planted.On(`overtaken-begin`)) && !p.notSent"},
	// A key that another request has is taken for this one's.
	{Name: "conflict-served", File: "ledger/decide.go",
		Old: "r.RequestDigest != q.Request}",
		New: "r.RequestDigest != q.Request && !planted.On(`conflict-served`)}"},
}

// bugs are all bugs that this tier is given.
func bugs() []crashtest.Mutation {
	list := slices.Clone(own)
	for _, m := range crashtest.PlantedBugs {
		if slices.Contains(shared, m.Name) {
			list = append(list, m)
		}
	}
	return list
}

// TestPlantedBugsHaveTheirPlaces: a bug whose place has moved would be planted nowhere.
func TestPlantedBugsHaveTheirPlaces(t *testing.T) {
	if err := crashtest.HavePlaces(bugs()); err != nil {
		t.Error(err)
	}
}
