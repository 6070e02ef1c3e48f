package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what docs/SESSION.md shows of a machine anew")

// differs is what is another one each time.
var differs = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{16,64}\b`), "DIGEST"},
	{regexp.MustCompile(`\bhead [A-Za-z0-9+/]{43}=`), "head DIGEST"},
	{regexp.MustCompile(`\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{20,}`), "+KEY"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
}

func plain(text string) string {
	for _, d := range differs {
		text = d.what.ReplaceAllString(text, d.as)
	}
	return text
}

// TestSessionFromThePackage types the part of docs/SESSION.md that is about the package into a shell of a machine that
// has nothing of tgad, and compares what is printed.
func TestSessionFromThePackage(t *testing.T) {
	const name = "../../docs/SESSION.md"
	text := read(t, name)
	m := boot(t)
	m.take(made.r.file(".deb"), "root/tgad.deb")
	m.take(filepath.Join(made.unpacked, "tgad-lab"), "usr/local/bin/tgad-lab")
	m.clients()
	for _, f := range regexp.MustCompile("(?ms)\\*\\*`([a-z.]+)`\\*\\*[^\n]*\n\n^```\\w+\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		if err := os.WriteFile(filepath.Join(m.root, "root", f[1]), []byte(f[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// One shell for all lines; a mark stands behind what each prints.
	const mark = "\x1e"
	blocks := regexp.MustCompile("(?ms)(^```shellsession\n)(.*?)(^```)")
	var script strings.Builder
	script.WriteString("cd /root; export HOME=/root\n")
	for _, b := range blocks.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(b[2]) {
			if typed, ok := strings.CutPrefix(line, "$ "); ok {
				fmt.Fprintf(&script, "%sprintf '\\036'\n", typed)
			}
		}
	}
	shell := exec.Command("nsenter", "-t", m.leader, "-m", "-u", "-i", "-n", "-p", "-C", "env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "NO_COLOR=1", "timeout", "300", "bash", "-s")
	shell.Stdin = strings.NewReader(script.String())
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	printed := strings.Split(string(out), mark)
	if len(printed) < 15 {
		t.Fatalf("only %d lines were typed", len(printed)-1)
	}
	now := blocks.ReplaceAllStringFunc(text, func(block string) string {
		parts := blocks.FindStringSubmatch(block)
		var b strings.Builder
		for line := range strings.Lines(parts[2]) {
			if strings.HasPrefix(line, "$ ") {
				b.WriteString(line + printed[0])
				printed = printed[1:]
			}
		}
		return parts[1] + b.String() + parts[3]
	})
	if plain(now) == plain(text) {
		return
	}
	if *update {
		if err := os.WriteFile(name, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s shows something else than the machine:\n%s", name, strings.Join(blocks.FindAllString(now, -1), "\n"))
}

// clients lays the packages of the clients, as the checkout makes them, into root's home.
func (m *machine) clients() {
	m.t.Helper()
	build := m.t.TempDir()
	for _, name := range []string{"python", "typescript"} {
		if err := os.CopyFS(filepath.Join(build, name), os.DirFS("../../clients/"+name)); err != nil {
			m.t.Fatal(err)
		}
	}
	home := filepath.Join(m.root, "root")
	run(m.t, "python3", "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--wheel-dir", home, filepath.Join(build, "python"))
	run(m.t, "sh", filepath.Join(build, "typescript", "pack.sh"))
	m.take(filepath.Join(build, "typescript", "tgad-0.1.0.tgz"), "root/tgad-0.1.0.tgz")
}
