package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// transcript is a page whose ```console blocks are one session of a shell: lines that begin with "$ " are
// typed, verbatim, and the lines below are the expected output. A ```toml block, and one of a program, is a
// file: its name is in bold code in the line before it.
type transcript struct {
	t       *testing.T
	page    string
	env     []string
	shell   *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	took    []time.Duration // of each block
	wrap    []string        // put before the shell
	seconds func() string   // the text between the marks of seconds
}

// replay runs a page in an empty directory and compares the output, except for what differs each time: ids,
// digests, keys, times. With -update it writes the current output into the page.
func (s *transcript) replay(home string) {
	s.t.Helper()
	raw, err := os.ReadFile(s.page)
	if err != nil {
		s.t.Fatal(err)
	}
	s.start(home)
	text := string(raw)
	var now strings.Builder
	rest := 0
	for _, at := range fences.FindAllStringSubmatchIndex(text, -1) {
		lang, block := text[at[2]:at[3]], text[at[4]:at[5]]
		now.WriteString(text[rest:at[4]])
		rest = at[5]
		if lang != "console" {
			if name := named.FindStringSubmatch(text[:at[0]]); name != nil {
				s.say("cat > " + name[1] + " <<'END OF FILE'\n" + block + "END OF FILE")
			}
			now.WriteString(block)
			continue
		}
		began := time.Now()
		now.WriteString(s.block(block))
		s.took = append(s.took, time.Since(began))
	}
	now.WriteString(text[rest:])
	if len(s.took) < 5 {
		s.t.Fatalf("%s has only %d blocks for the shell", s.page, len(s.took))
	}
	if s.seconds != nil {
		page := seconds.ReplaceAllString(now.String(), "${1}"+s.seconds()+"${2}")
		now.Reset()
		now.WriteString(page)
	}
	if plain(now.String()) == plain(text) {
		return
	}
	if *update {
		if err := os.WriteFile(s.page, []byte(now.String()), 0o644); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	was, is := strings.Split(plain(text), "\n"), strings.Split(plain(now.String()), "\n")
	for i := range max(len(was), len(is)) {
		if i >= len(was) || i >= len(is) || was[i] != is[i] {
			s.t.Fatalf("%s is another one from here on (go test ./cmd/tgad -run %s -update):\n%s\nand is now:\n%s",
				s.page, s.t.Name(), strings.Join(was[min(i, len(was)):min(i+6, len(was))], "\n"), strings.Join(is[min(i, len(is)):min(i+6, len(is))], "\n"))
		}
	}
}

// seconds is where a page states how long things took.
var seconds = regexp.MustCompile(`(?s)(<!-- seconds -->\n).*(<!-- end -->)`)

// named is a line before a block that names the file of the block.
var named = regexp.MustCompile("\\*\\*`([a-z.]+)`\\*\\*[^\n]*\n\n$")

// start starts a shell that ends with the test, together with its processes.
func (s *transcript) start(home string) {
	s.t.Helper()
	line := append(s.wrap, "bash", "--norc", "--noprofile")
	s.shell = exec.Command(line[0], line[1:]...)
	s.shell.Dir, s.shell.Env = home, s.env
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.shell.Stdout, s.shell.Stderr = write, write
	if s.in, err = s.shell.StdinPipe(); err == nil {
		err = s.shell.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.out = bufio.NewReader(read)
	s.t.Cleanup(func() {
		if err := syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL); err != nil {
			s.t.Error(err)
		}
		_ = s.shell.Wait() // it was killed
		if err := read.Close(); err != nil {
			s.t.Error(err)
		}
	})
	if err := write.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.say("umask 022") // how modes are printed
}

// block types the lines of a block and returns it with their current output.
func (s *transcript) block(block string) string {
	var now strings.Builder
	for line := range strings.Lines(block) {
		if typed, ok := strings.CutPrefix(line, "$ "); ok {
			now.WriteString(line)
			now.WriteString(s.say(strings.TrimSuffix(typed, "\n")))
		}
	}
	return now.String()
}

// endOfOutput follows the output of each line of the shell.
const endOfOutput = "\x1e"

// aside is what a shell without a terminal prints about jobs that were killed.
var aside = regexp.MustCompile(`(?m)^bash: line \d+: +\d+ Killed .*\n`)

// say types one line and returns its output. The shell reads the further lines, not a program that it
// starts.
func (s *transcript) say(line string) string {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, "{ %s\n} < /dev/null; printf '\\036'\n", line); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	late := time.AfterFunc(2*time.Minute, func() {
		_ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) // a test that hangs prints nothing
	})
	defer late.Stop()
	printed, err := s.out.ReadString(endOfOutput[0])
	if err != nil {
		s.t.Fatalf("%s: the shell ended: %v\n%s", line, err, printed)
	}
	printed = aside.ReplaceAllString(strings.TrimSuffix(printed, endOfOutput), "")
	if printed != "" && !strings.HasSuffix(printed, "\n") {
		printed += "\n"
	}
	return printed
}

// differs lists what differs from run to run, and what replaces it.
var differs = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), ""}, // numbered below
	{regexp.MustCompile(`\b([0-9a-f]{12}|[0-9a-f]{16,64})\b`), "DIGEST"},
	{regexp.MustCompile(`\bhead [A-Za-z0-9+/]{43}=`), "head DIGEST"},
	{regexp.MustCompile(`\buid:\d+`), "uid:N"},
	{regexp.MustCompile(`\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{20,}`), "+KEY"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(ms|µs|s)\b`), "SPAN"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(` \n`), "\n"},
}

// plain replaces the parts of a text that differ. An id becomes a number, and the same id always the same
// number.
func plain(text string) string {
	ids := map[string]string{}
	for _, d := range differs {
		if d.as != "" {
			text = d.what.ReplaceAllString(text, d.as)
			continue
		}
		text = d.what.ReplaceAllStringFunc(text, func(id string) string {
			if ids[id] == "" {
				ids[id] = fmt.Sprintf("ID-%d", len(ids)+1)
			}
			return ids[id]
		})
	}
	return text
}

// TestTutorialRuns types docs/TUTORIAL.md into a shell, with kill -9 where the page has it.
func TestTutorialRuns(t *testing.T) {
	home, err := os.MkdirTemp("", "tgad-tut-") // a path that is not too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	s := &transcript{t: t, page: "../../docs/TUTORIAL.md", env: emptyHome(home)}
	s.replay(home)
	var all time.Duration
	for _, d := range s.took {
		all += d
	}
	t.Logf("its commands took %s", all.Round(time.Millisecond))
}

// emptyHome returns the environment of a user who has only the programs of this machine.
func emptyHome(home string) []string {
	return []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "NO_COLOR=1", "LC_ALL=C.UTF-8", "XDG_RUNTIME_DIR=" + filepath.Join(home, "run")}
}
