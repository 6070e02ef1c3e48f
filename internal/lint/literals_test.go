package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// literals may each be in one file only, so that a reader finds there everything that depends on it.
var literals = []struct {
	what, in, instead string
	is                *regexp.Regexp
	but               []string // files of other protocols, and of programs that are not tgad
}{
	{
		"a protocol revision of MCP", "internal/mcpraw/revision.go", "a method of mcpraw.Revision",
		regexp.MustCompile(`\b20\d\d-\d\d-\d\d\b`),
		[]string{
			"internal/turn/model/anthropic.go", "internal/verify/github/github.go",
			"internal/demo/mcp_till.go", "internal/demo/mcp_client.go", "internal/demo/stock.go",
		},
	},
	{
		"the code of a JSON-RPC error", "internal/mcpraw/codes.go", "a constant of mcpraw",
		regexp.MustCompile(`-32\d\d\d\b`), []string{"internal/demo/mcp_till.go"},
	},
	{
		"the escape of a JSON Pointer's token", "schemas/tga/pointer.go", "tga.EscapeToken or tga.UnescapeToken",
		regexp.MustCompile(`^"~[01]"$`), []string{"internal/verify/document.go"}, // which only looks for them
	},
}

// TestLiteralsStandInOnePlace reads all code but tests and programs for tests. It skips comments.
func TestLiteralsStandInOnePlace(t *testing.T) {
	found := map[string]bool{} // literal and file, of those that are allowed
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(filepath.ToSlash(path), "/testdata/") || strings.Contains(filepath.ToSlash(path), "/fronttest/") {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		see := func(n ast.Node, text string) {
			for _, l := range literals {
				switch {
				case !l.is.MatchString(text):
				case rel == l.in || slices.Contains(l.but, rel):
					found[l.what+rel] = true
				default:
					t.Errorf("%s: %s is %s; take %s", fset.Position(n.Pos()), text, l.what, l.instead)
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				see(n, n.Value)
			case *ast.UnaryExpr:
				if l, ok := n.X.(*ast.BasicLit); ok {
					see(n, n.Op.String()+l.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range literals {
		for _, file := range append([]string{l.in}, l.but...) {
			if !found[l.what+file] {
				t.Errorf("%s has no %s any more: take it out of the list", file, l.what)
			}
		}
	}
}

// TestServersOutliveWhatPasses: only listen.HTTP starts a server of net/http. Programs for tests, for
// measurements and for the demonstration are left out, since nobody runs them for long.
func TestServersOutliveWhatPasses(t *testing.T) {
	started := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if err != nil || d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") ||
			regexp.MustCompile(`^bench/|^internal/(crashtest|killtest|demo|modelserver|mcpfront/fronttest)/`).MatchString(rel) {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		made, by := strings.Count(string(source), "http.Server{"), strings.Count(string(source), "listen.HTTP(")
		if made != by || strings.Contains(string(source), "http.Serve(") {
			t.Errorf("%s makes %d servers of net/http, and has listen.HTTP start %d", rel, made, by)
		}
		started += by
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if started < 6 {
		t.Errorf("found %d servers", started)
	}
}
