package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/killtest"
	"github.com/tgad/tgad/internal/report"
	"github.com/tgad/tgad/internal/serial"
)

// reportOf runs the verb.
func reportOf(t *testing.T, names ...string) (page string, code int, said string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "report.html")
	var stderr bytes.Buffer
	code = run(append([]string{"torture", "report", "-o", out}, names...), nil, os.Stderr, &stderr)
	raw, err := os.ReadFile(out)
	if err != nil && code == 0 {
		t.Fatal(err)
	}
	return string(raw), code, stderr.String()
}

func committed(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob("../../bench/results/" + pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	return names
}

// TestReportOfTheCommittedCrashes: the committed files give one report. It has the sum of each figure, a row
// for each run, tier and kind of fault, and the names of the planted bugs that were found.
func TestReportOfTheCommittedCrashes(t *testing.T) {
	names := committed(t, "crash/*.json")
	page, code, said := reportOf(t, names...)
	if code != 0 {
		t.Fatal(said)
	}
	total, tiers := &crashtest.Counts{}, map[string]bool{}
	for _, name := range names {
		res, err := crashtest.ReadResult(name)
		if err != nil {
			t.Fatal(err)
		}
		total.Add(res.Counts)
		for _, tier := range res.Tiers {
			tiers[tier.Name] = true
		}
		if !strings.Contains(page, fmt.Sprintf(`<td class="n">%d</td><td>%s</td>`, res.Seed, res.Commit)) || !strings.Contains(page, fmt.Sprintf("-seed %d -budget", res.Seed)) {
			t.Errorf("%s has no row, or cannot be repeated", name)
		}
	}
	total.Each(func(name string, n int64) {
		if !strings.Contains(page, "<tr><td>"+words(name)+`</td><td class="n">`+report.Grouped(n)+"</td></tr>") {
			t.Errorf("the report does not say that the runs reached %s %d", name, n)
		}
	})
	for tier := range tiers {
		if !strings.Contains(page, "<tr><td>"+tier+"</td>") {
			t.Errorf("tier %s has no row", tier)
		}
	}
	if n := strings.Count(page, "<td>yes</td>"); n < 40 || strings.Contains(page, "<td>NO</td>") || strings.Contains(page, `class="problem"`) {
		t.Errorf("%d planted bugs were found", n)
	}
	if n := strings.Count(page, "<svg "); n != 3 {
		t.Errorf("%d plots", n)
	}
}

// TestReportOfTheCommittedKills: each engine and world has a row of verdicts, its faults by point, and a
// place in the plot.
func TestReportOfTheCommittedKills(t *testing.T) {
	name := committed(t, "engines-*.jsonl")[0]
	page, code, said := reportOf(t, name)
	if code != 0 {
		t.Fatal(said)
	}
	var all results
	if err := all.read(name); err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(page, ` class="n"`, "")
	for _, rows := range [][][]string{killtest.Rows(all.kill), killtest.PointRows(all.kill)} {
		for _, row := range rows[1:] {
			if !strings.Contains(plain, "<tr><td>"+strings.Join(row, "</td><td>")+"</td></tr>") {
				t.Errorf("no row %v", row)
			}
		}
	}
	if n := strings.Count(page, "<path "); n < 3*len(all.kill) {
		t.Errorf("%d figures in the plot, of %d engines and worlds", n, len(all.kill))
	}
	if both, code, said := reportOf(t, name, committed(t, "crash/*.json")[0]); code != 0 || strings.Count(both, "<svg ") != 4 {
		t.Errorf("of both: %d %s", code, said)
	}
}

// TestReportOfTheCommittedSpeeds: each engine and number of callers has a row, and each engine has a line in
// the plot.
func TestReportOfTheCommittedSpeeds(t *testing.T) {
	name := committed(t, "speed-*.jsonl")[0]
	page, code, said := reportOf(t, name)
	if code != 0 {
		t.Fatal(said)
	}
	var all results
	if err := all.read(name); err != nil {
		t.Fatal(err)
	}
	plain, engines := strings.ReplaceAll(page, ` class="n"`, ""), map[string]bool{}
	for i, row := range killtest.SpeedRows(all.speed)[1:] {
		engines[all.speed[i].Engine] = true
		if !strings.Contains(plain, "<tr><td>"+strings.Join(row, "</td><td>")+"</td></tr>") {
			t.Errorf("no row %v", row)
		}
	}
	if n := strings.Count(page, `<polyline `); n != 2*len(engines) { // a line, and its place in the legend
		t.Errorf("%d lines of %d engines", n, len(engines))
	}
}

// hostileResults have markup in each field that takes words.
func hostileResults(bad string) []any {
	counts := &crashtest.Counts{PlantedBugs: 1, DoubleEffects: 1}
	points := map[killtest.Point]*killtest.Counts{}
	for _, p := range killtest.Points() {
		points[p] = &killtest.Counts{Calls: 1, Became: map[string]int{"doubled": 1}}
	}
	return []any{
		&crashtest.Result{Commit: bad, Machine: bad, Began: time.Unix(0, 0), Counts: counts, Found: []crashtest.Violation{{Property: bad, Key: bad, Detail: bad, Where: bad}},
			Tiers: []crashtest.TierTime{{Name: bad, Said: []string{bad, "planted " + bad + " SURVIVED 1.0 s (" + bad + ")"}}, {Name: "planted", Said: []string{"planted a<b>c    killed after   0.1 s by " + bad}}}},
		&killtest.Result{Engine: "tgad" + bad, World: bad, Commit: bad, Machine: bad, All: points[killtest.None], Points: points},
		&killtest.Speed{Engine: bad, Callers: 1, PerSecond: 1, P50: 1, P99: 1, Commit: bad, Machine: bad},
	}
}

// TestReportEscapesResults: a result quotes an engine, a tool or a file. None of its text is markup or a
// command.
func TestReportEscapesResults(t *testing.T) {
	const bad = "</style><script>alert(1)</script>; rm -rf /" + "\u202e"
	kept := filepath.Join(t.TempDir(), "kept")
	var b bytes.Buffer
	for _, res := range hostileResults(bad) {
		if err := json.NewEncoder(&b).Encode(res); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(kept, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	page, code, said := reportOf(t, kept)
	if code != 0 {
		t.Fatal(said)
	}
	for _, not := range []string{"<script", "<b>", "\u202e", "checkout </", "checkout &lt;", "-tiers &lt;"} {
		if strings.Contains(page, not) {
			t.Errorf("the report has %q", not)
		}
	}
	for what, want := range map[string]string{
		"what must be zero": "double_effects 1", "a violation": `<div class="problem">&lt;/style&gt;`, "an engine's fault": "1 doubled", "a bug": "<td>a&lt;b&gt;c</td>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is not in the report", what)
		}
	}
}

// TestReportRefusesOtherFiles: a file that is not a result is named, and no partial report is written.
func TestReportRefusesOtherFiles(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "other": `{"a":1}`, "text": "hello", "half": `{"counts":{`, "a figure that is none": `{"counts":{"recoveries":"many"}}`,
		"without points": `{"engine":"x","all":{"calls":1},"points":{}}`, "null": "null", "a list": "[]", "second": `{"counts":{}} {"a":1}`,
	} {
		kept := filepath.Join(t.TempDir(), "kept")
		if err := os.WriteFile(kept, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if page, code, said := reportOf(t, kept); code == 0 || page != "" || !strings.Contains(said, kept) {
			t.Errorf("%s: %d %q %q", name, code, said, page)
		}
	}
	var stderr bytes.Buffer
	if code := run([]string{"torture", "--budget", "1s", "--html", filepath.Join(t.TempDir(), "none", "x.html")}, nil, os.Stderr, &stderr); code != 2 || !strings.Contains(stderr.String(), "its directory is not there") {
		t.Errorf("a report that has no place is found at the end of a run: %d %s", code, stderr.String())
	}
}

// TestReportSumsTiers: figures that only one tier has are kept in a result, and summed over runs.
func TestReportSumsTiers(t *testing.T) {
	var names []string
	for i := range 2 {
		res := crashtest.NewResult(1)
		for _, tier := range []string{"mem", "rapid"} {
			r := &crashtest.Run{}
			r.Counts.Recoveries = int64(100*i + 10*len(tier))
			res.Ran(tier, time.Second, r)
		}
		names = append(names, filepath.Join(t.TempDir(), "kept"))
		if err := res.Write(names[i]); err != nil {
			t.Fatal(err)
		}
	}
	page, code, said := reportOf(t, names...)
	if code != 0 {
		t.Fatal(said)
	}
	for tier, recoveries := range map[string]int{"mem": 160, "rapid": 200} {
		if want := fmt.Sprintf(`<tr><td>%s</td><td class="n">2</td><td class="n">2</td><td class="n">2</td><td class="n">0</td><td class="n">%d</td>`, tier, recoveries); !strings.Contains(page, want) {
			t.Errorf("the row of %s is not that of both runs", tier)
		}
	}
}

// TestReportsInABrowser: a browser shows the committed reports without an error, asks no other host, and
// executes no text of a result. The reports are accessible.
func TestReportsInABrowser(t *testing.T) {
	serial.Long(t)
	program, b := browser.Axe(t), browser.New(t)
	var hostile bytes.Buffer
	for _, res := range hostileResults("</style></title><script>document.title='hit'</script><img src=x onerror=document.title='hit'>") {
		if err := json.NewEncoder(&hostile).Encode(res); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(kept, hostile.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{committed(t, "crash/*.json"), committed(t, "engines-*.jsonl"), committed(t, "speed-*.jsonl"), {kept}} {
		page, code, said := reportOf(t, names...)
		if code != 0 {
			t.Fatal(said)
		}
		at := filepath.Join(t.TempDir(), "report.html")
		if err := os.WriteFile(at, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		b.Accessible(program, "file://"+at)
		if title := b.Value(`document.title`); title == "hit" || b.Value(`document.querySelectorAll("svg.plot path").length`).(float64) < 4 {
			t.Errorf("the title is %v, or there is no plot", title)
		}
		if b.Value(`document.documentElement.scrollWidth > document.documentElement.clientWidth`) == true {
			t.Error("the page scrolls sideways")
		}
		if n := b.Value(`performance.getEntriesByType("resource").length`); n != 0.0 {
			t.Errorf("it asked for %v things", n)
		}
	}
	if len(b.Complaints) > 0 {
		t.Errorf("the browser complains: %.500s", b.Complaints)
	}
}
