package main

import (
	"bytes"
	"context"
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

// TestGatewayOfThePage runs the configuration of docs/MCP.md, which is that of examples/gateway, and
// its command lines: a client on stdin, then clients over HTTP. The gateway is killed with SIGKILL
// while a call runs, and the next one sends nothing again.
func TestGatewayOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/MCP.md")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile("../../examples/gateway/gateway.toml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, append([]byte("```toml\n"), append(conf, "```"...)...)) {
		t.Error("docs/MCP.md has not the configuration of examples/gateway")
	}
	dir, err := os.MkdirTemp("", "tgad-gw-") // a path that is not too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{"gateway.toml": string(conf), "ann.key": "a key of ann's own\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command("tgad", append([]string{"gateway"}, args...)...)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "TGAD_DATA="+filepath.Join(dir, "log"), "TGAD_SOCKET="), os.Stderr
		return cmd
	}
	has := func(got string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%.1500s\nlacks %s", got, want)
			}
		}
	}
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	call := func(id, tool, key, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"account":"acme",%s},"_meta":{"dev.tgad/idempotencyKey":%q}}}`, id, tool, args, key)
	}

	// tgad gateway --config gateway.toml
	one := command("--config", "gateway.toml", "--identity", "ann")
	one.Stdin = strings.NewReader(strings.Join([]string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		call("2", "payments__charge", "k1", `"amount":1`), call("3", "transfer", "k1", `"amount":1`)}, "\n") + "\n")
	out, err := one.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	has(string(out), `"payments__charge"`, `"bank_balance"`, `"transfer"`, `"id":2,"result"`, `"id":3,"result"`)
	for _, not := range []string{`"payments__charge_opaque"`, `"bank_charge"`, `"isError":true`} {
		if strings.Contains(string(out), not) {
			t.Errorf("%s\nhas %s", out, not)
		}
	}
	if out, err := command("--config", "gateway.toml").CombinedOutput(); err == nil {
		t.Errorf("a client on stdin that is nobody was let in: %s", out)
	}

	// tgad gateway accept SERVER --config gateway.toml --identity NAME
	if out, err := command("accept", "bank", "--config", "gateway.toml", "--identity", "bob").Output(); err != nil || !strings.Contains(string(out), "charge") {
		t.Errorf("%v\n%s", err, out)
	}

	// tgad gateway --config gateway.toml --listen …
	socket := filepath.Join(dir, "gw.sock")
	start := func() *exec.Cmd {
		cmd := command("--config", "gateway.toml", "--listen", "unix:"+socket)
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
	clients := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	post := func(key, session, body string) (int, string, string) {
		req, err := http.NewRequest(http.MethodPost, "http://gateway/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := clients.Do(req)
		if err != nil {
			return 0, "", err.Error()
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, "", err.Error()
		}
		return resp.StatusCode, resp.Header.Get("Mcp-Session-Id"), string(raw)
	}
	session := func(key string) string {
		t.Helper()
		status, id, got := post(key, "", hello)
		if status != 200 || id == "" {
			t.Fatalf("%d %s", status, got)
		}
		post(key, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		return id
	}
	const ann, bob = "a key of ann's own", "example-key-of-bob"
	gateway := start()
	if status, _, got := post("eve", "", hello); status != 401 {
		t.Errorf("a stranger: %d %s", status, got)
	}
	asAnn, asBob := session(ann), session(bob)
	_, _, got := post(ann, asAnn, call("1", "payments__charge", "k1", `"amount":1`))
	has(got, `"dev.tgad/replayed":true`)
	_, _, got = post(bob, asBob, call("1", "payments__charge", "k1", `"amount":1`))
	has(got, `"id":1,"result"`)
	if strings.Contains(got, "replayed") {
		t.Errorf("bob is served ann's call: %s", got)
	}
	_, _, got = post(bob, asBob, call("2", "transfer", "k2", `"amount":1`))
	has(got, "POLICY_VIOLATION")
	_, _, got = post(bob, asBob, call("3", "payments__charge", "k3", `"amount":3`))
	has(got, `"id":3,"result"`)
	_, _, got = post(bob, asBob, call("4", "payments__charge", "k4", `"amount":4`))
	has(got, "RATE_LIMITED")

	// kill -9 while a call of ann's runs.
	lost := make(chan string, 1)
	slow := call("5", "transfer", "k5", `"amount":5,"delay_ms":60000`)
	go func() { _, _, got := post(ann, asAnn, slow); lost <- got }()
	charges := func(file string) int {
		t.Helper()
		all, err := journal.Read(filepath.Join(dir, file))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if all == nil {
			return 0
		}
		return int(all.Total().Charges)
	}
	until := time.Now().Add(20 * time.Second)
	for charges("bank.journal") < 2 && time.Now().Before(until) {
		time.Sleep(5 * time.Millisecond)
	}
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = gateway.Wait() // it was killed
	<-lost
	gateway = start()
	_, _, got = post(ann, session(ann), slow)
	has(got, "OUTCOME UNKNOWN")
	if err := gateway.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Wait(); err != nil {
		t.Error(err)
	}
	if p, b := charges("payments.journal"), charges("bank.journal"); p != 3 || b != 2 {
		t.Errorf("%d charges of payments, want 3; %d of bank, want 2", p, b)
	}
}
