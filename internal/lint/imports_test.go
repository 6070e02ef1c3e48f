package lint

import (
	"encoding/json"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tgad/tgad"

// doors names the one package that may import a dependency.
var doors = map[string][]string{
	"github.com/anishathalye/porcupine":      {"internal/crashtest"},
	"github.com/cockroachdb/pebble":          {"engine", "wal", "internal/crashtest", "internal/vector", "internal/diskfs", "internal/evidence", "internal/mcpfront/fronttest", "bench"}, // all but engine: the file systems
	"github.com/gowebpki/jcs":                {"schemas/tga"},
	"github.com/klauspost/compress":          {"wal", "internal/segment"},
	"github.com/modelcontextprotocol/go-sdk": {"runtime/mcp", "internal/payments/server"},
	"github.com/failsafe-go/failsafe-go":     {"runtime/dispatch", "internal/verify"},
	"github.com/golang-jwt/jwt":              {"internal/capability", "internal/mcpfront/identity"},
	"github.com/jackc/pgx":                   {"internal/verify/pgcheck"},
	"modernc.org/sqlite":                     {"internal/verify/sqlitecheck", "runtime/workstate/sqlitefile", "internal/killtest/engines"},
	"github.com/spf13/cobra":                 {"cmd/tgad", "internal/"},
	"github.com/pelletier/go-toml":           {"internal/config", "internal/mcpfront/setup"},                                                      // tgad's own file; that of Codex
	"github.com/prometheus/client_golang":    {"internal/daemon", "internal/cli", "internal/assemble", "internal/optional", "internal/turn/otlp"}, // a daemon, and a gateway; on the way to a collector
	"github.com/tailscale/hujson":            {"internal/mcpfront/setup"},
	"github.com/santhosh-tekuri/jsonschema":  {"internal/turn/tools", "internal/talostest"},
	"google.golang.org/grpc":                 {"internal/turn/tools/grpccall"},
	"go.yaml.in/yaml/v3":                     {"internal/turn/manifest", "clients/gen"},
	"go.opentelemetry.io/otel":               {"internal/turn/emit", "internal/turn/otlp", "internal/spans"},
	"go.opentelemetry.io/otel/exporters":     {"internal/turn/otlp"},
	"go.opentelemetry.io/proto":              {"internal/agent/otlptest"},
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestHeavyDependenciesHaveOneDoor: only the packages in doors import a heavy dependency, so that a
// program which does not need it does not link it.
func TestHeavyDependenciesHaveOneDoor(t *testing.T) {
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imp := range p.Imports {
			for dep, of := range doors {
				through := func(door string) bool {
					return name == door || strings.HasPrefix(name, path.Clean(door)+"/")
				}
				if (imp == dep || strings.HasPrefix(imp, dep+"/")) && !slices.ContainsFunc(of, through) {
					t.Errorf("%s imports %s, whose door is %v", name, imp, of)
				}
			}
		}
	}
}

// TestPureRoomsHaveNoNetwork: a program that uses only the formats links no server.
func TestPureRoomsHaveNoNetwork(t *testing.T) {
	for _, p := range list(t, "./runtime", "./wal/chain", "./ledger", "./keyspace", "./schemas/tga") {
		for _, heavy := range []string{"net/http", "github.com/cockroachdb/pebble/v2"} {
			if slices.Contains(p.Deps, heavy) {
				t.Errorf("%s links %s", p.ImportPath, heavy)
			}
		}
	}
}

// TestConfigurationIsReadByLightPackages: a program that only reads a configuration links the TOML
// parser and small libraries. It links no database and no protocol; package assemble does that.
func TestConfigurationIsReadByLightPackages(t *testing.T) {
	light := []string{
		module + "/", "github.com/pelletier/go-toml", "github.com/google/uuid", "golang.org/x/sys",
		"github.com/golang-jwt/jwt", "github.com/failsafe-go/failsafe-go", "github.com/bits-and-blooms/bitset",
	}
	heavy := []string{module + "/engine", module + "/wal", module + "/runtime/mcp", module + "/runtime/turn", module + "/internal/turn"}
	for _, p := range list(t, "-deps", "./internal/config") {
		first, _, _ := strings.Cut(p.ImportPath, "/")
		within := func(prefix string) bool { return strings.HasPrefix(p.ImportPath, prefix) }
		if strings.Contains(first, ".") && !slices.ContainsFunc(light, within) || slices.ContainsFunc(heavy, within) && p.ImportPath != module+"/wal/chain" {
			t.Errorf("internal/config links %s: what is made of a file belongs into internal/assemble", p.ImportPath)
		}
	}
}

// TestEngineAddsNoServerToPebble compares what the engine links with what bare Pebble links. The engine
// may add packages of this module and the pure libraries named here. It must add nothing that serves,
// parses flags or exports telemetry.
func TestEngineAddsNoServerToPebble(t *testing.T) {
	bare := map[string]bool{}
	for _, p := range list(t, "-deps", "github.com/cockroachdb/pebble/v2") {
		bare[p.ImportPath] = true
	}
	ours := []string{module + "/", "github.com/gowebpki/jcs", "github.com/klauspost/compress", "github.com/cockroachdb/pebble/v2/"}
	for _, p := range list(t, "-deps", "./engine") {
		first, _, _ := strings.Cut(p.ImportPath, "/")
		std := !strings.Contains(first, ".")
		mine := slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(p.ImportPath, prefix) })
		if !bare[p.ImportPath] && !std && !mine {
			t.Errorf("engine adds %s to what Pebble links", p.ImportPath)
		}
	}
}

// TestDaemonLinksNoTests: the code that tests tgad is in programs of its own. None of it is in the
// program that people run, where a special argument could start it.
func TestDaemonLinksNoTests(t *testing.T) {
	tests := []string{
		"testing", "pgregory.net/rapid", "github.com/anishathalye/porcupine",
		module + "/internal/crashtest", module + "/internal/demo", module + "/internal/lab", module + "/internal/modelserver",
		module + "/internal/memstore", module + "/internal/planted", module + "/examples", module + "/internal/payments", module + "/runtime/storetest", module + "/internal/workstate/memfs",
	}
	for _, p := range list(t, "-deps", "./cmd/tgad") {
		for _, of := range tests {
			if p.ImportPath == of || strings.HasPrefix(p.ImportPath, of+"/") {
				t.Errorf("tgad links %s", p.ImportPath)
			}
		}
	}
}
