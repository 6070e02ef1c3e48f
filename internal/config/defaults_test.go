package config_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/mcpfront/call"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/model"
	"github.com/tgad/tgad/internal/verify/filecheck"
	"github.com/tgad/tgad/internal/verify/github"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/schemas/tga"
)

// inSource are the defaults that a package does not export: the file that sets them, and the value.
var inSource = map[string][2]string{
	"store.lease":             {"engine/postgres/options.go", "o.Lease"},
	"store.patience":          {"engine/postgres/options.go", "o.Patience"},
	"store.low_water_bytes":   {"engine/options.go", "o.LowWaterBytes"},
	"store.memtable_bytes":    {"engine/options.go", "o.MemTableBytes"},
	"store.cache_bytes":       {"engine/options.go", "o.CacheBytes"},
	"store.rewrite_share":     {"engine/options.go", "o.RewriteShare"},
	"evidence.every":          {"internal/evidence/keeper.go", "o.Every"},
	"evidence.appends":        {"internal/evidence/keeper.go", "o.Leaves"},
	"keyring.kek_timeout":     {"internal/keyring/kek.go", "timeout"},
	"server.breaker.failures": {"runtime/dispatch/breaker.go", "o.Failures"},
	"server.breaker.open":     {"runtime/dispatch/breaker.go", "o.Open"},
	"server.breaker.trials":   {"runtime/dispatch/breaker.go", "o.Trials"},
	"server.retry.tries":      {"runtime/dispatch/retry.go", "o.Tries"},
	"server.retry.delay":      {"runtime/dispatch/retry.go", "o.Delay"},
	"server.retry.max_delay":  {"runtime/dispatch/retry.go", "o.MaxDelay"},
	"verifier.timeout":        {"internal/verify/patience.go", "p.Timeout"},
	"verifier.tries":          {"internal/verify/patience.go", "p.Tries"},
	"verifier.delay":          {"internal/verify/patience.go", "p.Delay"},
	"verifier.max_delay":      {"internal/verify/patience.go", "p.MaxDelay"},
	"prober.timeout":          {"internal/verify/patience.go", "p.Timeout"},
	"prober.tries":            {"internal/verify/patience.go", "p.Tries"},
	"prober.delay":            {"internal/verify/patience.go", "p.Delay"},
	"prober.max_delay":        {"internal/verify/patience.go", "p.MaxDelay"},
	"tool.probe.first":        {"runtime/options.go", "first"},
	"tool.probe.max":          {"runtime/options.go", "most"},
	"tool.retry.first":        {"runtime/options.go", "first"},
	"tool.retry.max":          {"runtime/options.go", "most"},
	"verifier.method":         {"internal/verify/httpcheck/verify.go", "l.Method"},
	"verifier.git":            {"internal/verify/gitcheck/gitcheck.go", "c.Git"},
	"prober.method":           {"internal/verify/httpcheck/probe.go", "q.Method"},
	"supervisor.audience":     {"internal/assemble/supervisor.go", "made.audience"},
}

// exported are the defaults that a package exports.
var exported = map[string]any{
	"server.start_timeout": mcp.DefaultStartTimeout, "server.connect_ahead": int64(httpcall.DefaultAhead),
	"server.workspace_keep": int64(workspace.DefaultKeep), "tool.repeat_window": call.DefaultWindow, "tool.margin": ledger.DefaultMargin,
	"tool.send_timeout": runtime.DefaultSendTimeout, "tool.resends": int64(runtime.DefaultResends),
	"verifier.max_bytes": int64(filecheck.DefaultMaxBytes), "verifier.base_url": github.DefaultBaseURL,
	"capability.lifetime": capability.DefaultLifetime, "capability.skew": capability.DefaultSkew, "supervisor.skew": capability.DefaultSkew,
	"model.max_tokens": int64(model.DefaultMaxTokens), "agent.max_depth": int64(turn.DefaultMaxDepth),
	"agent.max_delegations": int64(turn.DefaultMaxDelegations), "role.namespace": tga.DefaultNamespace,
}

// quoted are defaults that are not constants: a file, and the line of it that makes them. When that line
// changes, the default may have changed too.
var quoted = map[string][2]string{
	"limits.body_budget":         {"internal/config/memory.go", "return max(memory/16, 2*(requestBytes+1))"},
	"keyring.by":                 {"internal/assemble/keyring.go", "config.BySubject"},
	"evidence.place.path":        {"internal/assemble/evidence.go", `file = "checkpoint"`},
	"server.drift":               {"internal/cli/mcp.go", `drift(m.now.Load(), o.Server) == "block"`},
	"server.prefix":              {"internal/mcpfront/names/names.go", `"__"`},
	"tool.replay":                {"internal/config/checktrust.go", `"": runtime.ReplayStrict`},
	"tool.permit_time":           {"runtime/options.go", "p.PermitTime = p.SendTimeout"},
	"tool.inverse.server":        {"internal/outcome/inverse.go", "u.server = c.Server"},
	"verifier.ok":                {"internal/verify/httpcheck/verify.go", "return s >= 200 && s <= 299"},
	"verifier.settle_every":      {"internal/verify/patience.go", "p.SettleEvery = min(max(p.Settle/4, 1), 5*time.Second)"},
	"verifier.answer":            {"internal/verify/mcpcheck/ask.go", "q.form = AnswerResult"},
	"prober.answer":              {"internal/verify/mcpcheck/ask.go", "q.form = AnswerResult"},
	"prober.settle_every":        {"internal/verify/patience.go", "p.SettleEvery = min(max(p.Settle/4, 1), 5*time.Second)"},
	"prober.ask_server":          {"internal/assemble/ask.go", `key, server = "server", p.Server`},
	"rule.required":              {"runtime/approval.go", "Required: max(v.Required, 1)"},
	"agent.model_licence":        {"internal/config/model.go", "l := ledger.Licence{Kind: ledger.ReadOnly}"},
	"gateway.mode":               {"internal/config/observe.go", "return g.Mode == Observe"},
	"gateway.identity.namespace": {"internal/config/gateway.go", "return id.Name"},
}

// TestDefaultsAreReal: each default in the table equals the default of the code.
func TestDefaultsAreReal(t *testing.T) {
	filled, err := config.Parse("", []byte("[[server]]\nid=\"s\"\ntype=\"external\"\n[[tool]]\nserver=\"s\"\nname=\"t\"\n[[audit]]\nid=\"a\"\ntype=\"file\"\npath=\"/a\"\n[[notify]]\nid=\"n\"\ntype=\"command\"\ncommand=[\"c\"]\n[[role]]\nuid=[0]\nverbs=[\"read\"]\n[capability]\nkey_file=\"k\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range config.Keys() {
		if k.Default == "" {
			continue
		}
		if from, ok := inSource[k.Path]; ok {
			if got := set(t, "../../"+from[0], from[1]); got != k.Default && got != fmt.Sprint(number(k)) {
				t.Errorf("%s: the table says %s, %s sets %s to %v", k.Path, k.Default, from[0], from[1], got)
			}
			continue
		}
		if want, ok := exported[k.Path]; ok {
			if d, ok := want.(time.Duration); ok {
				want = int64(d)
			}
			if _, text := want.(string); text && want != k.Default || !text && want != number(k) {
				t.Errorf("%s: the table says %s, the code %v", k.Path, k.Default, want)
			}
			continue
		}
		if from, ok := quoted[k.Path]; ok {
			if raw, err := os.ReadFile("../../" + from[0]); err != nil || !strings.Contains(string(raw), from[1]) {
				t.Errorf("%s: the table says %s, and %s has no more %s (%v)", k.Path, k.Default, from[0], from[1], err)
			}
			continue
		}
		got, isSet := filledValue(filled, k.Path)
		if want := strings.TrimSuffix(k.Default, "s"); !isSet && want != "0" && want != "false" {
			t.Errorf("%s: nothing here checks the default %s", k.Path, k.Default)
		} else if isSet && got != k.Default && got != fmt.Sprint(number(k)) {
			t.Errorf("%s: the table says %s, a file without it has %s", k.Path, k.Default, got)
		}
	}
}

// number converts a default to nanoseconds, bytes or a count.
func number(k config.KeyDoc) int64 {
	switch k.Form {
	case config.FormDuration:
		d, _ := time.ParseDuration(k.Default)
		return int64(d)
	case config.FormSize:
		var b config.Bytes
		_ = b.UnmarshalText([]byte(k.Default))
		return b.N
	}
	n, _ := strconv.ParseInt(k.Default, 10, 64)
	return n
}

// filledValue returns the value of a configuration at a path, in the first element of each list.
func filledValue(c *config.Config, path string) (string, bool) {
	v := reflect.ValueOf(c).Elem()
	for _, name := range strings.Split(path, ".") {
		if v.Kind() == reflect.Slice {
			if v.Len() == 0 {
				return "", false
			}
			v = v.Index(0)
		}
		if v.Kind() != reflect.Struct {
			return "", false
		}
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.Tag.Get("toml") == name {
				v = v.FieldByIndex(f.Index)
				break
			}
		}
	}
	if v.IsZero() {
		return "", false
	}
	switch x := v.Interface().(type) {
	case config.Duration:
		return fmt.Sprint(int64(x.D)), true
	case config.Bytes:
		return fmt.Sprint(x.N), true
	}
	return fmt.Sprint(v.Interface()), true
}

// set returns the constant that a file assigns to a name that is zero.
func set(t *testing.T, file, name string) (n string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	consts := map[string]ast.Expr{}
	ast.Inspect(f, func(node ast.Node) bool {
		if s, ok := node.(*ast.ValueSpec); ok && len(s.Values) == len(s.Names) {
			for i := range s.Names {
				consts[s.Names[i].Name] = s.Values[i]
			}
		}
		return true
	})
	ast.Inspect(f, func(node ast.Node) bool {
		when, ok := node.(*ast.IfStmt)
		if !ok {
			return true
		}
		if c, ok := when.Cond.(*ast.BinaryExpr); !ok || text(c.X) != name {
			return true
		}
		if a, ok := when.Body.List[0].(*ast.AssignStmt); ok && text(a.Lhs[0]) == name {
			if n = text(a.Rhs[0]); n == "" {
				n = fmt.Sprint(value(t, a.Rhs[0], consts))
			}
		}
		return true
	})
	return n
}

var units = map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}

func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strings.Trim(e.Value, `"`)
		}
	case *ast.SelectorExpr:
		if d, ok := units[e.Sel.Name]; ok {
			return fmt.Sprint(int64(d))
		}
		if e.Sel.Name == "MethodGet" {
			return "GET"
		}
		return text(e.X) + "." + e.Sel.Name
	}
	return ""
}

// value returns the value of a constant expression. For max(a, …) it returns a, since by default the others
// are smaller.
func value(t *testing.T, e ast.Expr, consts map[string]ast.Expr) int64 {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		n, _ := strconv.ParseInt(e.Value, 0, 64)
		return n
	case *ast.CallExpr:
		return value(t, e.Args[0], consts)
	case *ast.BinaryExpr:
		x, y := value(t, e.X, consts), value(t, e.Y, consts)
		if e.Op == token.SHL {
			return x << y
		}
		return x * y
	case *ast.SelectorExpr:
		return int64(units[e.Sel.Name])
	case *ast.Ident:
		if c := consts[e.Name]; c != nil {
			return value(t, c, consts)
		}
	}
	t.Errorf("cannot tell the value of %T", e)
	return 0
}
