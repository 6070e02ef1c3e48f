package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneLogWhereverTheShimIsStarted: clients start a shim in the directory of a project. There too, two
// shims of one user share one log, although XDG_STATE_HOME is not an absolute path. With two logs the key
// was charged twice.
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

// TestPrintedLinesMeanTheLogThatWasNamed: a client starts a shim in any directory. So the printed lines for
// its file have absolute paths, and keep every option that was given. An option that cannot apply to every
// tool server of a file is refused by install, not dropped.
func TestPrintedLinesMeanTheLogThatWasNamed(t *testing.T) {
	t.Setenv("TGAD_DATA", "")
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("c.json", []byte(`{"mcpServers":{"a":{"command":"npx","args":["x"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"mcp", "config"}, {"mcp", "install", "cursor", "--file", "c.json", "--dry-run"}} {
		for _, row := range []struct {
			flags, want string
			one         bool // applies to one tool server
		}{
			{"--data d", "--data DIR/d", false},
			{"--config t.toml", "--config DIR/t.toml", false},
			{"--state s", "--state DIR/s", false},
			{"--socket s.sock", "--socket DIR/s.sock", false},
			{"--trust-hints", "--trust-hints", false},
			{"--workspace w", "--workspace DIR/w", true},
			{"--workspace w --workspace-snapshots v --workspace-exclude x --workspace-keep 3", "--workspace DIR/w --workspace-snapshots DIR/v --workspace-exclude x --workspace-keep 3", true},
			{"--headers-file h", "--headers-file DIR/h", true},
			{"--server-id one", "--server-id one", true},
		} {
			args := append(append([]string{}, verb...), strings.Fields(row.flags)...)
			if verb[1] == "config" {
				args = append(args, "--", "npx", "x")
			}
			code, out, errs := says(args...)
			if verb[1] == "install" && row.one {
				if code != 2 {
					t.Errorf("%q: exit code %d, %q, %q", args, code, out, errs)
				}
				continue
			}
			want := strings.ReplaceAll(row.want, "DIR", dir)
			if plain := strings.NewReplacer(`"`, "", ",", "").Replace(out); code != 0 || !strings.Contains(plain, want) {
				t.Errorf("%q: exit code %d, %q, want %q in\n%s", args, code, errs, want, out)
			}
		}
	}
}
