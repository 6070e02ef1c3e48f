package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/cli"
)

// diesOnce is a tool server that dies in its first call, after the effect, and answers later calls. It
// writes one line for each call.
const diesOnce = `
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9][0-9]*\).*/\1/p')
  case "$line" in
  *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}\n' "$id";;
  *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"charge","description":"%s","inputSchema":{}}]}}\n' "$id" "$(cat "$0.says")";;
  *'"tools/call"'*)
    echo ran >> "$0.journal"
    [ "$(wc -l < "$0.journal")" -gt 1 ] || exit 3
    printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"fine"}]}}\n' "$id";;
  esac
done
`

// hinted is a shim whose client is told which commands to type, and the shell that runs them.
type hinted struct {
	t       *testing.T
	dir     string
	env     []string
	command []string
	cmd     *exec.Cmd
	in      *os.File
	out     *bufio.Reader
	id      int
}

func newHinted(t *testing.T, daemon bool) *hinted {
	t.Helper()
	// Not t.TempDir: its path may be too long for a socket. The path has characters that a shell must be
	// told about.
	dir, err := os.MkdirTemp("", "tgad's hints ")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bin := filepath.Join(dir, "bin")
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(bin, 0o700)
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "tgad"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "server"), []byte(diesOnce), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &hinted{t: t, dir: dir, env: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir}}
	data := filepath.Join(dir, "data")
	h.command = []string{"mcp", "--server-id", "x", "--data", data, "--", "sh", filepath.Join(dir, "server")}
	if daemon {
		socket := filepath.Join(dir, "s")
		conf := filepath.Join(dir, "tgad.toml")
		if err := os.WriteFile(conf, []byte("allow_all = true\n[[server]]\nid = \"x\"\ntype = \"external\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.serve("serve", "--data", data, "--socket", socket, "--config", conf)
		for at := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if c, err := net.Dial("unix", socket); err == nil { // its file exists before anybody listens
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				break
			} else if time.Since(at) > 20*time.Second {
				t.Fatal("the daemon does not come up")
			}
		}
		h.command = []string{"mcp", "--server-id", "x", "--socket", socket, "--state", filepath.Join(dir, "state"), "--", "sh", filepath.Join(dir, "server")}
	}
	t.Cleanup(h.stop)
	return h
}

func (h *hinted) tgad(args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(h.dir, "bin", "tgad"), args...)
	c.Env, c.Stderr = h.env, os.Stderr
	return c
}

func (h *hinted) serve(args ...string) {
	h.t.Helper()
	c := h.tgad(args...)
	if err := c.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Process.Signal(syscall.SIGTERM); _ = c.Wait() })
}

func (h *hinted) start() {
	h.t.Helper()
	if h.cmd != nil {
		return
	}
	h.cmd = h.tgad(h.command...)
	in, w, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	h.cmd.Stdin = in
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	_ = in.Close()
	h.in, h.out = w, bufio.NewReader(out)
	h.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
	fmt.Fprintln(h.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (h *hinted) stop() {
	if h.cmd == nil {
		return
	}
	_ = h.in.Close()
	_ = h.cmd.Wait()
	h.cmd = nil
}

// ask returns the text of the answer.
func (h *hinted) ask(method, params string) string {
	h.t.Helper()
	h.id++
	fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", h.id, method, params)
	said, err := h.read()
	if err != nil {
		h.t.Fatalf("no answer: %v", err)
	}
	return said
}

// read returns the text of the next message.
func (h *hinted) read() (string, error) {
	line, err := h.out.ReadString('\n')
	if err != nil {
		return "", err
	}
	var m struct {
		Result        struct{ Content []struct{ Text string } }
		Error, Params struct{ Message string }
	}
	if json.Unmarshal([]byte(line), &m) != nil {
		return line, nil
	}
	if len(m.Result.Content) > 0 {
		return m.Result.Content[0].Text, nil
	}
	if said := m.Error.Message + m.Params.Message; said != "" {
		return said, nil
	}
	return line, nil
}

func (h *hinted) call() string {
	h.t.Helper()
	h.start()
	return h.ask("tools/call", `{"name":"charge","arguments":{"amount":1}}`)
}

func (h *hinted) effects() int {
	raw, err := os.ReadFile(filepath.Join(h.dir, "server.journal"))
	if err != nil {
		return 0
	}
	return strings.Count(string(raw), "\n")
}

// types runs a line as a person types it.
func (h *hinted) types(line string) string {
	h.t.Helper()
	c := exec.Command("/bin/sh", "-c", line)
	c.Env = h.env
	out, err := c.CombinedOutput()
	if err != nil {
		h.t.Errorf("%s\n%s%v", line, out, err)
	}
	return string(out)
}

var hintLine = regexp.MustCompile(`(?m)^  (tgad .*)$`)

// TestHintsOfACallInDoubtWork runs the commands that the client of a call in doubt is told to type,
// verbatim: with a log that the shim keeps itself, while the shim runs and afterwards, and with the log of a
// daemon.
func TestHintsOfACallInDoubtWork(t *testing.T) {
	for _, mode := range []string{"running", "stopped", "daemon"} {
		for choice, name := range []string{"show", "ran", "not-run", "abandon"} {
			if choice == 0 {
				continue
			}
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				h := newHinted(t, mode == "daemon")
				said := h.call()
				var lines []string
				for _, m := range hintLine.FindAllStringSubmatch(said, -1) {
					lines = append(lines, m[1])
				}
				if len(lines) != 4 || h.effects() != 1 {
					t.Fatalf("%d effects, told %q", h.effects(), said)
				}
				if mode == "stopped" {
					h.stop()
				}
				id := strings.Fields(lines[0])[2]
				if out := h.types(lines[0]); !strings.Contains(out, id) || !strings.Contains(out, "EXECUTING") {
					t.Errorf("shown %s", out)
				}
				h.types(lines[choice])
				again := h.call()
				switch name {
				case "ran":
					if h.effects() != 1 || !strings.Contains(again, "has run") || strings.Contains(again, "too long") || !strings.Contains(again, id) {
						t.Errorf("%d effects, told %s", h.effects(), again)
					}
					if next := h.call(); h.effects() != 2 || next != "fine" {
						t.Errorf("the next call: %d effects, %s", h.effects(), next)
					}
				case "not-run":
					if h.effects() != 2 || again != "fine" {
						t.Errorf("%d effects, told %s", h.effects(), again)
					}
				case "abandon":
					for range 2 {
						m := regexp.MustCompile(`"(tgad show [^"]*)"`).FindStringSubmatch(again)
						if h.effects() != 1 || m == nil {
							t.Fatalf("%d effects, told %s", h.effects(), again)
						}
						if out := h.types(m[1]); !strings.Contains(out, id) || !strings.Contains(out, "FAILED") {
							t.Errorf("shown %s", out)
						}
						again = h.call()
					}
				}
			})
		}
	}
}

// healthy replaces the tool server by one that does not die.
func (h *hinted) healthy() {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "server.journal"), []byte("ran\n"), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// hint returns the one command that the client was told to type.
func (h *hinted) hint(said string, from *regexp.Regexp) string {
	h.t.Helper()
	m := from.FindAllStringSubmatch(said, -1)
	if len(m) != 1 {
		h.t.Fatalf("told %q", said)
	}
	return m[0][1]
}

// TestHintOfAnApprovalWorks: when a call begins to wait, the client is told the command that approves it.
func TestHintOfAnApprovalWorks(t *testing.T) {
	t.Parallel()
	h := newHinted(t, false)
	h.healthy()
	conf := filepath.Join(h.dir, "rules.toml")
	if err := os.WriteFile(conf, []byte("[approval]\nself = true\n[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.command = append([]string{"mcp", "--config", conf}, h.command[1:]...)
	h.start()
	said := h.ask("tools/call", `{"name":"charge","arguments":{},"_meta":{"progressToken":"p"}}`)
	h.types(h.hint(said, regexp.MustCompile(`(?m)(tgad approve .*)$`)))
	if got, err := h.read(); err != nil || got != "fine" || h.effects() != 2 {
		t.Errorf("%d effects, got %s, %v", h.effects(), got, err)
	}
}

// TestHintOfAChangedDefinitionWorks: after the command in the hint, the same shim lets the call
// pass that it refused before.
func TestHintOfAChangedDefinitionWorks(t *testing.T) {
	for _, daemon := range []bool{false, true} {
		t.Run(fmt.Sprintf("daemon %t", daemon), func(t *testing.T) {
			t.Parallel()
			h := newHinted(t, daemon)
			h.healthy()
			says := func(what string) {
				if err := os.WriteFile(filepath.Join(h.dir, "server.says"), []byte(what), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			says("as it was")
			h.command = append([]string{"mcp", "--block-changed"}, h.command[1:]...)
			if got := h.call(); got != "fine" {
				t.Fatal(got)
			}
			h.stop()
			says("something else")
			h.types(h.hint(h.call(), hintLine))
			if got := h.call(); got != "fine" || h.effects() != 3 {
				t.Errorf("%d effects, got %s", h.effects(), got)
			}
		})
	}
}

// TestClientThatCannotAskSeesItsDoubts: while a call is in doubt, and only then, the list of tools
// has one that shows it, with its arguments and with commands that work. It settles nothing. A
// client that can ask its person is not offered it.
func TestClientThatCannotAskSeesItsDoubts(t *testing.T) {
	t.Parallel()
	h := newHinted(t, false)
	h.start()
	list := func() (got string) {
		for !strings.Contains(got, `"tools":`) { // a request may meet the tool server as it dies
			got = h.ask("tools/list", "{}")
		}
		return got
	}
	before := list()
	if strings.Contains(before, "tgad_in_doubt") {
		t.Errorf("offered with nothing in doubt: %s", before)
	}
	if said := h.call(); !strings.Contains(said, "The tool tgad_in_doubt of this server") {
		t.Errorf("told %s", said)
	}
	during := list()
	var tools struct {
		Result struct {
			Tools []struct {
				Name        string
				Annotations struct{ ReadOnlyHint bool }
			}
		}
	}
	if err := json.Unmarshal([]byte(during), &tools); err != nil || len(tools.Result.Tools) != 2 || tools.Result.Tools[0].Name != "charge" ||
		tools.Result.Tools[1].Name != "tgad_in_doubt" || !tools.Result.Tools[1].Annotations.ReadOnlyHint {
		t.Fatalf("%v\n%s", err, during)
	}
	show := func() (calls []struct {
		Tool, Arguments string
		Commands        []string
	}) {
		t.Helper()
		said := h.ask("tools/call", `{"name":"tgad_in_doubt","arguments":{}}`)
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(said), &m); err != nil {
			t.Fatalf("%s: %v", said, err)
		}
		if err := json.Unmarshal(m["calls_in_doubt"], &calls); err != nil {
			t.Fatalf("%s: %v", said, err)
		}
		return calls
	}
	calls := show()
	if len(calls) != 1 || calls[0].Tool != "charge" || calls[0].Arguments != `{"amount":1}` || len(calls[0].Commands) != 4 || h.effects() != 1 {
		t.Fatalf("%d effects, shown %+v", h.effects(), calls)
	}
	able := strings.Replace(h.ask("tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}`), "\n", "", 1)
	if strings.Contains(able, "tgad_in_doubt") {
		t.Errorf("offered to a client that can ask: %s", able)
	}
	h.types(calls[0].Commands[2]) // it did not run
	if calls = show(); len(calls) != 0 || strings.Contains(list(), "tgad_in_doubt") {
		t.Errorf("still in doubt: %+v", calls)
	}
	if got := h.call(); got != "fine" || h.effects() != 2 {
		t.Errorf("%d effects, %s", h.effects(), got)
	}
}

// TestStoreOfAShimIsFoundByTGADDATA: a socket that is named comes first, and if there is no store, none is
// made.
func TestStoreOfAShimIsFoundByTGADDATA(t *testing.T) {
	h := newHinted(t, false)
	h.call()
	h.stop()
	data := "TGAD_DATA=" + cli.ShellWord(filepath.Join(h.dir, "data"))
	if out := h.types(data + " tgad in-doubt || [ $? = 4 ]"); !strings.Contains(out, "charge") {
		t.Errorf("in doubt: %s", out)
	}
	if out := h.types(data + " tgad in-doubt --socket " + cli.ShellWord(h.dir+"/none") + " || [ $? = 1 ]"); !strings.Contains(out, "no daemon listens") {
		t.Errorf("with a socket: %s", out)
	}
	none := filepath.Join(h.dir, "none")
	if out := h.types("tgad in-doubt --data " + cli.ShellWord(none) + " || [ $? = 1 ]"); !strings.Contains(out, "no store") {
		t.Errorf("without a store: %s", out)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a directory was made")
	}
}
