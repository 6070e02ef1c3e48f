package killtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/COMPARE.md and docs/WHY.md anew, from the file that the first names")

// TestTablesOfThePage: docs/COMPARE.md has the tables of the committed run that it names, and its sentences
// about the run are true. docs/WHY.md has a part of the same run.
func TestTablesOfThePage(t *testing.T) {
	const name = "../../docs/COMPARE.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile(`(?s)(<!-- tables of (bench/results/engines-\w+\.jsonl) -->\n).*(<!-- end -->)`)
	results := resultsOf(t, page, place)
	for _, res := range results {
		switch ours := strings.HasPrefix(res.Engine, "tgad"); {
		case ours && res.All.Faults() > 0, res.World == Keyed && res.All.Faults() > 0:
			t.Errorf("the page says that there are no faults: %v", res.Err())
		case res.All.Became[Lost.String()]+res.All.Became[False.String()] > 0:
			t.Errorf("the page says that no engine lost a call or spoke falsely: %v", res.Err())
		}
	}
	pageHas(t, name, place, "${1}"+markdown(Rows(results))+markdown(PointRows(results))+"\n${3}")
	pageHas(t, "../../docs/WHY.md", regexp.MustCompile(`(?s)(<!-- short table of the run that COMPARE.md names -->\n).*(<!-- end -->)`), "${1}"+markdown(shortRows(results))+"\n${2}")
}

// TestTableOfSteps: docs/COMPARE.md has the table of engines whose steps charge through tgad, each beside
// the same engine alone. With tgad nothing is doubled and no false answer is given; alone, each engine
// doubled something in the same run.
func TestTableOfSteps(t *testing.T) {
	const name = "../../docs/COMPARE.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile(`(?s)(<!-- steps of (bench/results/steps-\w+\.jsonl) -->\n).*?(<!-- end of steps -->)`)
	results := resultsOf(t, page, place)
	for _, res := range results {
		through := strings.HasSuffix(res.Engine, ", the step through tgad")
		switch {
		case through && res.All.Faults() > 0:
			t.Errorf("the page says that a step through tgad has no faults: %v", res.Err())
		case !through && res.World == Plain && res.All.Became[Doubled.String()] == 0:
			t.Errorf("the page says that %s doubles calls", res.Engine)
		}
	}
	pageHas(t, name, place, "${1}"+markdown(Rows(results))+"\n${3}")
}

// resultsOf reads the file of a run that a page names. All its results must be of one commit.
func resultsOf(t *testing.T, page []byte, place *regexp.Regexp) []*Result {
	t.Helper()
	return linesOf(t, page, place, func(res *Result) string { return res.Commit })
}

// linesOf reads the objects of a file that a page names.
func linesOf[T any](t *testing.T, page []byte, place *regexp.Regexp, commit func(*T) string) (results []*T) {
	t.Helper()
	m := place.FindSubmatch(page)
	if m == nil {
		t.Fatal("the page names no file of a run")
	}
	raw, err := os.ReadFile("../../" + string(m[2]))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		res := new(T)
		if err := json.Unmarshal(line, res); err != nil {
			t.Fatal(err)
		}
		if results = append(results, res); !strings.HasSuffix(string(m[2]), "-"+commit(res)+".jsonl") {
			t.Errorf("%s has a run of commit %s", m[2], commit(res))
		}
	}
	return results
}

// pageHas expects a table at its place in a page, or writes it there.
func pageHas(t *testing.T, name string, place *regexp.Regexp, table string) {
	t.Helper()
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !place.Match(page) {
		t.Fatalf("%s has no place for the table", name)
	}
	want := place.ReplaceAllString(string(page), table)
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("%s does not have the table of the run: go test ./internal/killtest -run TestTablesOfThePage -update", name)
	}
}

// shortRows are the orders of each engine that were paid twice, and those that are in doubt, in both worlds.
func shortRows(results []*Result) [][]string {
	rows := [][]string{{"engine", "orders", "paid twice, without keys", "in doubt, without keys", "paid twice, with keys", "in doubt, with keys"}}
	of := map[string]map[string]*Counts{}
	var engines []string
	for _, res := range results {
		if of[res.Engine] == nil {
			of[res.Engine] = map[string]*Counts{}
			engines = append(engines, res.Engine)
		}
		of[res.Engine][res.World] = res.All
	}
	for _, engine := range engines {
		row := []string{engine, fmt.Sprint(of[engine][Plain].Calls)}
		for _, world := range []string{Plain, Keyed} {
			row = append(row, fmt.Sprint(of[engine][world].Became[Doubled.String()]), fmt.Sprint(of[engine][world].Became[InDoubt.String()]))
		}
		rows = append(rows, row)
	}
	return rows
}

// markdown returns these rows as a table, with the header first.
func markdown(rows [][]string) string {
	var b strings.Builder
	b.WriteByte('\n') // between the tables
	for i, cells := range rows {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---|---|" + strings.Repeat("---:|", len(cells)-2) + "\n")
		}
	}
	return b.String()
}
