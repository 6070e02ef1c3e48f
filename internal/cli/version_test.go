package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestVersionNamesEveryFormat: tgad version has each constant of schemas/tga/versions.go with its value.
func TestVersionNamesEveryFormat(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../schemas/tga/versions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, f := range BuildVersion().Formats {
		said[f.Name+"Version"] = f.Version
	}
	there := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			there++
			want := strings.Trim(spec.Values[i].(*ast.BasicLit).Value, `"`)
			if said[name.Name] != want {
				t.Errorf("tgad version says %q of %s, which is %q", said[name.Name], name.Name, want)
			}
		}
		return true
	})
	if there < 30 || there != len(said) {
		t.Errorf("%d formats there, %d said", there, len(said))
	}
	text := BuildVersion().Text()
	for line := range strings.Lines(text) {
		if len(line) > 81 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	for name, version := range said {
		if !strings.Contains(text, " "+strings.TrimSuffix(name, "Version")+" "+version) {
			t.Errorf("the text does not say %s", name)
		}
	}
}
