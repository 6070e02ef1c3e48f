//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tgad/tgad/internal/agent/otlptest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestGatewayCountsWhatPassesIt: each request of a client is counted once, with its server or with the
// reason why it went nowhere. No label has a client's own words.
func TestGatewayCountsWhatPassesIt(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-cli-gw-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conf := "allow_all = true\n[[server]]\nid = \"s\"\ntype = \"mcp-command\"\ncommand = [\"/bin/sh\", \"server\"]\ndir = \".\"\ndeny = [\"secret\"]\n" +
		"[gateway]\nmetrics = \"unix:metrics.sock\"\n" +
		"[[gateway.identity]]\nname = \"ann\"\nkey_sha256 = \"" + strings.Repeat("ab", 32) + "\"\nlimit = [{ tool = \"s__charge\", calls = 2, per = \"1h\" }]\n"
	for name, text := range map[string]string{"server": scripted, "gateway.toml": conf} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TGAD_DATA", "")
	t.Setenv("TGAD_SOCKET", "")
	collector := otlptest.Start(false)
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	client, in := io.Pipe()
	out, server := io.Pipe()
	socket := filepath.Join(dir, "none")
	var errs bytes.Buffer
	c := Gateway(&Streams{In: client, Out: server, Err: &errs}, &socket)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"--config", filepath.Join(dir, "gateway.toml"), "--data", filepath.Join(dir, "log"), "--identity", "ann"})
	done := make(chan error, 1)
	go func() {
		err := c.ExecuteContext(t.Context())
		_ = server.CloseWithError(io.EOF)
		done <- err
	}()
	answers := bufio.NewReader(out)
	ask := func(id int, method, params string) string {
		t.Helper()
		if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := answers.ReadString('\n')
			if err != nil {
				t.Fatalf("%v\n%s", err, errs.String())
			}
			if strings.Contains(line, fmt.Sprintf(`"id":%d`, id)) {
				return line
			}
		}
	}
	ask(0, "initialize", `{}`)
	for i, call := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"s__charge","arguments":{"n":1}}`, `"text":"done"`},
		{"tools/call", `{"name":"s__charge","arguments":{"n":2}}`, `"text":"done"`},
		{"tools/call", `{"name":"s__charge","arguments":{"n":3}}`, "RATE_LIMITED"},
		{"tools/call", `{"name":"s__secret","arguments":{}}`, "POLICY_VIOLATION"},
		{"tools/call", `{"name":"of-a-client","arguments":{}}`, "NOT_FOUND"},
		{"of-a-client", `{}`, "NOT_FOUND"},
		{"tools/call", `{}`, "NOT_FOUND"},
		{"completion/complete", `{}`, "VALIDATION_ERROR"},
		{"tools/list", `{}`, "s__charge"},
	} {
		if got := ask(i+1, call.method, call.params); !strings.Contains(got, call.want) {
			t.Errorf("%s %s: %s lacks %s", call.method, call.params, got, call.want)
		}
	}
	if _, err := fmt.Fprintln(in, "[]"); err != nil { // an array is refused
		t.Fatal(err)
	}
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "error") {
		t.Fatalf("%s %v", line, err)
	}
	got := scrape(t, filepath.Join(dir, "metrics.sock"))
	for _, want := range []string{
		`tgad_gateway_requests_total{end="result",identity="ann",method="tools/call",server="s"} 2`,
		`tgad_gateway_request_seconds_count{method="tools/call",server="s"} 2`,
		`tgad_gateway_refused_total{identity="ann",why="quota"} 1`,
		`tgad_gateway_refused_total{identity="ann",why="forbidden"} 1`,
		`tgad_gateway_refused_total{identity="ann",why="unknown"} 3`,
		`tgad_gateway_refused_total{identity="ann",why="invalid"} 2`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if n := strings.Count(got, "\ntgad_gateway_r"); strings.Contains(got, "of-a-client") || n != 1+11+2+4 {
		t.Errorf("%d lines of the gateway's:\n%s", n, got)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", filepath.Join(dir, "metrics.sock")); err == nil {
		t.Error("the metrics are there when the gateway is over")
	}
	// A collector has the calls, also the one that the quota refused, and the metrics of the gateway and of
	// the daemon in its process.
	total := 0.0
	for _, p := range collector.Points("tgad_gateway_requests_total") {
		if p.Attr["end"] == "result" && p.Attr["method"] == "tools/call" {
			total += p.Value
		}
	}
	if n := len(collector.Spans("tgad.mcp")); n != 3 || total != 2 || len(collector.Points("tgad_calls_reserved_total")) != 1 || len(collector.Bad()) != 0 {
		t.Errorf("the collector has %d spans of calls, %v requests, unreadable %v", n, total, collector.Bad())
	}
}

// scrape gets the metrics from a socket.
func scrape(t *testing.T, socket string) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	resp, err := c.Get("http://gateway/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", resp.StatusCode, raw, err)
	}
	return string(raw)
}

// TestMetricsOfTheGatewayAreDocumented: docs/TELEMETRY.md has each metric with its labels and its meaning.
func TestMetricsOfTheGatewayAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/TELEMETRY.md")
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)".*variableLabels: \{(.*)\}\}$`)
	for _, c := range newGatewayMetrics().own {
		ch := make(chan *prometheus.Desc, 1)
		c.Describe(ch)
		d := form.FindStringSubmatch((<-ch).String())
		if d == nil {
			t.Fatal("a description that is not understood")
		}
		kind, unit := "counter", "number"
		if _, ok := c.(prometheus.Gauge); ok {
			kind = "gauge"
			if strings.HasSuffix(d[1], "_seconds") {
				unit = "seconds"
			}
		}
		if _, ok := c.(*prometheus.HistogramVec); ok {
			kind, unit = "histogram", "seconds"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", d[1], kind, unit, strings.ReplaceAll(d[3], ",", ", "), d[2]); !strings.Contains(string(page), row) {
			t.Errorf("docs/TELEMETRY.md lacks\n%s", row)
		}
	}
}

// TestMetricsOfTheGatewayAreOnThisMachine: an address that other machines can reach is refused, and a
// listener that is told to end ends without an error.
func TestMetricsOfTheGatewayAreOnThisMachine(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	stop, err := newGatewayMetrics().listen("unix:" + socket)
	if err != nil {
		t.Fatal(err)
	}
	scrape(t, socket)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := newGatewayMetrics().listen("0.0.0.0:0"); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("an address of every machine: %v", err)
	}
	for _, c := range []struct {
		host string
		unix bool
		want int
	}{{"127.0.0.1:9", false, 200}, {"localhost:9", false, 200}, {"stranger.example:9", false, 403}, {"any", true, 200}} {
		answer, ask := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
		ask.Host = c.host
		if newGatewayMetrics().handler(c.unix).ServeHTTP(answer, ask); answer.Code != c.want {
			t.Errorf("host %q, unix %v: status %d", c.host, c.unix, answer.Code)
		}
	}
}
