package ui_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/browser"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/ui"
)

// axe is the program that looks for what people with other eyes, hands and browsers cannot use. It comes from
// npm, as testdata/axe/package-lock.json names it.
func axe(t *testing.T) string {
	t.Helper()
	npm, dir := serial.Program(t, "npm"), t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		raw, err := os.ReadFile(filepath.Join("testdata", "axe", name))
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

// violations are those of a page that axe calls serious or critical.
const violations = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations
	.filter((v) => v.impact === "serious" || v.impact === "critical")
	.map((v) => v.id + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.html).join(", ")).join("\n"))`

// accessible opens a page in light and in dark, and checks it. What has a name is kept as a picture.
func (s seen) accessible(program, path, picture string) {
	s.stage.Helper()
	for _, dark := range []bool{false, true} {
		s.Screen(1000, 860, dark)
		s.Open(s.at + path)
		s.Value(program + "\n;0")
		if found, _ := s.Value(violations).(string); found != "" {
			s.stage.Errorf("%s, dark %v: %s", path, dark, found)
		}
	}
	s.Screen(1000, 860, false)
	if picture != "" {
		s.keep(picture)
	}
}

// TestPagesAreAccessible: axe-core finds nothing serious on any page, with what waits, with a long list and
// with what went wrong, in light and in dark.
func TestPagesAreAccessible(t *testing.T) {
	serial.Long(t)
	program := axe(t)
	b := seen{newStage(t, ui.Options{Version: "of the test"}), browser.New(t)}
	b.intent = "refund of order 17, which arrived broken"
	b.call("ask", "order-17", `{"amount":4200}`)
	doubt := b.call("pay", "order-18", `{"amount":1900}`)
	b.call("pay", "order-19", `{"amount":1900}`)
	b.answer = `{"paid":5}`
	paid := b.call("pay", "order-20", `{"amount":5}`)
	b.Open(b.at + b.view.Login())
	for path, picture := range map[string]string{
		"/": "", "/traces?all=1": "", "/traces/" + doubt.String(): "", "/traces/" + paid.String(): "", "/doubts?tool=shop/pay&why=the+statement+has+{key}": "many.png",
		"/turns?all=1": "", "/states": "", "/store": "store.png", "/traces/x": "",
	} {
		b.accessible(program, path, picture)
	}
	rest, ended, state := agents(t)
	a := seen{rest, b.Browser}
	rest.serve(ui.New(rest.client, ui.Options{ReadOnly: true})) // with a link that was not used
	a.Open(rest.at + rest.view.Login())
	for path, picture := range map[string]string{"/turns?all=1": "", "/turns/" + ended.InvocationID.String(): "turn.png", "/turns/" + ended.InteractionID.String(): "", "/states": "", "/states/" + state.String() + "/0": ""} {
		a.accessible(program, path, picture)
	}
	a.Open(rest.at + "/states/" + state.String() + "/0")
	at, _ := a.Value(`document.querySelector("td a.id").getAttribute("href")`).(string)
	a.Open(rest.at + at)
	a.shows("Before and after")
	a.accessible(program, at, "")
}
