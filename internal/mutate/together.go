package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// together is a package whose mutants are all compiled into the same test binaries. The
// environment variable [which] chooses the mutant that runs. With a binary for each mutant, most
// of the time would be spent on compiling and linking.
type together struct {
	suites  []suite
	number  map[string]int // by name of the mutant, from 1
	reaches map[int][]test // by number: the tests that reach the mutant, the fastest first
	least   time.Duration  // every run may take at least this long: see [together.run]
}

// which is the environment variable with the number of the mutant that runs.
const which = "TGAD_MUTANT"

// choose is added to the package under test. Mutant -1 is the unchanged code. It writes each
// mutant that it reaches to a file at once, because a test may kill its own process.
const choose = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var tgadMutant, _ = strconv.Atoi(os.Getenv("` + which + `"))

var tgadReached sync.Map

func tgadReach(all ...int) {
	for _, n := range all {
		if _, again := tgadReached.LoadOrStore(n, true); again {
			continue
		}
		f, err := os.OpenFile(os.Getenv("` + reached + `"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(strconv.Itoa(n) + "\n")
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			panic(err)
		}
	}
}
`

// compile builds the test binaries of the package in dir, and of the packages that -with names,
// with the package's mutants. It leaves out mutants of constants and of types that have no name in
// their file. It returns nil if the package does not compile that way.
func compile(dir string, all []mutant, temp string) (*together, error) {
	p, err := load(dir)
	if err != nil {
		return nil, err
	}
	t := &together{number: map[string]int{}, least: 5 * time.Second}
	replace := map[string]string{}
	for i, file := range p.files {
		name := p.names[i]
		of := map[token.Position]mutant{}
		for _, m := range all {
			if filepath.Base(m.path) == filepath.Base(name) {
				of[token.Position{Line: m.line, Column: m.column, Filename: m.kind}] = m
			}
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		w := &weaver{p: p, file: file, src: src, of: of, number: t.number}
		to := filepath.Join(temp, "together_"+filepath.Base(name))
		if err := os.WriteFile(to, []byte(w.text(file)), 0o600); err != nil {
			return nil, err
		}
		replace[name] = to
	}
	own := filepath.Join(temp, "together_choose.go")
	if err := os.WriteFile(own, fmt.Appendf(nil, choose, p.types.Name()), 0o600); err != nil {
		return nil, err
	}
	replace[filepath.Join(filepath.Dir(p.names[0]), "tgad_mutant.go")] = own
	overlay, err := writeOverlay(temp, replace)
	if err != nil {
		return nil, err
	}
	for i, from := range append([]string{dir}, strings.Fields(*with)...) {
		s := suite{dir: from, binary: filepath.Join(temp, fmt.Sprintf("mutants%d.test", i))}
		if s.flags, err = testFlags(from, "test."); err != nil {
			return nil, err
		}
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-o", s.binary, "-overlay", overlay, "./"+from)
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("%s: its mutants do not compile together, each is built alone:\n%.600s\n", dir, out)
			return nil, nil
		}
		t.suites = append(t.suites, s)
	}
	return t, t.measure(temp)
}

// checked is a package with its types.
type checked struct {
	fset  *token.FileSet
	names []string
	files []*ast.File
	types *types.Package
	info  *types.Info
}

func load(dir string) (*checked, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly", "./"+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", dir, err)
	}
	p := &checked{fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	exports, path := map[string]string{}, ""
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var one struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if exports[one.ImportPath] = one.Export; one.DepOnly {
			continue
		}
		path = one.ImportPath
		for _, f := range one.GoFiles {
			p.names = append(p.names, filepath.Join(one.Dir, f))
		}
	}
	for _, name := range p.names {
		f, err := parser.ParseFile(p.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	find := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", find)}
	if p.types, err = conf.Check(path, p.fset, p.files, p.info); err != nil {
		return nil, err
	}
	return p, nil
}

// weaver rewrites a file: it replaces each operator that has mutants by a choice between them.
type weaver struct {
	p      *checked
	file   *ast.File
	src    []byte
	of     map[token.Position]mutant // Filename is the kind
	number map[string]int
}

// text returns the source of a node with the choices in it.
func (w *weaver) text(n ast.Node) string {
	var out strings.Builder
	at := n.Pos()
	if n == ast.Node(w.file) {
		at = w.file.FileStart
	}
	ast.Inspect(n, func(c ast.Node) bool {
		switch c := c.(type) {
		case *ast.GenDecl:
			return c.Tok != token.CONST
		case *ast.ArrayType:
			return false // a length is a constant
		}
		if c == nil || c == n {
			return true
		}
		if woven := w.choice(c); woven != "" {
			out.Write(w.src[w.offset(at):w.offset(c.Pos())])
			out.WriteString(woven)
			at = c.End()
			return false
		}
		return true
	})
	end := n.End()
	if n == ast.Node(w.file) {
		end = w.file.FileEnd
	}
	out.Write(w.src[w.offset(at):w.offset(end)])
	return out.String()
}

func (w *weaver) offset(p token.Pos) int { return w.p.fset.Position(p).Offset }

// mutants returns the mutants of the operator at a place.
func (w *weaver) mutants(at token.Pos) []mutant {
	p := w.p.fset.Position(at)
	var all []mutant
	for kind := range changes {
		if m, ok := w.of[token.Position{Line: p.Line, Column: p.Column, Filename: kind}]; ok {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b mutant) int { return strings.Compare(a.name, b.name) })
	return all
}

// choice returns the text that replaces a node whose operator has mutants, "" for another node.
func (w *weaver) choice(n ast.Node) string {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		name, ok := w.typeOf(n)
		if all := w.mutants(n.OpPos); ok && len(all) > 0 && w.compiles(n) {
			left, right := w.whole(n.X), w.whole(n.Y)
			return w.cases(all, name, n.Op, func(op string) string { return left + " " + op + " " + right })
		}
	case *ast.UnaryExpr:
		name, ok := w.typeOf(n)
		if all := w.mutants(n.OpPos); ok && len(all) > 0 {
			x := w.whole(n.X)
			return w.cases(all, name, n.Op, func(op string) string { return op + x })
		}
	case *ast.IncDecStmt:
		name, ok := w.typeOf(n.X)
		if all := w.mutants(n.TokPos); ok && len(all) > 0 && !calls(n.X) {
			x := w.text(n.X)
			return x + " = " + w.cases(all, name, n.Tok, func(op string) string { return x + " " + op[:1] + " 1" })
		}
	}
	return ""
}

// whole returns the text of an operand, which may contain choices itself.
func (w *weaver) whole(n ast.Expr) string {
	if woven := w.choice(n); woven != "" {
		return woven
	}
	return w.text(n)
}

// cases returns a call of a function literal that has each mutant as a case.
func (w *weaver) cases(all []mutant, result string, op token.Token, with func(op string) string) string {
	var b, numbers strings.Builder
	fmt.Fprintf(&b, "func() %s { switch tgadMutant { ", result)
	for _, m := range all {
		if w.number[m.name] == 0 {
			w.number[m.name] = len(w.number) + 1
		}
		fmt.Fprintf(&b, "case %d: return %s; ", w.number[m.name], with(changes[m.kind][op.String()]))
		fmt.Fprintf(&numbers, "%d, ", w.number[m.name])
	}
	fmt.Fprintf(&b, "case -1: tgadReach(%s) }; return %s }()", numbers.String(), with(op.String()))
	return b.String()
}

// typeOf returns the name, in this file, of the type of an expression that is no constant.
func (w *weaver) typeOf(e ast.Expr) (string, bool) {
	tv, ok := w.p.info.Types[e]
	if !ok || tv.Value != nil {
		return "", false
	}
	named := true
	text := types.TypeString(types.Default(tv.Type), func(p *types.Package) string {
		if p == w.p.types {
			return ""
		}
		for _, i := range w.file.Imports {
			if path, err := strconv.Unquote(i.Path.Value); err == nil && path == p.Path() {
				if i.Name != nil {
					return i.Name.Name
				}
				return p.Name()
			}
		}
		named = false
		return ""
	})
	return text, named
}

// compiles reports whether all mutants of an operator compile: for strings only + does.
func (w *weaver) compiles(n *ast.BinaryExpr) bool {
	b, ok := w.p.info.Types[n].Type.Underlying().(*types.Basic)
	return !ok || b.Info()&types.IsString == 0
}

// calls reports whether an expression calls a function. Such an expression must be evaluated
// only once.
func calls(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		_, is := n.(*ast.CallExpr)
		found = found || is
		return !found
	})
	return found
}
