package lint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// grouped writes a number with a comma between groups of three digits.
func grouped(n int64, mark string) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + mark + s[i:]
	}
	return s
}

// TestFiguresAreThoseOfTheRuns adds up the committed runs. README, CRASH and the view of the store must
// state these sums. The table of README must be the one of PERFORMANCE, which names its run.
func TestFiguresAreThoseOfTheRuns(t *testing.T) {
	text := func(name string) string {
		raw, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	readme, crash, performance, view := text("README.md"), text("docs/CRASH.md"), text("docs/PERFORMANCE.md"), text("internal/ui/tried.go")
	files, err := filepath.Glob("../../bench/results/crash/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	sums := map[string]int64{}
	for _, name := range files {
		var r struct{ Counts map[string]int64 }
		if err := json.Unmarshal([]byte(text(strings.TrimPrefix(name, "../../"))), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for what, n := range r.Counts {
			sums[what] += n
		}
	}
	for what, inReadme := range map[string]bool{
		"recoveries": true, "double_crashes": true, "triple_crashes": false, "indexes_lost": false, "injections": false,
		"sigkills": true, "power_cuts": true, "block_log_images": true, "rapid_sequences": true, "corruptions": true,
		"histories": false, "bad_inputs": true, "licensed_resends": false,
	} {
		if n := grouped(sums[what], " "); sums[what] == 0 || !strings.Contains(crash, "| "+n+" |") {
			t.Errorf("docs/CRASH.md does not say that the runs reached %s %s", n, what)
		}
		if n := grouped(sums[what], ","); inReadme && !strings.Contains(readme, n) {
			t.Errorf("README.md does not say that the runs reached %s %s", n, what)
		}
	}
	for _, what := range []string{"recoveries", "double_crashes", "sigkills", "power_cuts", "corruptions"} {
		if n := grouped(sums[what], ","); !strings.Contains(view, `"`+n+`"`) {
			t.Errorf("internal/ui/tried.go does not say that the runs reached %s %s", n, what)
		}
	}
	for _, none := range []string{"redispatches", "double_effects", "acked_losses", "corruptions_silent"} {
		if sums[none] != 0 {
			t.Errorf("the runs have %d %s", sums[none], none)
		}
	}
	_, table, _ := strings.Cut(performance, "<!-- README table: begin -->\n")
	table, _, found := strings.Cut(table, "<!-- README table: end -->")
	if !found || !strings.Contains(readme, table) {
		t.Error("the table of README.md is not that of docs/PERFORMANCE.md")
	}
}
