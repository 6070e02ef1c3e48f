package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeysAreMadeInKeyspace: only package keyspace puts keys together and takes them apart. The test
// looks at each expression that is the key of an attachment, the key of a look-up or the prefix of a
// list. It must be a call of keyspace, or a name whose value in that function comes only from such calls.
func TestKeysAreMadeInKeyspace(t *testing.T) {
	files := token.NewFileSet()
	seen := 0
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(filepath.ToSlash(name), "../../")
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || opaqueKeys(rel) {
			return err
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			for _, e := range keysOf(f, func() { seen++ }) {
				t.Errorf("%s: %s makes a key of its own or reads one; take a function of keyspace", files.Position(e.Pos()), f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 40 {
		t.Errorf("only %d keys found", seen)
	}
}

// opaqueKeys are the files that pass on keys which others made, and files that are not part of tgad.
func opaqueKeys(rel string) bool {
	for _, room := range []string{"keyspace/", "schemas/tga/", "engine/", "wal/", "internal/memstore/", "internal/daemon/", "runtime/client/", "runtime/storetest/", "internal/sealrules/sealtest/", "examples/", "internal/payments/", "bench/"} {
		if strings.HasPrefix(rel, room) {
			return true
		}
	}
	return false
}

// keysOf returns the expressions in a function that are used as a key and were not made by keyspace. It
// calls found for each key.
func keysOf(f *ast.FuncDecl, found func()) (bad []ast.Expr) {
	from := map[string][]ast.Expr{} // the values that a name in the function gets
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, to := range a.Lhs {
				if name, ok := to.(*ast.Ident); ok {
					from[name.Name] = append(from[name.Name], a.Rhs[i])
				}
			}
		}
		return true
	})
	key := func(e ast.Expr) {
		found()
		if !isKey(e, from, 0) {
			bad = append(bad, e)
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if e := field(n, "Key"); e != nil && strings.HasPrefix(nameOf(field(n, "Kind")), "Attach") {
				key(e)
			}
		case *ast.CallExpr:
			if name := nameOf(n.Fun); (name == "Attachment" || name == "Attachments") && len(n.Args) == 3 {
				key(n.Args[2])
			}
		case *ast.SliceExpr: // a.Key[16:] reads a key by hand
			if s, ok := n.X.(*ast.SelectorExpr); ok && s.Sel.Name == "Key" && nameOf(s.X) == "a" {
				bad = append(bad, n)
			}
		case *ast.BinaryExpr: // id[6]&0x0f|0x70 makes an id by hand, as tga.MakeID does
			if l, ok := n.Y.(*ast.BasicLit); ok && n.Op == token.OR && l.Value == "0x70" {
				bad = append(bad, n)
			}
		}
		return true
	})
	return bad
}

// isKey reports whether keyspace made the value of an expression, or whether the value came from
// outside of the function.
func isKey(e ast.Expr, from map[string][]ast.Expr, depth int) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return true // a field: its value is checked where it is set
	case *ast.Ident:
		for _, v := range from[e.Name] {
			if depth > 4 || !isKey(v, from, depth+1) {
				return false
			}
		}
		return true
	case *ast.CallExpr:
		switch fun := e.Fun.(type) {
		case *ast.SelectorExpr:
			room := nameOf(fun.X)
			return room == "keyspace" || room == "slices" && fun.Sel.Name == "Clone" && isKey(e.Args[0], from, depth)
		case *ast.ArrayType:
			return isKey(e.Args[0], from, depth) // []byte(key)
		}
	}
	return false
}

func field(l *ast.CompositeLit, name string) ast.Expr {
	for _, e := range l.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && nameOf(kv.Key) == name {
			return kv.Value
		}
	}
	return nil
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
