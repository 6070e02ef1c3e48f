// Package lint holds the project's structure as tests.
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

// allowed is the import diagram of docs/ARCHITECTURE.md: a package may import the
// module's packages that stand beside it and no other. Test files are free.
var allowed = map[string][]string{
	"schemas":      {},
	"schemas/wire": {},
	"schemas/tga":  {},
	"test_vectors": {},

	"internal/access":   {},
	"internal/filelock": {"internal/access"},
	"internal/clock":    {},

	"keyspace": {"schemas/tga"},
	"wal":      {"schemas/tga"}, // and the file systems of Pebble
	"ledger":   {"schemas/tga"},

	"wal/vector":          {"schemas/tga", "wal"},
	"wal/chain":           {"schemas/tga"},
	"wal/chain/chaintest": {"schemas/tga", "wal/chain"},
	"wal/segment":         {"schemas/tga", "wal/chain"},
	"wal/ndjson":          {"schemas/tga", "wal/chain"},

	"engine":                {"schemas/tga", "keyspace", "wal", "wal/chain", "wal/segment", "ledger", "engine/internal/guard", "internal/access", "internal/filelock"},
	"engine/internal/guard": {"schemas/tga", "internal/access"},

	"internal/mcpfront/call":    {},
	"runtime":                   {"schemas/tga", "wal/chain", "ledger", "internal/mcpfront/call", "internal/clock"},
	"runtime/storetest":         {"schemas/tga", "wal/chain", "ledger", "runtime"},
	"runtime/dispatch":          {"schemas/tga", "wal/chain", "ledger", "runtime"},
	"runtime/dispatch/httpcall": {"schemas/tga", "wal/chain", "ledger", "runtime", "runtime/dispatch"},
	"runtime/mcp":               {"schemas/tga", "wal/chain", "ledger", "runtime", "runtime/dispatch/httpcall", "runtime/mcp/mcpraw"},
	"runtime/mcp/mcpraw":        {"schemas/tga", "ledger", "runtime"},
	"runtime/client":            {"schemas/tga", "wal/chain", "ledger", "runtime"},

	"runtime/turn":                {"schemas/tga", "wal/chain", "ledger", "runtime", "runtime/dispatch", "runtime/turn/message", "runtime/turn/state"},
	"runtime/turn/message":        {"schemas/tga"},
	"runtime/turn/state":          {"schemas/tga", "wal/chain", "runtime"},
	"runtime/turn/model":          {"schemas/tga", "runtime", "runtime/dispatch/httpcall", "runtime/turn", "runtime/turn/message"},
	"runtime/turn/manifest":       {"schemas/tga", "runtime/turn", "runtime/turn/message", "runtime/turn/state"},
	"runtime/turn/emit":           {"schemas/tga", "runtime/turn"},
	"runtime/turn/emit/otlp":      {"runtime/turn/emit"},
	"runtime/turn/tools":          {"schemas/tga", "ledger", "runtime", "runtime/mcp", "runtime/turn", "runtime/turn/state"},
	"runtime/turn/tools/grpccall": {"schemas/tga", "ledger", "runtime", "runtime/mcp", "runtime/dispatch/httpcall"},

	"runtime/capability": {"schemas/tga", "runtime"},
	"runtime/outcome":    {"schemas/tga", "ledger", "runtime"},

	"runtime/verify":              {"schemas/tga", "ledger", "runtime"},
	"runtime/verify/internal/web": {"runtime", "runtime/verify"},
	"runtime/verify/filecheck":    {"schemas/tga", "runtime", "runtime/verify"},
	"runtime/verify/gitcheck":     {"schemas/tga", "runtime", "runtime/verify"},
	"runtime/verify/github":       {"schemas/tga", "runtime", "runtime/verify", "runtime/verify/internal/web"},
	"runtime/verify/httpcheck":    {"schemas/tga", "ledger", "runtime", "runtime/verify", "runtime/verify/internal/web"},
	"runtime/verify/mcpcheck":     {"schemas/tga", "runtime", "runtime/verify"},
	"runtime/verify/sqlcheck":     {"schemas/tga", "runtime", "runtime/verify"},
	"runtime/verify/pgcheck":      {"runtime", "runtime/verify", "runtime/verify/sqlcheck"},
	"runtime/verify/sqlitecheck":  {"runtime", "runtime/verify", "runtime/verify/sqlcheck"},

	"runtime/workstate":            {"schemas/tga", "wal/chain", "ledger", "runtime"},
	"runtime/workstate/memfs":      {"schemas/tga", "runtime/workstate"},
	"runtime/workstate/hostdir":    {"schemas/tga", "runtime/workstate", "internal/filelock"},
	"runtime/workstate/sqlitefile": {"schemas/tga", "runtime/workstate"},
}

// open lists the prefixes that may import everything below them in the diagram: the
// shells that put the parts together. Nothing above may import them.
var open = []string{"internal/", "cmd/", "examples/", "fuzz", "bench", "test_vectors/"}

// doors names the one package that may import a dependency.
var doors = map[string][]string{
	"github.com/anishathalye/porcupine":      {"internal/crashtest"},
	"github.com/cockroachdb/pebble":          {"engine", "wal", "internal/crashtest", "bench"}, // wal and crashtest: the file systems
	"github.com/gowebpki/jcs":                {"schemas/tga"},
	"github.com/klauspost/compress":          {"wal", "wal/segment"},
	"github.com/modelcontextprotocol/go-sdk": {"runtime/mcp", "examples/"},
	"github.com/failsafe-go/failsafe-go":     {"runtime/dispatch", "runtime/verify"},
	"github.com/golang-jwt/jwt":              {"runtime/capability"},
	"github.com/jackc/pgx":                   {"runtime/verify/pgcheck"},
	"modernc.org/sqlite":                     {"runtime/verify/sqlitecheck", "runtime/workstate/sqlitefile"},
	"github.com/spf13/cobra":                 {"cmd/tgad", "internal/"},
	"github.com/pelletier/go-toml":           {"internal/config"},
	"github.com/prometheus/client_golang":    {"internal/daemon"},
	"github.com/santhosh-tekuri/jsonschema":  {"runtime/turn/tools", "internal/talostest"},
	"google.golang.org/grpc":                 {"runtime/turn/tools/grpccall"},
	"go.yaml.in/yaml/v3":                     {"runtime/turn/manifest"},
	"go.opentelemetry.io/otel":               {"runtime/turn/emit"},
	"go.opentelemetry.io/otel/exporters":     {"runtime/turn/emit/otlp"},
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

func isOpen(name string) bool {
	return slices.ContainsFunc(open, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func TestImportsFollowTheDiagram(t *testing.T) {
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		may, known := allowed[name]
		if !known && !isOpen(name) {
			t.Errorf("%s is not in the diagram: the top level is closed", name)
		}
		for _, imp := range p.Imports {
			if of, ok := strings.CutPrefix(imp, module+"/"); ok && known && !slices.Contains(may, of) {
				t.Errorf("%s imports %s, an arrow the diagram does not have", name, of)
			} else if ok && !known && strings.HasPrefix(of, "cmd/") {
				t.Errorf("%s imports the command %s", name, of)
			}
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

// TestPureRoomsHaveNoNetwork: an embedder who takes the formats alone links no server.
func TestPureRoomsHaveNoNetwork(t *testing.T) {
	for _, p := range list(t, "./runtime", "./wal/chain", "./ledger", "./keyspace", "./schemas/tga") {
		for _, heavy := range []string{"net/http", "github.com/cockroachdb/pebble/v2"} {
			if slices.Contains(p.Deps, heavy) {
				t.Errorf("%s links %s", p.ImportPath, heavy)
			}
		}
	}
}

// TestEngineAddsNoServerToPebble compares what the engine links with what bare Pebble
// links: this module's packages, the pure libraries it names, and nothing that serves,
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

// TestDaemonLinksNoTests: what tries tgad is in a program of its own. Nothing of it is in
// the one that people run, where a special argument could wake it.
func TestDaemonLinksNoTests(t *testing.T) {
	tests := []string{
		"testing", "pgregory.net/rapid", "github.com/anishathalye/porcupine",
		module + "/internal/crashtest", module + "/internal/demo", module + "/internal/lab", module + "/internal/modelserver",
		module + "/internal/memstore", module + "/internal/planted", module + "/examples", module + "/runtime/storetest", module + "/runtime/workstate/memfs",
	}
	for _, p := range list(t, "-deps", "./cmd/tgad") {
		for _, of := range tests {
			if p.ImportPath == of || strings.HasPrefix(p.ImportPath, of+"/") {
				t.Errorf("tgad links %s", p.ImportPath)
			}
		}
	}
}
