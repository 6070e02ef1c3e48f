package crashtest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestResultsAddUp: result files are read back and summed. A run that found something makes the sum an
// error.
func TestResultsAddUp(t *testing.T) {
	dir := t.TempDir()
	var names []string
	write := func(name string, r *Run) {
		t.Helper()
		res := NewResult(7)
		res.Ran("mem", time.Second, r)
		names = append(names, filepath.Join(dir, name))
		if err := res.Write(names[len(names)-1]); err != nil {
			t.Fatal(err)
		}
	}
	write("one", &Run{Counts: Counts{Recoveries: 40, PlantedBugs: 1, PlantedBugsKilled: 1}})
	write("two", &Run{Counts: Counts{Recoveries: 2}})
	var out strings.Builder
	if err := Sum(&out, names); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "recoveries                       42") {
		t.Errorf("the sum says\n%s", out.String())
	}
	for name, r := range map[string]*Run{
		"redispatched": {Counts: Counts{Redispatches: 1}},
		"survived":     {Counts: Counts{PlantedBugs: 1}},
		"silent":       {Counts: Counts{CorruptionsSilent: 1}},
		"found":        {found: []Violation{{Property: "S8", Detail: "for the test"}}},
	} {
		sound := names
		write(name, r)
		if err := Sum(&out, names); err == nil {
			t.Errorf("%s is no error of the sum", name)
		}
		names = sound
	}
}
