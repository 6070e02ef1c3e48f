package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The bounds keep each piece small enough for one person to hold in mind.
const (
	maxLines   = 80  // of a function
	maxPaths   = 25  // of a function: its cyclomatic complexity
	maxMethods = 60  // of a type
	maxFile    = 500 // lines of a file, tests too: a longer file has two subjects
)

// TestNothingOutgrowsItsBound measures every file, and every function and type outside of tests.
func TestNothingOutgrowsItsBound(t *testing.T) {
	lines, paths, methods, long := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			if err == nil && d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
				return fs.SkipDir
			}
			return err
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		long[name] = bytes.Count(raw, []byte("\n"))
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, name, raw, 0)
		if err != nil {
			return err
		}
		room := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), "../../")
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			of := room + "." + f.Name.Name
			if f.Recv != nil {
				of = room + "." + typeName(f.Recv.List[0].Type)
				methods[of]++
				of += "." + f.Name.Name
			}
			// A name that is declared twice, for two systems, counts with its larger form.
			lines[of] = max(lines[of], files.Position(f.End()).Line-files.Position(f.Pos()).Line+1)
			paths[of] = max(paths[of], waysThrough(f))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 5000 {
		t.Fatalf("only %d functions found", len(lines))
	}
	bound(t, "lines", lines, maxLines)
	bound(t, "lines", long, maxFile)
	bound(t, "ways through it", paths, maxPaths)
	bound(t, "methods", methods, maxMethods)
}

func bound(t *testing.T, what string, have map[string]int, most int) {
	t.Helper()
	for name, n := range have {
		if n > most {
			t.Errorf("%s has %d %s: at most %d", name, n, what, most)
		}
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// waysThrough returns the cyclomatic complexity: one, plus one for each branch.
func waysThrough(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
