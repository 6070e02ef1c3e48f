package lint

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systems are the systems that tgad is built for. docs/OPERATIONS.md says what runs on which system.
var systems = []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64"}

// portable are the packages that compile on every system: the library, the client and the command.
// Programs that test or measure tgad are for Linux only.
var portable = []string{"./engine/...", "./wal/...", "./keyspace/...", "./ledger/...", "./runtime/...", "./schemas/...", "./examples/embed", "./cmd/tgad"}

// TestCompilesOnEverySystem checks the types of the portable packages for each system, without cgo. It
// generates no code, so it takes seconds where a build takes minutes; `make cross BUILD=1` builds. Of
// other modules it reads only the declarations.
func TestCompilesOnEverySystem(t *testing.T) {
	for _, system := range systems {
		t.Run(strings.ReplaceAll(system, "/", "-"), func(t *testing.T) {
			goos, goarch, _ := strings.Cut(system, "/")
			cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module"}, portable...)...)
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("go list: %v", err)
			}
			known := map[string]*types.Package{"unsafe": types.Unsafe}
			for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
				var p source
				if err := dec.Decode(&p); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if p.ImportPath == "unsafe" {
					continue
				}
				ours := p.Module != nil && p.Module.Main
				checked, errs := p.check(known, types.SizesFor("gc", goarch), ours)
				known[p.ImportPath] = checked
				for _, err := range errs {
					if ours {
						t.Error(err)
					}
				}
			}
		})
	}
}

// source is one package as go list describes it for one system.
type source struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

// check checks the types of a package whose imports are checked already: with the bodies of its
// functions, or its declarations only.
func (p *source) check(known map[string]*types.Package, sizes types.Sizes, bodies bool) (*types.Package, []error) {
	var errs []error
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, f)
	}
	conf := types.Config{
		Importer: importerFunc(func(path string) (*types.Package, error) {
			if to, ok := p.ImportMap[path]; ok {
				path = to
			}
			if known[path] == nil {
				return nil, fmt.Errorf("%s is not known", path)
			}
			return known[path], nil
		}),
		Sizes: sizes, IgnoreFuncBodies: !bodies, FakeImportC: true,
		Error: func(err error) { errs = append(errs, err) },
	}
	checked, _ := conf.Check(p.ImportPath, fset, files, nil) // each error is in errs
	return checked, errs
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
