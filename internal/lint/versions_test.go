package lint

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// versionOfOthers are constants that are called a version but are not the version of a format of tgad.
var versionOfOthers = map[string]bool{
	"internal/turn/model/anthropic.go anthropicVersion": true,
	"internal/turn/emit/names.go attrAgentVersion":      true, // the name of a label
}

// heldElsewhere are versions of formats that only grow: a digest of such a format would change with
// every addition.
var heldElsewhere = map[string]string{"WireVersion": "schemas/wire, TestAPIKeepsItsPromises"}

// TestVersionsStandInOneFile: the version of every format is in schemas/tga/versions.go, and for each of
// them a test compares a sample of the format.
func TestVersionsStandInOneFile(t *testing.T) {
	const room = "schemas/tga/versions.go"
	here, held := map[string]bool{}, map[string]bool{}
	named := regexp.MustCompile(`(^v|V)ersion$`)
	hold := regexp.MustCompile(`HoldFormat\(t, "(\w+)", tga\.(\w+)|HoldFormat\(t, "(\w+)", (\w+)`)
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		if strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name)
			for _, m := range hold.FindAllStringSubmatch(string(text), -1) {
				if m[1]+m[3] != m[2]+m[4] {
					t.Errorf("%s holds %s to the number of %s", name, m[1]+m[3], m[2]+m[4])
				}
				held[m[1]+m[3]] = true
			}
			return err
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(filepath.ToSlash(name), "../../")
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) == 0 {
				return true
			}
			for _, name := range spec.Names {
				_, literal := spec.Values[0].(*ast.BasicLit)
				switch {
				case rel == room:
					here[name.Name] = true
				case literal && named.MatchString(name.Name) && !versionOfOthers[rel+" "+name.Name]:
					t.Errorf("%s: %s is the number of a format: it belongs into %s", files.Position(name.Pos()), name.Name, room)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var formats map[string]any
	raw, err := os.ReadFile("../../test_vectors/tga/formats.json")
	if err == nil {
		err = json.Unmarshal(raw, &formats)
	}
	if err != nil || len(here) < 20 {
		t.Fatalf("%d versions, %v", len(here), err)
	}
	for name := range here {
		if (formats[name] == nil || !held[name]) && heldElsewhere[name] == "" {
			t.Errorf("%s has no sample: golden.HoldFormat in a test of its package, and a row of formats.json", name)
		}
	}
	for name := range formats {
		if !here[name] {
			t.Errorf("formats.json has a row of %s, which is no version", name)
		}
	}
}
