package lint

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

var update = flag.Bool("update", false, "write the generated documents anew")

// TestErrorsDocument: docs/ERRORS.md is made from the table of package tga, and is up to date.
func TestErrorsDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Error codes\n\nOne type, `tga.Error`, carries every code; the same code appears in Go, on the wire, in\nlogs and in the output of the command. `tgad explain CODE` says the same as this page,\nwhich is made from the table in `schemas/tga/codes.go`.\n\n| code | HTTP | retry | means | what to do |\n|---|---|---|---|---|\n")
	for _, c := range tga.Codes() {
		retry := "no"
		if c.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s |\n", c.Code, c.HTTPStatus, retry, c.Meaning, c.Remedy)
	}
	const name = "../../docs/ERRORS.md"
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/ERRORS.md is not what the table says: go test ./internal/lint -update")
	}
}

// TestDocumentsNameTestsThatExist: each test that a document names exists.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "grep", "-hoE", "--untracked", `func (Test|Fuzz|Example)\w+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		known[strings.TrimPrefix(strings.TrimSpace(line), "func ")] = true
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	files, err := exec.Command("git", "-C", "../..", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*/doc.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllString(string(text), -1) {
			if !known[name] {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
	}
}

// TestContributingNamesWhatIsThere: each path in CONTRIBUTING.md is a file or folder, and each of its
// go test lines runs at least one test.
func TestContributingNamesWhatIsThere(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile("`([a-z_]+(?:/[A-Za-z_.]+)+)`").FindAllStringSubmatch(string(text), -1)
	if len(paths) < 30 {
		t.Errorf("only %d paths", len(paths))
	}
	for _, m := range paths {
		if _, err := os.Stat(root + "/" + m[1]); err != nil {
			t.Errorf("CONTRIBUTING.md names %s: %v", m[1], err)
		}
	}
	lines := regexp.MustCompile(`go test (\./[a-z_/]+) -run '?([A-Za-z|]+)`).FindAllStringSubmatch(string(text), -1)
	if len(lines) < 4 {
		t.Errorf("only %d go test lines", len(lines))
	}
	for _, m := range lines {
		for name := range strings.SplitSeq(m[2], "|") {
			if err := exec.Command("git", "-C", root, "grep", "-q", "--untracked", "func "+name, "--", m[1]+"/*_test.go").Run(); err != nil {
				t.Errorf("CONTRIBUTING.md runs %s of %s, which is not there", name, m[1])
			}
		}
	}
}

// TestLinksLeadSomewhere: each link in a document, to a file or to a heading, has its target.
func TestLinksLeadSomewhere(t *testing.T) {
	const root = "../.."
	out, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	headings := func(page string) map[string]bool {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		anchors := map[string]bool{}
		drop := regexp.MustCompile("[^a-z0-9 _-]")
		for line := range strings.Lines(string(raw)) {
			if h := strings.TrimLeft(line, "#"); h != line && strings.HasPrefix(h, " ") {
				anchors[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(h)), ""), " ", "-")] = true
			}
		}
		return anchors
	}
	link, program := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("(?s)```.*?```")
	for page := range strings.Lines(string(out)) {
		page = filepath.Join(root, strings.TrimSpace(page))
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(program.ReplaceAllString(string(raw), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(m[1], "#")
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if heading != "" && strings.HasSuffix(to, ".md") && !headings(to)[heading] {
				t.Errorf("%s links to %s, a heading that is not there", page, m[1])
			}
		}
	}
}

// TestReadmeIsShort: README.md keeps to its length, and its embed example is the one that compiles.
func TestReadmeIsShort(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(readme), "\n"); n > 200 {
		t.Errorf("README.md has %d lines", n)
	}
	example, err := os.ReadFile("../../examples/embed/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	if !ok || !strings.Contains(string(example), block) {
		t.Error("the Go block of README.md does not stand in examples/embed/main.go")
	}
}
