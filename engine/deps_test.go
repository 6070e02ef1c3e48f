package engine_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What an embedder links beyond bare Pebble is our own pure packages and the codecs of
// their formats: no command line, no MCP, no telemetry, no server.
func TestEmbedderPaysForPebbleOnly(t *testing.T) {
	deps := func(pkgs ...string) []string {
		out, err := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, pkgs...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	bare := deps("github.com/cockroachdb/pebble/v2", "github.com/cockroachdb/pebble/v2/bloom", "github.com/cockroachdb/pebble/v2/vfs/atomicfs")
	allowed := []string{
		"github.com/tgad/tgad/schemas/", "github.com/tgad/tgad/keyspace", "github.com/tgad/tgad/wal",
		"github.com/tgad/tgad/ledger", "github.com/tgad/tgad/engine", "github.com/tgad/tgad/internal/access", "github.com/tgad/tgad/internal/backup/manifest", "github.com/tgad/tgad/internal/clip", "github.com/tgad/tgad/internal/diskfs", "github.com/tgad/tgad/internal/filelock", "github.com/tgad/tgad/internal/sealrules", "github.com/tgad/tgad/internal/segment",
		"github.com/gowebpki/jcs",
		"github.com/klauspost/compress", // Pebble's own without cgo
	}
	for _, pkg := range deps("github.com/tgad/tgad/engine") {
		if slices.Contains(bare, pkg) || slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(pkg, prefix) }) {
			continue
		}
		t.Errorf("engine links %s", pkg)
	}
	imports, err := exec.Command("go", "list", "-deps", "github.com/tgad/tgad/engine").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range []string{"github.com/tgad/tgad/runtime", "github.com/spf13/cobra", "github.com/modelcontextprotocol/go-sdk/mcp"} {
		if slices.Contains(strings.Fields(string(imports)), pkg) {
			t.Errorf("engine links %s", pkg)
		}
	}
}
