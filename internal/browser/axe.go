package browser

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/serial"
)

//go:embed axe/package.json axe/package-lock.json
var axe embed.FS

// Axe returns the source of axe, a program that finds accessibility problems in a page. It is installed from npm, in the
// version that axe/package-lock.json names.
func Axe(t testing.TB) string {
	t.Helper()
	npm, dir := serial.Program(t, "npm"), t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		raw, err := axe.ReadFile("axe/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		serial.Missing(t, "axe-core from npm: "+string(out), err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// violations is a script that returns the violations on a page that axe calls serious or critical.
const violations = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations
	.filter((v) => v.impact === "serious" || v.impact === "critical")
	.map((v) => v.id + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.html).join(", ")).join("\n"))`

// Accessible opens a page in light and in dark mode, and fails the test if axe finds a serious problem.
func (b *Browser) Accessible(program, url string) {
	b.Helper()
	for _, dark := range []bool{false, true} {
		b.Screen(1000, 860, dark)
		b.Open(url)
		b.Value(program + "\n;0")
		if found, _ := b.Value(violations).(string); found != "" {
			b.Errorf("%s, dark %v: %s", url, dark, found)
		}
	}
	b.Screen(1000, 860, false)
}
