package crashtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestPlantedBugsHaveTheirPlaces: a bug whose place in the code has moved could not be planted.
func TestPlantedBugsHaveTheirPlaces(t *testing.T) {
	bugs, err := PlantedBugs()
	if err != nil {
		t.Fatal(err)
	}
	if err := HavePlaces(bugs); err != nil {
		t.Error(err)
	}
}

// TestBugsNameAPart: a bug whose name has no part would run through all parts.
func TestBugsNameAPart(t *testing.T) {
	bugs, err := PlantedBugs()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bugs {
		if b.FoundBy != "" && !slices.ContainsFunc(killParts, func(p killPart) bool { return p.name == b.FoundBy }) {
			t.Errorf("%s is found by %q, which is no part", b.Name, b.FoundBy)
		}
	}
}

// TestPlantedBugsArePatches: each applies to the sources with git too, and its code is active under its own
// name only.
func TestPlantedBugsArePatches(t *testing.T) {
	files, err := filepath.Glob("../*/testdata/planted/*.patch")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		asks := regexp.MustCompile("planted.On\\(`([^`]*)`\\)").FindAllStringSubmatch(string(b), -1)
		if len(asks) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, m := range asks {
			if m[1]+".patch" != filepath.Base(file) {
				t.Errorf("%s asks for %s", file, m[1])
			}
		}
		cmd := exec.Command("git", "apply", "--check", "-")
		cmd.Dir, cmd.Stdin = "../..", bytes.NewReader(b)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// TestPatchesAreTogether: patches for the same place and for places beside each other are
// planted together; what has no place, two places, or a line that another bug takes out
// too, is refused.
func TestPatchesAreTogether(t *testing.T) {
	const file = "package p\n\nfunc f() {\n\tone()\n\ttwo()\n}\n\nfunc g() {\n\tthree()\n\tthree()\n}\n"
	head := "What it is.\nFound-by: turns\n\n--- a/p/p.go\n+++ b/p/p.go\n@@ -3,2 +3,3 @@\n"
	for name, tc := range map[string]struct {
		patches []string // the lines of a hunk each
		want    string   // of the file, or of the error
	}{
		"one":                     {[]string{" func f() {\n+\ta()\n \tone()\n"}, "f() {\n\ta()\n\tone()\n\ttwo()"},
		"one place, in order":     {[]string{" func f() {\n+\ta()\n \tone()\n", " func f() {\n+\tb()\n \tone()\n"}, "f() {\n\ta()\n\tb()\n\tone()"},
		"one in another's midst":  {[]string{" func f() {\n \tone()\n+\ta()\n \ttwo()\n", " func f() {\n+\tb()\n \tone()\n"}, "f() {\n\tb()\n\tone()\n\ta()\n\ttwo()"},
		"changed and beside":      {[]string{" func f() {\n-\tone()\n+\ta()\n \ttwo()\n", " \tone()\n+\tb()\n \ttwo()\n"}, "f() {\n\ta()\n\tb()\n\ttwo()"},
		"an import":               {[]string{" func f() {\n+\ta()\n \tone()\n"}, "package p\n\nimport \"github.com/tgad/tgad/internal/planted\"\n"},
		"a line that two change":  {[]string{"-\tone()\n+\ta()\n", "-\tone()\n+\tb()\n"}, "line 4 is changed by bug0 too"},
		"as git writes it":        {[]string{" func f() {\n+\ta()\n \tone()\ndiff --git a/p/p.go b/p/p.go\nindex 1..2 100644\n--- a/p/p.go\n+++ b/p/p.go\n@@ -5 +5,2 @@\n \ttwo()\n+\tb()\n"}, "a()\n\tone()\n\ttwo()\n\tb()"},
		"no place":                {[]string{" func f() {\n+\ta()\n \ttwo()\n"}, "there 0 times"},
		"two places":              {[]string{" \tthree()\n+\ta()\n"}, "there 2 times"},
		"a line of no patch":      {[]string{"func f() {\n+\ta()\n"}, "no part of a patch"},
		"nothing":                 {[]string{""}, "its place is there"},
		"a file that is not here": {[]string{"@@ -1 +1 @@\n"}, "its place is there"},
	} {
		t.Run(name, func(t *testing.T) {
			base, fsys := t.TempDir(), fstest.MapFS{}
			if err := os.MkdirAll(filepath.Join(base, "p"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(base, "p", "p.go"), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			for i, p := range tc.patches {
				fsys["d/bug"+string(rune('0'+i))+".patch"] = &fstest.MapFile{Data: []byte(head + p)}
			}
			bugs, err := ReadBugs(fsys, "d")
			var files map[string]string
			if err == nil {
				files, err = plant(base, bugs)
			}
			got := files["p/p.go"]
			if err != nil {
				got = err.Error()
			} else if bugs[0].FoundBy != "turns" || bugs[0].Name != "bug0" {
				t.Errorf("%+v", bugs[0])
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("%s", got)
			}
		})
	}
}
