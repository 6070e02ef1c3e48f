package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// contains are the packages in which a panic of the embedder's code ends, and a process goes on, and those that it passes
// through on its way there.
var contains = []string{"engine", "runtime", "internal/workstate", "runtime/dispatch", "internal/turn"}

// stackObject is what the compiler says of a variable whose address is taken and that is not on the heap.
var stackObject = regexp.MustCompile(`(?m)^(\S+\.go:\d+:\d+): stack object (\w+) `)

// TestPanicFindsNoStaleArgument: no function that defers takes the address of one of its arguments.
//
// While a panic or Goexit runs deferred functions, the Go runtime (1.26) keeps the address of the arguments
// of the function that deferred them. For the garbage collector that address makes an argument alive again
// which was dead before. If what it points to was freed meanwhile, the process ends with "found pointer to
// free object", also if the panic would have been recovered. Only an argument whose address is taken is found
// that way. A copy in a variable, or a pointer as the argument, is not.
//
// The compiler tells which addresses it takes: it takes some that nobody wrote, for example to compare two
// structs.
func TestPanicFindsNoStaleArgument(t *testing.T) {
	flags := os.Getenv("GOFLAGS")
	var list []string
	for _, room := range contains {
		flags += " '-gcflags=github.com/tgad/tgad/" + room + "=-dwarf=false -live=1'"
		list = append(list, "./"+room)
	}
	cmd := exec.Command("go", append([]string{"build"}, list...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOFLAGS="+flags)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	objects := map[string]bool{}
	for _, m := range stackObject.FindAllStringSubmatch(string(out), -1) {
		objects[m[1]] = true
	}
	seen := 0
	for _, room := range contains {
		names, err := filepath.Glob("../../" + room + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			at := func(id *ast.Ident) string { return strings.TrimPrefix(set.Position(id.Pos()).String(), "../../") }
			for _, f := range functions(file) {
				for _, arg := range f.args {
					switch is := objects[at(arg)]; {
					case is && f.defers:
						t.Errorf("%s: the address of the argument %s is taken in a function that defers", at(arg), arg.Name)
					case is:
						seen++
					}
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("the compiler tells of %d arguments whose address is taken: its words may have changed", seen)
	}
}

// function is the arguments of a function or method, with its receiver, and whether it has a defer.
type function struct {
	args   []*ast.Ident
	defers bool
}

// functions returns all functions of a file, the literals too.
func functions(file *ast.File) (all []function) {
	add := func(body *ast.BlockStmt, lists ...*ast.FieldList) {
		if body == nil {
			return
		}
		var f function
		for _, list := range lists {
			if list == nil {
				continue
			}
			for _, field := range list.List {
				f.args = append(f.args, field.Names...)
			}
		}
		ast.Inspect(body, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.DeferStmt:
				f.defers = true
			}
			return true
		})
		all = append(all, f)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Body, n.Recv, n.Type.Params)
		case *ast.FuncLit:
			add(n.Body, n.Type.Params)
		}
		return true
	})
	return all
}
