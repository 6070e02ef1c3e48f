package interleave

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// documented is the table of docs/CRASH.md: by scenario and licence, how many states it has,
// 0 where it is said to be cut off. The table and [meetings] must name the same scenarios, in one
// order and with the same bounds.
func documented(t *testing.T) map[string]map[string]int {
	t.Helper()
	text, err := os.ReadFile("../../docs/CRASH.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, found := strings.Cut(string(text), "| scenario | at most | `park` | `dedupe_key` | `probe` |\n|---|---|---|---|---|\n")
	rows, _, ended := strings.Cut(rows, "\n\n")
	if !found || !ended {
		t.Fatal("docs/CRASH.md has no table of scenarios")
	}
	list := strings.Split(rows, "\n")
	if len(list) != len(meetings) {
		t.Fatalf("docs/CRASH.md has %d scenarios, and there are %d", len(list), len(meetings))
	}
	said := map[string]map[string]int{}
	for i, row := range list {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 5 || cells[0] != meetings[i].name || !sameBounds(cells[1], meetings[i].bounds.String()) {
			t.Fatalf("docs/CRASH.md has the row %q for %q, at most %s", row, meetings[i].name, meetings[i].bounds)
		}
		said[cells[0]] = map[string]int{}
		for j, licence := range []string{"park", "dedupe_key", "probe"} {
			n := 0
			if cell := strings.ReplaceAll(cells[2+j], ",", ""); cell != "–" {
				if n, err = strconv.Atoi(cell); err != nil {
					t.Fatalf("docs/CRASH.md, %q: %v", row, err)
				}
			}
			said[cells[0]][licence] = n
		}
	}
	return said
}

// sameBounds compares what a row allows with what a scenario does, in any order.
func sameBounds(a, b string) bool {
	in := map[string]int{}
	for _, s := range strings.Split(a, ", ") {
		in[s]++
	}
	for _, s := range strings.Split(b, ", ") {
		in[s]--
	}
	for _, n := range in {
		if n != 0 {
			return false
		}
	}
	return true
}

// fewest is less than the states of any scenario: an exploration with fewer explores nothing.
const fewest = 50

// agrees holds an exploration that found nothing to what is documented of its scenario, 0 where
// nothing is. A space that fits in the limit is explored to its end, and has the documented size.
func agrees(r report, documented, limit int) error {
	switch {
	case r.States < min(fewest, limit) || r.Schedules == 0:
		return fmt.Errorf("only %d states and %d schedules", r.States, r.Schedules)
	case !r.Complete && r.States < limit:
		return fmt.Errorf("it stopped after %d states of %d, and is not complete", r.States, limit)
	case r.Complete && documented != 0 && r.States != documented:
		return fmt.Errorf("it has %d states, and docs/CRASH.md says %d", r.States, documented)
	case !r.Complete && documented != 0 && documented < limit:
		return fmt.Errorf("it has more than %d states, and docs/CRASH.md says %d", limit, documented)
	}
	return nil
}

// TestAgreesNoticesWhatDiffers: each way in which an exploration may differ from what is
// documented is told.
func TestAgreesNoticesWhatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		report
		documented int
		differs    bool
	}{
		"as documented":               {report{States: 700, Schedules: 9, Complete: true}, 700, false},
		"not documented":              {report{States: 700, Schedules: 9, Complete: true}, 0, false},
		"cut off, as documented":      {report{States: 3000, Schedules: 9}, 0, false},
		"cut off below its size":      {report{States: 3000, Schedules: 9}, 8000, false},
		"fewer than documented":       {report{States: 699, Schedules: 9, Complete: true}, 700, true},
		"more than documented":        {report{States: 701, Schedules: 9, Complete: true}, 700, true},
		"cut off beyond its size":     {report{States: 3000, Schedules: 9}, 700, true},
		"stopped before the limit":    {report{States: 2000, Schedules: 9}, 0, true},
		"nothing was explored":        {report{States: 1, Schedules: 1, Complete: true}, 0, true},
		"no order came to its end":    {report{States: 700, Complete: true}, 700, true},
		"nothing, where it says none": {report{Complete: true}, 0, true},
	} {
		if err := agrees(c.report, c.documented, 3000); (err != nil) != c.differs {
			t.Errorf("%s: %v", name, err)
		}
	}
}
