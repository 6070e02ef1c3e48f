package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestModelsClaimNoLicence: the code that acts for models and for MCP clients cannot put the licence of a
// program into a begin, whatever they send.
func TestModelsClaimNoLicence(t *testing.T) {
	seen := 0
	for _, dir := range []string{"mcpfront", "mcpfront/*", "mcpanswer", "turn", "turn/*", "turn/*/*", "agent", "cli"} {
		files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if n.Sel.Name == "BeginRequest" {
						seen++
					}
				case *ast.CompositeLit:
					for _, e := range n.Elts {
						kv, ok := e.(*ast.KeyValueExpr)
						if !ok || !named(n.Type, "BeginRequest") {
							continue
						}
						if key, ok := kv.Key.(*ast.Ident); !ok || strings.HasPrefix(key.Name, "Licence") {
							t.Errorf("%s: a begin with a licence", path)
						}
					}
				case *ast.AssignStmt:
					for _, to := range n.Lhs {
						if x, ok := to.(*ast.SelectorExpr); ok && strings.HasPrefix(x.Sel.Name, "Licence") && named(x.X, "req", "begin", "body") {
							t.Errorf("%s: a licence is put into a request", path)
						}
					}
				}
				return true
			})
		}
	}
	if seen == 0 {
		t.Error("nothing there begins a call: look at the folders")
	}
}

// named reports whether an expression ends in one of the names.
func named(e ast.Expr, names ...string) bool {
	last := ""
	switch e := e.(type) {
	case *ast.Ident:
		last = e.Name
	case *ast.SelectorExpr:
		last = e.Sel.Name
	}
	for _, name := range names {
		if last == name {
			return true
		}
	}
	return false
}
