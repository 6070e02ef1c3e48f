//go:build unix

package clients

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/serial"
)

// buildWheel builds the wheel with the package's own backend.
func buildWheel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(python(t), "-c", "import sys, tgad_build; print(tgad_build.build_wheel(sys.argv[1])); tgad_build.build_sdist(sys.argv[1])", dir)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+absolute(t, "python/backend"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, strings.TrimSpace(string(out)))
}

// TestWheelIsWhole: the wheel has every file of the package, is the same when it is built again, and can be
// imported from its place.
func TestWheelIsWhole(t *testing.T) {
	t.Parallel()
	wheel := buildWheel(t)
	first, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(buildWheel(t))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("a second build differs: %v", err)
	}
	z, err := zip.OpenReader(wheel)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	has := map[string]bool{}
	for _, f := range z.File {
		has[f.Name] = true
	}
	sources, err := filepath.Glob("python/src/tgad/*.*")
	if err != nil || len(sources) < 10 {
		t.Fatalf("%d sources, %v", len(sources), err)
	}
	for _, s := range sources {
		if !has["tgad/"+filepath.Base(s)] {
			t.Errorf("the wheel has no %s", s)
		}
	}
	cmd := exec.Command(python(t), "-c", "import tgad, importlib.metadata as m; print(tgad.__file__, tgad.__version__, m.version('tgad'), tgad.EffectInDoubt.code)")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+wheel)
	out, err := cmd.CombinedOutput()
	if want := wheel + "/tgad/__init__.py 0.1.0 0.1.0 EFFECT_IN_DOUBT\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}

// TestPythonIsTyped has mypy check the package as strictly as it can.
func TestPythonIsTyped(t *testing.T) {
	t.Parallel()
	mypy := serial.Program(t, "mypy")
	cmd := exec.Command(mypy, "--strict", "--enable-incomplete-feature=Unpack", "--cache-dir", t.TempDir(), "src/tgad")
	cmd.Dir, cmd.Env = "python", append(os.Environ(), "MYPYPATH=src")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPythonUnits runs the tests that need no daemon.
func TestPythonUnits(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("python/tests/test_*.py")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for name, interpreter := range map[string]func(*testing.T) string{"cpython": python, "pypy-3.9": pypy} {
		for _, file := range files {
			t.Run(name+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(interpreter(t), "tests/"+filepath.Base(file))
				cmd.Dir, cmd.Env = "python", append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=src")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
