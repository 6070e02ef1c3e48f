package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/payments/journal"
)

// TestObservingGatewayOfThePage: a gateway that only observes is killed with SIGKILL while a call runs. The
// next one sends nothing by itself, and a call that a client repeats runs. The command of docs/MCP.md says
// what governing would have done: while the gateway runs, after it was killed, and after its end.
func TestObservingGatewayOfThePage(t *testing.T) {
	const line = "tgad gateway observed --config gateway.toml --data observed"
	page, err := os.ReadFile("../../docs/MCP.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n"+line+"\n```") {
		t.Errorf("docs/MCP.md lacks %s", line)
	}
	dir, err := os.MkdirTemp("", "tgad-gw-") // a path that is not too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conf := `[[server]]
id = "payments"
type = "mcp-command"
command = ["tgad-lab", "payments", "--journal", "payments.journal"]

[[rule]]
tool = "charge_opaque"
decision = "NEEDS_APPROVAL"

[gateway]
mode = "observe"
metrics = "unix:metrics.sock"
`
	if err := os.WriteFile(filepath.Join(dir, "gateway.toml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(words ...string) *exec.Cmd {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TGAD_DATA=", "TGAD_SOCKET=")
		return cmd
	}
	socket := filepath.Join(dir, "gw.sock")
	start := func() *exec.Cmd {
		t.Helper()
		cmd := command("tgad", "gateway", "--config", "gateway.toml", "--data", "observed", "--listen", "unix:"+socket)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := waitFor(func() error {
			c, err := net.Dial("unix", socket)
			if err == nil {
				err = c.Close()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		t.Helper()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	to := over(socket)
	call := func(id int, key, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"payments__charge_opaque","arguments":{"account":"acme",%s},"_meta":{"dev.tgad/idempotencyKey":%q}}}`, id, args, key)
	}
	has := func(got string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%.1500s\nlacks %s", got, want)
			}
		}
	}
	charges := func() int {
		t.Helper()
		all, err := journal.Read(filepath.Join(dir, "payments.journal"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if all == nil {
			return 0
		}
		return int(all.Total().Charges)
	}

	gateway := start()
	session := to.session(t)
	has(to.post(session, call(1, "k1", `"amount":1`)), `"id":1,"result"`)
	// Its rules approve everything, so it has a log of its own.
	if out, err := command("tgad", "gateway", "--config", "gateway.toml", "--data", "observed").CombinedOutput(); err == nil {
		t.Errorf("a second gateway has the log too: %s", out)
	}
	lost := make(chan string, 1)
	slow := call(2, "k2", `"amount":2,"delay_ms":60000`)
	go func() { lost <- to.post(session, slow) }()
	until := time.Now().Add(20 * time.Second)
	for charges() < 2 && time.Now().Before(until) {
		time.Sleep(5 * time.Millisecond)
	}
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = gateway.Wait() // it was killed
	<-lost
	// The store of a gateway that was killed still names its socket.
	killed, err := command(strings.Fields(line)...).CombinedOutput()
	if err != nil {
		t.Errorf("after a kill: %v", err)
	}
	has(string(killed), "2 calls passed and were recorded. 1 are open")
	gateway = start()
	session = to.session(t)
	has(to.post(session, call(3, "k1", `"amount":1`)), `"id":3,"result"`)
	has(to.post(session, call(4, "k3", `"amount":3`)), `"id":4,"result"`)
	again := make(chan string, 1)
	go func() { again <- to.post(session, slow) }()
	for charges() < 5 && time.Now().Before(until.Add(20*time.Second)) {
		time.Sleep(5 * time.Millisecond)
	}
	if n := charges(); n != 5 {
		t.Errorf("%d charges, want 5: each that a client asked for, and no other", n)
	}
	report := func() (o struct {
		Calls, Twice int
		Open         int
		Would, Rules map[string]int
	}) {
		t.Helper()
		cmd := command(append(strings.Fields(line), "--json")...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := json.Unmarshal(out, &o); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return o
	}
	if got, want := fmt.Sprintf("%+v", report()), "{Calls:5 Twice:2 Open:2 Would:map[in_doubt:1 sent:3 served:1] Rules:map[NEEDS_APPROVAL:5]}"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	has(over(filepath.Join(dir, "metrics.sock")).get(t, "/metrics"), `tgad_gateway_observed_total{identity="",server="payments",would="served"} 1`, `tgad_gateway_observed_total{identity="",server="payments",would="in_doubt"} 1`)
	end(gateway)
	<-again
	out, err := command(strings.Fields(line)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	has(string(out), "5 calls passed and were recorded. 2 are open: in doubt, or under way. 2 ran although the same call had run, or may have run.", "payments/charge_opaque", "3 sent, 1 in_doubt, 1 served", "5 NEEDS_APPROVAL", "tgad_gateway_observed_total")
	if n := charges(); n != 5 {
		t.Errorf("%d charges at the end", n)
	}
}

// over returns an HTTP client for a socket.
func over(socket string) *socketClient {
	return &socketClient{http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

type socketClient struct{ http.Client }

// session makes the handshake with a gateway and returns the session's id.
func (c *socketClient) session(t *testing.T) string {
	t.Helper()
	resp, err := c.Post("http://gateway/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	id := resp.Header.Get("Mcp-Session-Id")
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || id == "" {
		t.Fatalf("status %d, session %q, %v", resp.StatusCode, id, err)
	}
	c.post(id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return id
}

// post sends a message and returns the answer or the error.
func (c *socketClient) post(session, body string) string {
	req, err := http.NewRequest(http.MethodPost, "http://gateway/mcp", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Mcp-Session-Id", session)
	resp, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (c *socketClient) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := c.Get("http://gateway" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
