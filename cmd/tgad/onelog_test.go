package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneLogWhereverTheShimIsStarted: clients start a shim in the directory of a project. Two shims of
// one user have one log there too, although XDG_STATE_HOME is no absolute path: in two logs the key was
// charged twice.
func TestOneLogWhereverTheShimIsStarted(t *testing.T) {
	home, err := os.MkdirTemp("", "tgad-test-") // short, for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	journal := filepath.Join(home, "charges")
	for _, project := range []string{"a", "b"} {
		dir := filepath.Join(home, project)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "tgad", "mcp", "--", "tgad-lab", "payments", "--journal", journal)
		c.Dir = dir
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=state", "XDG_RUNTIME_DIR=" + filepath.Join(home, "none")}
		c.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge_opaque","arguments":{"account":"acme","amount":1},"_meta":{"dev.tgad/idempotencyKey":"order-1"}}}
`)
		out, err := c.Output()
		if err != nil || !strings.Contains(string(out), `"id":1,"result"`) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	raw, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), `"op":"charge"`); n != 1 {
		t.Errorf("order-1 was charged %d times:\n%s", n, raw)
	}
}
