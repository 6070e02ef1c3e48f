package daemon

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/serial"
)

var updateMetrics = flag.Bool("update-metrics", false, "write the list of metrics in docs/TELEMETRY.md anew")

// family is a metric as the registry describes it.
type family struct{ name, kind, labels, help string }

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// families are all metrics of tgad's, in the order in which the code has them.
func families(t *testing.T, m *metrics) (all []family) {
	t.Helper()
	kinds := map[string]string{}
	for _, s := range stats {
		name := described.FindStringSubmatch(s.desc.String())[1]
		kinds[name] = map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge"}[s.kind]
	}
	for _, s := range labelledStats {
		name := described.FindStringSubmatch(s.desc.String())[1]
		kinds[name] = map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge"}[s.kind]
	}
	for _, c := range m.own {
		ch := make(chan *prometheus.Desc, 1000)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			f := described.FindStringSubmatch(d.String())
			if f == nil {
				t.Fatalf("%s is not understood", d)
			}
			kind := kinds[f[1]]
			switch c.(type) {
			case *prometheus.CounterVec:
				kind = "counter"
			case prometheus.Histogram, *prometheus.HistogramVec:
				kind = "histogram"
			}
			all = append(all, family{f[1], kind, f[3], f[2]})
		}
	}
	return all
}

// unit is what a value of a metric counts, by the suffix of its name.
func (f family) unit() string {
	switch name := strings.TrimSuffix(f.name, "_total"); {
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	case name == "tgad_ready" || strings.HasPrefix(name, "tgad_store_frozen") || strings.HasPrefix(name, "tgad_store_quarantined"):
		return "0 or 1"
	}
	return "number"
}

// TestMetricsAreDocumented: docs/TELEMETRY.md lists every metric of the registry and no other.
func TestMetricsAreDocumented(t *testing.T) {
	d := &Daemon{events: newEvents(), timings: newTimings()}
	var b strings.Builder
	b.WriteString("| metric | type | unit | labels | what |\n|---|---|---|---|---|\n")
	for _, f := range families(t, newMetrics(d)) {
		if f.kind == "" {
			t.Errorf("%s has no type", f.name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.name, f.kind, f.unit(), strings.ReplaceAll(f.labels, ",", ", "), f.help)
	}
	const file, begin, end = "../../docs/TELEMETRY.md", "### Every metric\n\n", "\n### "
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	table, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no table between %q and %q", file, begin, end)
	case *updateMetrics:
		if err := os.WriteFile(file, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case table != b.String():
		t.Errorf("%s does not list the metrics as they are: go test ./internal/daemon -run TestMetricsAreDocumented -update-metrics", file)
	}
}

// TestExamplesNameMetricsThatAreThere: every metric of the alert rules and of the dashboard, the parts of a
// histogram among them.
func TestExamplesNameMetricsThatAreThere(t *testing.T) {
	known := map[string]bool{}
	for _, f := range families(t, newMetrics(&Daemon{events: newEvents(), timings: newTimings()})) {
		known[f.name] = true
		if f.kind == "histogram" {
			known[f.name+"_bucket"], known[f.name+"_count"], known[f.name+"_sum"] = true, true, true
		}
	}
	const dir = "../../examples/telemetry/"
	for _, file := range []string{"alerts.yml", "alerts_test.yml", "grafana/dashboard.json"} {
		raw, err := os.ReadFile(dir + file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\btgad_[a-z_]+`).FindAllString(string(raw), -1)
		if len(names) < 4 {
			t.Errorf("%s names %q", file, names)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s names %s, which is no metric", file, name)
			}
		}
	}
}

// TestDashboardIsWhole: what Grafana needs of it, with a panel for each place and no two in one.
func TestDashboardIsWhole(t *testing.T) {
	raw, err := os.ReadFile("../../examples/telemetry/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	type panel struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, RefID string }
	}
	var d struct {
		UID           string
		Title         string
		SchemaVersion int
		Panels        []panel
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || len(d.Panels) == 0 {
		t.Errorf("uid %q, title %q, schema %d, %d panels", d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || (p.Type != "row") != (len(p.Targets) > 0) {
			t.Errorf("panel %+v", p)
		}
		ids[p.ID] = true
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.Expr == "" || q.RefID == "" || refs[q.RefID] {
				t.Errorf("%s: target %+v", p.Title, q)
			}
			refs[q.RefID] = true
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestRulesPassPromtool: the rules are valid and fire when they are to, and each expression of the
// dashboard is one of PromQL.
func TestRulesPassPromtool(t *testing.T) {
	promtool := serial.Program(t, "promtool")
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../../examples/telemetry"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
	run("check", "rules", "alerts.yml")
	run("test", "rules", "alerts_test.yml")
	raw, err := os.ReadFile("../../examples/telemetry/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var rules strings.Builder
	rules.WriteString("groups: [{name: dashboard, rules: [")
	for i, m := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(string(raw), -1) {
		fmt.Fprintf(&rules, "{record: 'r%d', expr: %s},", i, strings.ReplaceAll(m[1], "$__rate_interval", "5m"))
	}
	rules.WriteString("]}]")
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run("check", "rules", "--lint=none", file)
}

// TestScraperComesThroughAForwarder: as examples/telemetry/prometheus.yml has it, by a proxy that only
// copies bytes to the socket.
func TestScraperComesThroughAForwarder(t *testing.T) {
	b := start(t, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer c.Close()
				to, err := net.Dial("unix", b.socket)
				if err != nil {
					t.Error(err)
					return
				}
				done.Go(func() { _, _ = io.Copy(to, c); to.Close() }) // the scraper is done, or the daemon
				_, _ = io.Copy(c, to)
			})
		}
	})
	scraper := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()}), DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: scraper}).Get("http://tgad/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "tgad_ready 1") {
		t.Errorf("%s, %v: %.200s", resp.Status, err, text)
	}
	l.Close()
	done.Wait()
}
