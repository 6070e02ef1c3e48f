package daemon

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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
