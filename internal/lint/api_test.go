package lint

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// apiFile lists the public names of this module. A line that starts with "package" says how many
// names the package may have. The lines below it are these names, each with its signature.
const (
	apiFile  = "testdata/api.txt"
	renewAPI = "go test ./internal/lint -run TestPublicAPI -update"
)

// TestPublicAPI compares the exported names of the public packages with apiFile. Removing or changing
// a name breaks programs that we cannot see, so each such change must show in a diff.
//
// The bounds in the file may only fall. With -update this test lowers a bound and never raises one.
// Whoever adds a public name or package must raise its bound by hand, so that a reviewer sees it.
func TestPublicAPI(t *testing.T) {
	have := publicNames(t)
	total := 0
	for _, lines := range have {
		total += len(lines)
	}
	t.Logf("%d public packages, %d names", len(have), total)
	raw, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	want, bounds, packages := parseAPI(t, string(raw))
	if *update {
		for name := range bounds {
			bounds[name] = min(bounds[name], len(have[name]))
		}
		packages = min(packages, len(have))
		if err := os.WriteFile(apiFile, []byte(printAPI(have, bounds, packages)), 0o644); err != nil {
			t.Fatal(err)
		}
		want = have
	}
	if len(have) > packages {
		t.Errorf("%d packages are public: at most %d may be. Move one to internal/, or raise the number in %s", len(have), packages, apiFile)
	} else if len(have) < packages {
		t.Errorf("%d packages are public and %s allows %d: %s", len(have), apiFile, packages, renewAPI)
	}
	for name, lines := range have {
		switch n, bound := len(lines), bounds[name]; {
		case n > bound:
			t.Errorf("package %s has %d public names: at most %d. Unexport one, or raise the number in %s", name, n, bound, apiFile)
		case n < bound:
			t.Errorf("package %s has %d public names and %s allows %d: %s", name, n, apiFile, bound, renewAPI)
		}
	}
	var diff []string
	for name, lines := range have {
		for _, l := range lines {
			if !slices.Contains(want[name], l) {
				diff = append(diff, l+"\t+")
			}
		}
	}
	for name, lines := range want {
		for _, l := range lines {
			if !slices.Contains(have[name], l) {
				diff = append(diff, l+"\t-")
			}
		}
	}
	if len(diff) == 0 {
		return
	}
	slices.Sort(diff) // puts the old form of a name beside its new form
	var b strings.Builder
	for _, d := range diff {
		l, sign, _ := strings.Cut(d, "\t")
		fmt.Fprintf(&b, "%s %s\n", sign, l)
	}
	t.Errorf("the public API is not the one of %s (- is in the file, + is in the code):\n%sif that is meant: %s", apiFile, b.String(), renewAPI)
}

func parseAPI(t *testing.T, text string) (names map[string][]string, bounds map[string]int, packages int) {
	t.Helper()
	names, bounds = map[string][]string{}, map[string]int{}
	var at string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case line == "" || line[0] == '#':
		case words[0] == "package" || words[0] == "packages:":
			n, err := strconv.Atoi(words[len(words)-1])
			if err != nil {
				t.Fatalf("%s: %q: %v", apiFile, line, err)
			}
			if words[0] == "packages:" {
				packages = n
				continue
			}
			at = words[1]
			bounds[at] = n
		default:
			names[at] = append(names[at], line)
		}
	}
	return names, bounds, packages
}

func printAPI(names map[string][]string, bounds map[string]int, packages int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What other modules can name. The numbers are bounds, which may only fall.\n# Made by %s\n\npackages: at most %d\n", renewAPI, packages)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "\npackage %s : at most %d\n%s\n", name, bounds[name], strings.Join(names[name], "\n"))
	}
	return b.String()
}

// publicNames returns the lines of every package that another module can import and that
// exports something, by its path in this module. It reads the compiler's export data, so an inferred
// type, or one that an alias takes over, is the type that a caller gets.
func publicNames(t *testing.T) map[string][]string {
	t.Helper()
	golist := func(args ...string) string {
		cmd := exec.Command("go", append([]string{"list"}, args...)...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %v: %v", args, err)
		}
		return string(out)
	}
	var public []string
	for line := range strings.Lines(golist("-f", "{{.ImportPath}} {{.Name}}", "./...")) {
		path, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "main" && !slices.Contains(strings.Split(path, "/"), "internal") {
			public = append(public, path)
		}
	}
	exports := map[string]string{} // the files with the compiler's export data
	for line := range strings.Lines(golist(append([]string{"-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, public...)...)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	names := map[string][]string{}
	for _, path := range public {
		p, err := imp.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		if lines := namesOf(p); len(lines) > 0 {
			names[strings.TrimPrefix(path, module+"/")] = lines
		}
	}
	return names
}

// namesOf returns a line for each exported name of a package: functions, types with their
// methods and fields, constants and variables.
func namesOf(p *types.Package) []string {
	var lines []string
	short := func(of *types.Package) string {
		if of == p {
			return ""
		}
		return of.Name()
	}
	add := func(name, is string) {
		if !token.IsExported(name[strings.LastIndex(name, ".")+1:]) {
			return
		}
		lines = append(lines, p.Name()+"."+name+" "+is)
	}
	form := func(t types.Type) string { return types.TypeString(t, short) }
	for _, name := range p.Scope().Names() {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.Const:
			add(name, "const "+form(o.Type())+" = "+o.Val().ExactString())
		case *types.Var:
			add(name, "var "+form(o.Type()))
		case *types.Func:
			add(name, form(o.Type()))
		case *types.TypeName:
			if !o.Exported() {
				continue
			}
			if o.IsAlias() && !borrowed(o.Type()) {
				add(name, "= "+form(types.Unalias(o.Type())))
				continue
			}
			switch u := o.Type().Underlying().(type) {
			case *types.Struct:
				add(name, "struct"+parameters(o.Type(), form))
				fieldsOf(u, name, form, add)
			case *types.Interface:
				add(name, "interface"+parameters(o.Type(), form))
				for m := range u.Methods() {
					add(name+"."+m.Name(), form(m.Type()))
				}
			default:
				add(name, "type "+form(u)+parameters(o.Type(), form))
			}
			if !types.IsInterface(o.Type()) {
				ms := types.NewMethodSet(types.NewPointer(o.Type()))
				for m := range ms.Methods() {
					add(name+"."+m.Obj().Name(), form(m.Type()))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// borrowed reports whether a type is declared in an internal package. The fields and methods of such a
// type are public only through its alias.
func borrowed(t types.Type) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Pkg() != nil && slices.Contains(strings.Split(n.Obj().Pkg().Path(), "/"), "internal")
}

func parameters(t types.Type, form func(types.Type) string) string {
	n, ok := t.(*types.Named)
	if !ok || n.TypeParams().Len() == 0 {
		return ""
	}
	var of []string
	for p := range n.TypeParams().TypeParams() {
		of = append(of, p.Obj().Name()+" "+form(p.Constraint()))
	}
	return "[" + strings.Join(of, ", ") + "]"
}

// fieldsOf adds the fields of a struct, and those that it gets from unexported embedded structs.
func fieldsOf(s *types.Struct, of string, form func(types.Type) string, add func(name, is string)) {
	for f := range s.Fields() {
		if lent, ok := f.Type().Underlying().(*types.Struct); ok && f.Embedded() && !f.Exported() {
			fieldsOf(lent, of, form, add)
			continue
		}
		add(of+"."+f.Name(), form(f.Type()))
	}
}

// TestPublicNamesAreCounted: docs/ARCHITECTURE.md says for whom each public package is, and how many names
// each group of packages has. Fields are not counted.
func TestPublicNamesAreCounted(t *testing.T) {
	have, told := publicNames(t), map[string]bool{}
	raw, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(raw), "## What is public\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\|.*\| (.*) \| (\d+) \|$`).FindAllStringSubmatch(section, -1) {
		n := 0
		for name := range strings.SplitSeq(row[1], ", ") {
			name = strings.Trim(name, "`")
			told[name] = true
			for _, l := range have[name] {
				of, what, _ := strings.Cut(l, " ")
				if strings.Count(of, ".") == 1 || strings.HasPrefix(what, "func(") { // everything else is a field
					n++
				}
			}
		}
		if fmt.Sprint(n) != row[2] {
			t.Errorf("%s have %d names, and docs/ARCHITECTURE.md says %s", row[1], n, row[2])
		}
	}
	for name := range have {
		if !told[name] {
			t.Errorf("docs/ARCHITECTURE.md does not say for whom %s is", name)
		}
	}
	if n := fmt.Sprintf("Other modules can name %d packages.", len(have)); !strings.Contains(section, n) || len(told) != len(have) {
		t.Errorf("docs/ARCHITECTURE.md names %d packages and does not say %q", len(told), n)
	}
}
