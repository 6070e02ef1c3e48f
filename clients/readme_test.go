//go:build unix

package clients

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime/client"
)

var fences = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```")

// page is a README whose code blocks are run in their order, verbatim.
type page struct {
	t      *testing.T
	dir    string
	env    []string
	client *client.Client
	wrote  int
	output string
	// script is the command that runs a block of a language, by the file of the block.
	script map[string]func(file string) []string
	ending map[string]string
	// work is the directory in which command lines run and which has the files of an example. A block that
	// shows one of these files is not run by itself.
	work string
}

func newPage(t *testing.T) *page {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad-readme-")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, dir: dir, client: client.New(filepath.Join(dir, "tgad.sock"), client.Options{Name: "test"})}
	p.env = append(os.Environ(), "TGAD_SOCKET="+filepath.Join(dir, "tgad.sock"), "PYTHONDONTWRITEBYTECODE=1")
	t.Cleanup(func() {
		p.client.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *page) run(path string) {
	p.t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	texts := 0
	for _, m := range fences.FindAllStringSubmatch(string(raw), -1) {
		switch lang, block := m[1], m[2]; lang {
		case "toml":
			p.write("tgad.toml", block)
		case "sh":
			p.shell(block)
		case "text":
			texts++
			if p.output != block {
				p.t.Errorf("%s says that this is printed:\n%s\nand it is:\n%s", path, block, p.output)
			}
		default:
			p.program(lang, block)
		}
		if p.t.Failed() {
			return
		}
	}
	if texts < 3 {
		p.t.Errorf("%s has only %d outputs", path, texts)
	}
}

func (p *page) write(name, text string) string {
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// shell runs a command line: an installation in the checkout, the daemon in the background.
func (p *page) shell(line string) {
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Dir, cmd.Env = p.dir, p.env
	switch {
	case line == packing:
		return // the installed package was made by this command
	case strings.HasPrefix(line, "python3 -m pip "):
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return
	case !strings.HasPrefix(line, "tgad serve "):
		cmd = exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = p.work, p.env
		out, err := cmd.CombinedOutput()
		if p.output = string(out); err != nil {
			p.t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			p.t.Errorf("%s: %v", line, err)
		}
		_ = cmd.Wait() // it was killed
	})
	if err := until(func() error { return p.client.Ready(p.t.Context()) }); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
}

// program runs a block. A block with exit(9) ends with that, as after a power cut.
func (p *page) program(lang, block string) {
	if p.work != "" {
		p.listed(block)
		return
	}
	p.wrote++
	if p.script[lang] == nil {
		p.t.Fatalf("nothing runs a block of %s", lang)
	}
	line := p.script[lang](p.write("block"+string(rune('a'+p.wrote))+p.ending[lang], block))
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Env = p.dir, p.env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	want := 0
	if strings.Contains(block, "exit(9)") {
		want = 9
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		p.t.Errorf("exit code %d, want %d:\n%s\n%s", got, want, block, errs.String())
	}
	p.output = string(out)
}

// listed finds the file of an example that a block shows.
func (p *page) listed(block string) {
	files, err := filepath.Glob(filepath.Join(p.work, "*.mjs"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && string(text) == block {
			return
		}
	}
	p.t.Errorf("no file of the example is:\n%s", block)
}

// TestPythonReadmeRuns installs the package as its README says, and runs everything in it.
func TestPythonReadmeRuns(t *testing.T) {
	t.Parallel()
	program := python(t)
	if err := exec.Command(program, "-m", "pip", "--version").Run(); err != nil {
		serial.Missing(t, "pip of this Python", err)
	}
	p := newPage(t)
	site := filepath.Join(p.dir, "site")
	p.env = append(p.env, "PIP_NO_INDEX=1", "PIP_NO_COMPILE=1", "PIP_TARGET="+site, "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_ROOT_USER_ACTION=ignore", "PYTHONPATH="+site)
	p.script = map[string]func(string) []string{"python": func(file string) []string { return []string{program, file} }}
	p.ending = map[string]string{"python": ".py"}
	p.run("python/README.md")
}

// TestTypescriptReadmeRuns installs the package from its tarball, and runs everything in its README.
func TestTypescriptReadmeRuns(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	p := newPage(t)
	if err := os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(p.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	p.script = map[string]func(string) []string{"js": func(file string) []string { return []string{"node", file} }}
	p.ending = map[string]string{"js": ".mjs"}
	p.run("typescript/README.md")
}

// TestFrameworksAreGoverned runs the page of each agent framework with its package from npm: before and
// after, killed after the charge, settled, served.
func TestFrameworksAreGoverned(t *testing.T) {
	serial.Long(t)
	dir := installed(t)
	for _, name := range []string{"vercel-ai", "openai-agents", "langgraph", "mastra", "claude-agent"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPage(t)
			examples := filepath.Join(p.dir, "frameworks")
			p.work = filepath.Join(examples, name)
			if err := os.CopyFS(examples, os.DirFS("../examples/frameworks")); err != nil {
				t.Fatal(err)
			}
			found, err := modules(serial.Program(t, "npm"), p.work)
			if err != nil {
				t.Fatal(err)
			}
			for from, to := range map[string]string{found: p.work, filepath.Join(dir, "node_modules"): examples} {
				if err := os.Symlink(from, filepath.Join(to, "node_modules")); err != nil {
					t.Fatal(err)
				}
			}
			p.run(filepath.Join("..", "examples", "frameworks", name, "README.md"))
		})
	}
}
