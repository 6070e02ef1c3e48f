package killtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/COMPARE.md anew, from the file that it names")

// TestTablesOfThePage: docs/COMPARE.md has the tables of the committed run that it names, and says of it what
// is so.
func TestTablesOfThePage(t *testing.T) {
	const name = "../../docs/COMPARE.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile(`(?s)(<!-- tables of (bench/results/engines-\w+\.jsonl) -->\n).*(<!-- end -->)`)
	m := place.FindSubmatch(page)
	if m == nil {
		t.Fatalf("%s names no file of a run", name)
	}
	raw, err := os.ReadFile("../../" + string(m[2]))
	if err != nil {
		t.Fatal(err)
	}
	var results []*Result
	for line := range bytes.Lines(raw) {
		res := &Result{}
		if err := json.Unmarshal(line, res); err != nil {
			t.Fatal(err)
		}
		results = append(results, res)
		switch ours := strings.HasPrefix(res.Engine, "tgad"); {
		case !strings.Contains(string(m[2]), "engines-"+res.Commit+".jsonl"):
			t.Errorf("%s has a run of commit %s", m[2], res.Commit)
		case ours && res.All.Faults() > 0, res.World == Keyed && res.All.Faults() > 0:
			t.Errorf("the page says that there are no faults: %v", res.Err())
		case res.All.Became[Lost.String()]+res.All.Became[False.String()] > 0:
			t.Errorf("the page says that no engine lost a call or spoke falsely: %v", res.Err())
		}
	}
	want := place.ReplaceAllString(string(page), "${1}"+markdown(Rows(results))+markdown(PointRows(results))+"\n${3}")
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("%s does not have the tables of %s: go test ./internal/killtest -run TestTablesOfThePage -update", name, m[2])
	}
}

// markdown is a table of these rows, the header first.
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
