package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tgad/tgad/bench/internal/measure"
)

// sameAgain checks that the report which a run has written equals the one that is made from the lines which
// the run has printed.
func sameAgain(t *testing.T, page, printed string) {
	t.Helper()
	dir := t.TempDir()
	kept, again := filepath.Join(dir, "kept"), filepath.Join(dir, "again.html")
	if err := os.WriteFile(kept, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(options{from: kept, html: again}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Errorf("the report of a run is\n%s\nand of what it printed\n%s", first, second)
	}
}

// TestReportsOfCommittedRuns: each file in bench/results that bench has printed gives its report, with its
// commit, a row for each of its lines, and the plots.
func TestReportsOfCommittedRuns(t *testing.T) {
	names := []string{"results/soak-10m.txt", "results/soak-2h.txt"}
	for _, pattern := range []string{"results/bench-*.jsonl", "results/peers-*.jsonl"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		names = append(names, found...)
	}
	for _, name := range names {
		out := filepath.Join(t.TempDir(), "report.html")
		if err := run(options{from: name, html: out, svg: out + ".svg"}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		figures := 0
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, `{"case"`) || regexp.MustCompile(`^ +[0-9][0-9. ]+$`).MatchString(strings.TrimRight(line, "\n")) {
				figures++
			}
		}
		if got := bytes.Count(page, []byte("<tr><td")); got != figures || figures == 0 {
			t.Errorf("%s has %d lines, its report %d rows", name, figures, got)
		}
		if n := bytes.Count(page, []byte("<svg ")); n != 3 || bytes.Contains(page, []byte("NaN")) {
			t.Errorf("%s: %d plots", name, n)
		}
		if of := regexp.MustCompile(`-([0-9a-f]{7})\.`).FindStringSubmatch(name); of != nil && !bytes.Contains(page, []byte("<dt>commit</dt><dd>"+of[1]+"</dd>")) {
			t.Errorf("%s: the report does not say the commit", name)
		}
		if strings.Contains(name, "2h") && !bytes.Contains(page, []byte("418880 calls, 418880 sent")) {
			t.Errorf("%s: the report does not say what was checked", name)
		}
	}
}

// TestReportEscapesWhatAFileSays: a file of results is not trusted.
func TestReportEscapesWhatAFileSays(t *testing.T) {
	const bad = `</style><script>alert(1)</script>`
	m := measured{about: about{Commit: bad, Machine: bad, System: bad, Disk: bad, Slice: bad, Rounds: 1, Facts: []string{bad}}, lines: []measure.Line{{Case: bad, Writers: 1, Bytes: 1024, P50: 1, PerSec: 1, P50Ratio: 1, Note: bad}}}
	printed, err := m.json()
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		kept   string
		places int
	}{
		"json.jsonl": {string(printed), 12},
		"soak.txt":   {"machine   " + bad + "\nsecond  " + bad + "  p50 µs  p99 µs\n1 2 3 4\n" + bad, 3},
	} {
		kept, out := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), "report.html")
		if err := os.WriteFile(kept, []byte(of.kept), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(options{from: kept, html: out}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(page, []byte("&lt;script&gt;")); bytes.Contains(page, []byte("<script")) || got < of.places {
			t.Errorf("%s: %d of %d places as text\n%s", name, got, of.places, page)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "other JSON": `{"engine":"tgad"}`, "half": `{"case":"append","writers":1,"bytes":1024`, "other text": "hello  world\n1 2\n", "no figures": "second  p50 µs  p99 µs\n",
	} {
		kept := filepath.Join(t.TempDir(), "kept")
		if err := os.WriteFile(kept, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(options{from: kept, html: kept + ".html"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), kept) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(kept + ".html"); err == nil {
			t.Errorf("%s: there is a report", name)
		}
	}
}

// TestSoakHasItsReport: a soak writes a report from the lines that it prints.
func TestSoakHasItsReport(t *testing.T) {
	var out, progress bytes.Buffer
	o := options{soak: 500, dir: t.TempDir(), html: filepath.Join(t.TempDir(), "report.html")}
	if err := run(o, &out, &progress); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(o.html)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, []byte("<polyline")) || !bytes.Contains(page, []byte("<tr><td")) || bytes.Contains(page, []byte("the file does not say")) {
		t.Errorf("the report has no line, or does not say what it was measured on\n%s", page)
	}
}
