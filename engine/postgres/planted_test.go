package postgres_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPlantedBugsAreFound puts each bug of testdata/planted into a copy of the sources it is about,
// and runs the tests that are to find it. It takes minutes: TGAD_PLANTED=1 asks for it, or names
// the bugs, with commas between them. Without that it only checks that each bug has its place.
func TestPlantedBugsAreFound(t *testing.T) {
	patches, err := filepath.Glob("testdata/planted/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	wanted := os.Getenv("TGAD_PLANTED")
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		t.Run(name, func(t *testing.T) {
			overlay, finders := plant(t, patch)
			if wanted != "1" && !strings.Contains(","+wanted+",", ","+name+",") {
				return
			}
			for _, f := range finders {
				f.find(t, overlay)
			}
		})
	}
}

// finder is a test that is to find a bug.
type finder struct{ where, name string }

// find runs the test on the sources with the bug.
func (f finder) find(t *testing.T, overlay string) {
	cmd := exec.Command("go", "test", "-count=1", "-short", "-vet=off", "-overlay", overlay, "-run", "^"+f.name+"$", "./"+f.where)
	cmd.Env = append(os.Environ(), "TGAD_PLANTED=", "TGAD_TRIAL_KEYS=100", "TGAD_TRIAL_FAULTS=100")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s does not find it", f.name)
	case !strings.Contains(string(out), "--- FAIL: "+f.name):
		t.Errorf("%s was not run: %s", f.name, out)
	default:
		for _, said := range regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: .*$`).FindAllString(string(out), 5) {
			t.Logf("%s: %s", f.name, said[:min(len(said), 300)])
		}
	}
}

// plant writes the sources with a bug beside the true ones, and returns what makes the compiler take
// them, and the tests that are to find it.
func plant(t *testing.T, patch string) (overlay string, finders []finder) {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^Found-by: (?:(\S+) )?(Test\w+)$`).FindAllSubmatch(text, -1) {
		finders = append(finders, finder{string(m[1]), string(m[2])})
	}
	if len(finders) == 0 {
		t.Fatal("it does not say which test is to find it")
	}
	top := t.TempDir()
	dir := filepath.Join(top, "engine", "postgres") // a bug may be in the other module
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	replaced := map[string]string{}
	for _, f := range regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`).FindAllSubmatch(text, -1) {
		name := string(f[1])
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
			err = os.WriteFile(to, source, 0o644)
		}
		at, aerr := filepath.Abs(name)
		if err != nil || aerr != nil {
			t.Fatal(err, aerr)
		}
		replaced[at] = to
	}
	path, err := filepath.Abs(patch)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "apply", "--unsafe-paths", "-p1", path)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("it has no place any more: %s", out)
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(top, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay, finders
}
