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
// and runs the test that is to find it. It takes minutes: TGAD_PLANTED=1 asks for it, or names
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
			overlay, where, finder := plant(t, patch)
			if wanted != "1" && !strings.Contains(","+wanted+",", ","+name+",") {
				return
			}
			cmd := exec.Command("go", "test", "-count=1", "-short", "-vet=off", "-overlay", overlay, "-run", "^"+finder+"$", "./"+where)
			cmd.Env = append(os.Environ(), "TGAD_PLANTED=", "TGAD_TRIAL_KEYS=100", "TGAD_TRIAL_FAULTS=80")
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("%s does not find it", finder)
			case !strings.Contains(string(out), "--- FAIL: "+finder):
				t.Errorf("%s was not run: %s", finder, out)
			default:
				t.Logf("found: %s", regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: .*$`).FindString(string(out)))
			}
		})
	}
}

// plant writes the sources with a bug beside the true ones, and returns what makes the compiler take
// them, and the package and the name of the test that is to find it.
func plant(t *testing.T, patch string) (overlay, where, finder string) {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^Found-by: (?:(\S+) )?(Test\w+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("it does not say which test is to find it")
	}
	dir := t.TempDir()
	replaced := map[string]string{}
	for _, f := range regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`).FindAllSubmatch(text, -1) {
		name := string(f[1])
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
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
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay, string(m[1]), string(m[2])
}
