package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/bench/internal/measure"
)

// TestJSONLines runs a few cases briefly and reads the output as a program would: one object in each line,
// with exactly the members that docs/PERFORMANCE.md names, every figure, and the limit's ratio to itself.
// The first line says what was measured. The report that is made from the lines equals the report of the
// run.
func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	page := filepath.Join(t.TempDir(), "report.html")
	o := options{json: true, short: true, dir: t.TempDir(), html: page, rounds: 2, slice: 5 * time.Millisecond, history: 128, openTraces: 4,
		only: "^(append|fused|effect|call|open|ledger_hit_cold|recover|replay|verify|log_append|index_apply|rebuild|seal|open_after_kill|hostile_tail|append_signed|receipt|evidence_file|evidence_verify|evidence_checkpoint)/1/"}.withDefaults()
	if err := run(o, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	of, lines, _ := strings.Cut(out.String(), "\n")
	var first struct{ About about }
	if err := json.Unmarshal([]byte(of), &first); err != nil || first.About.Machine == "" || first.About.Disk == "" || first.About.Commit == "" || first.About.Rounds != 2 || len(first.About.Facts) == 0 {
		t.Errorf("the first line is %s, %v", of, err)
	}
	sameAgain(t, page, out.String())
	want := strings.Fields("case writers bytes p50_us p99_us p999_us per_sec fsyncs_per_op bytes_written_per_op allocs_per_op cpu_us_per_op p50_ratio throughput_ratio")
	slices.Sort(want)
	seen := map[string]int{}
	for line := range strings.Lines(lines) {
		var members map[string]any
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var got []string
		for name := range members {
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s has members %v", line, got)
		}
		var l measure.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		seen[l.Case]++
		if l.P50 <= 0 || l.P99 < l.P50 || l.P999 < l.P99 || l.PerSec <= 0 {
			t.Errorf("%s: figures are missing", line)
		}
		if l.Case == measure.LimitCase && (l.P50Ratio != 1 || l.ThroughputRatio != 1) {
			t.Errorf("%s: the limit is not 1 × itself", line)
		}
		// A log that becomes full during the run adds syncs of its own, so the figure can be higher.
		if least := map[string]float64{"call": 2, "append": 1, "log_append": 1}[l.Case]; l.Syncs < least || least > 0 && l.Syncs > 1.5*least {
			t.Errorf("%s: alone, an append is one sync and a call is two", line)
		}
	}
	for _, name := range strings.Fields("limit append fused effect call ledger_hit_cold recover open verify replay sha256 log_append index_apply rebuild seal open_after_kill hostile_tail append_signed receipt evidence_file evidence_verify evidence_checkpoint") {
		if seen[name] == 0 {
			t.Errorf("no line for %s in\n%s", name, out.String())
		}
	}
}

// TestSocketIsHeldAgainstTheProcess: for each exchange the call over the socket is measured beside the call
// without it, and takes more allocations.
func TestSocketIsHeldAgainstTheProcess(t *testing.T) {
	tool, err := newToolServer()
	if err != nil {
		t.Fatal(err)
	}
	defer tool.srv.Close()
	s, err := serve(filepath.Join(t.TempDir(), "daemon"), tool.url, 1<<10, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	facts, err := s.added(1, 4)
	if err != nil || len(facts) != 3 {
		t.Fatalf("%q, %v", facts, err)
	}
	for i, name := range []string{"call", "begin", "finish"} {
		if !strings.Contains(facts[i], name) || !regexp.MustCompile(`\+[1-9]\d*\.\d allocations`).MatchString(facts[i]) {
			t.Errorf("%s: %s", name, facts[i])
		}
	}
}

// TestSteadyStoreIsArchivedAndSendsOnce: a store that is in service for a moment archives its finished
// traces, writes its lines, and sends none of the calls that are repeated in the end.
func TestSteadyStoreIsArchivedAndSendsOnce(t *testing.T) {
	var out bytes.Buffer
	o := options{steady: 1500 * time.Millisecond, pause: 20 * time.Millisecond, keep: 200 * time.Millisecond, line: 300 * time.Millisecond}
	if err := runSteady(t.TempDir(), o, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := lines[len(lines)-1]
	var calls, sent, traces, archived, again, sentAgain int
	var took string
	if _, err := fmt.Sscanf(last, "%d calls, %d sent; checked: %d traces, %d archived, 0 problems; opened again in %s %d calls made again: %d sent",
		&calls, &sent, &traces, &archived, &took, &again, &sentAgain); err != nil {
		t.Fatalf("%q: %v", last, err)
	}
	if calls < steadyCallers || sent != calls || traces != calls || archived == 0 || again == 0 || sentAgain != 0 {
		t.Errorf("%s", last)
	}
	if len(lines) < 4 {
		t.Errorf("%d lines for 1.5 s, one every 0.3 s", len(lines))
	}
}
