//go:build unix

package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/tgad/tgad/internal/testlog"
)

// live is a verb that runs in this process, with a client on its stdin and stdout.
type live struct {
	t       *testing.T
	dir     string
	conf    string // the configuration
	in      *io.PipeWriter
	answers *bufio.Reader
	log     *testlog.Buffer
	heard   []string // received notifications
	id      int
	done    chan error
}

// goes starts a verb with a configuration, in a directory with a tool server. The tool server answers each call with
// its round, and can hold a call until a file exists.
func goes(t *testing.T, verb func(*Streams, *string) *cobra.Command, conf string, args ...string) *live {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad-cli-reload-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := strings.Replace(scripted, `*tools/call*) printf`, `*tools/call*) case "$line" in *hold*) : > under; while [ ! -e over ]; do sleep 0.02; done;; esac; printf`, 1)
	server = strings.Replace(server, `"text":"done"`, `"text":"done by %s"`, 1)
	server = strings.Replace(server, `}]}}\n' "$id";;
esac`, `}]}}\n' "$id" "$ROUND";;
esac`, 1)
	server = strings.Replace(server, `{"name":"charge","inputSchema"`, `{"name":"charge","description":"%s","inputSchema"`, 1)
	server = strings.Replace(server, `}]}}\n' "$id";;
*tools/call*)`, `}]}}\n' "$id" "$SAYS";;
*tools/call*)`, 1)
	t.Setenv("TGAD_DATA", "")
	t.Setenv("TGAD_SOCKET", "")
	l := &live{t: t, dir: dir, log: &testlog.Buffer{}, done: make(chan error, 1)}
	l.write("server", server)
	l.file(conf)
	in, client := io.Pipe()
	out, back := io.Pipe()
	l.in, l.answers = client, bufio.NewReader(out)
	socket := filepath.Join(dir, "none")
	c := verb(&Streams{In: in, Out: back, Err: l.log}, &socket)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"--config", filepath.Join(dir, "tgad.toml"), "--data", filepath.Join(dir, "log")}, args...))
	go func() {
		err := c.ExecuteContext(t.Context())
		_ = back.CloseWithError(io.EOF)
		l.done <- err
	}()
	t.Cleanup(func() {
		_ = client.Close()
		go func() { _, _ = io.Copy(io.Discard, l.answers) }()
		if err := <-l.done; err != nil {
			t.Error(err)
		}
	})
	l.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	l.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return l
}

func (l *live) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *live) file(conf string) {
	l.conf = conf
	l.write("tgad.toml", conf)
}

func (l *live) say(line string) {
	l.t.Helper()
	if _, err := fmt.Fprintln(l.in, line); err != nil {
		l.t.Fatal(err)
	}
}

// send makes a request and returns its id.
func (l *live) send(method, params string) string {
	l.t.Helper()
	l.id++
	l.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, l.id, method, params))
	return fmt.Sprintf(`"id":%d,`, l.id)
}

func (l *live) answer(id string) string {
	l.t.Helper()
	for {
		line, err := l.answers.ReadString('\n')
		if err != nil {
			l.t.Fatalf("%v\n%s", err, l.log)
		}
		if strings.Contains(line, id) {
			return line
		}
		l.heard = append(l.heard, line)
	}
}

func (l *live) ask(method, params string) string {
	l.t.Helper()
	return l.answer(l.send(method, params))
}

func (l *live) call(tool, args string) string {
	l.t.Helper()
	return l.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
}

// hangup sends the signal and waits for what the log says of it.
func (l *live) hangup(words string) {
	l.t.Helper()
	before := strings.Count(l.log.String(), words)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		l.t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); strings.Count(l.log.String(), words) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			l.t.Fatalf("the log has no %q:\n%s", words, l.log)
		}
	}
}

// becomes changes the file and waits until the new configuration has taken effect.
func (l *live) becomes(changed string, replace ...string) {
	l.t.Helper()
	l.file(strings.NewReplacer(replace...).Replace(l.conf))
	if strings.Contains(changed, " ") {
		changed = `"` + changed + `"`
	}
	l.hangup("configuration reloaded\" changed=" + changed)
}

const (
	holdsStill = "the new configuration was refused, the current one stays"
	oneServer  = "[[server]]\nid = \"s\"\ntype = \"mcp-command\"\ncommand = [\"/bin/sh\", \"server\"]\ndir = \".\"\nenv = { ROUND = \"1\" }\n"
)

// TestGatewayReloads: on SIGHUP the names, lists, quotas, servers, their secrets, identities and rules of the file take
// effect, also for a connected client. A call under way ends at the server that has it.
func TestGatewayReloads(t *testing.T) {
	const ann = "[[gateway.identity]]\nname = \"ann\"\nkey_sha256 = \"abababababababababababababababababababababababababababababababab\"\n"
	l := goes(t, Gateway, "allow_all = true\n[gateway]\nmetrics = \"unix:m\"\n"+oneServer+ann, "--identity", "ann")
	is := func(tool, args, want string) {
		t.Helper()
		if got := l.call(tool, args); !strings.Contains(got, want) {
			t.Errorf("%s %s: %s lacks %s", tool, args, got, want)
		}
	}
	is("s__charge", `{"n":1}`, "done by 1")
	l.hangup("configuration reloaded\" changed=[]")
	l.becomes("[server.prefix]", `env = {`, "prefix = \"p_\"\nenv = {")
	is("s__charge", `{"n":2}`, "NOT_FOUND")
	is("p_charge", `{"n":2}`, "done by 1")
	l.becomes("[server.deny]", `env = {`, "deny = [\"look\"]\nenv = {")
	is("p_look", `{}`, "POLICY_VIOLATION")
	l.becomes("[gateway.identity.deny]", `key_sha256`, "deny = [\"p_put*\"]\nkey_sha256")
	is("p_put/it", `{}`, "POLICY_VIOLATION")
	if got := l.ask("tools/list", `{}`); !strings.Contains(got, "p_charge") || strings.Contains(got, "p_look") || strings.Contains(got, "p_put") {
		t.Errorf("the list is %s", got)
	}
	if n := strings.Count(strings.Join(l.heard, ""), "notifications/tools/list_changed"); n != 3 {
		t.Errorf("the client hears %d times of another list: %q", n, l.heard)
	}
	l.becomes("[gateway.identity.limit]", `key_sha256`, "limit = [{ calls = 1, per = \"1h\" }]\nkey_sha256")
	is("p_charge", `{"n":3}`, "done by 1")
	is("p_charge", `{"n":4}`, "RATE_LIMITED")
	l.hangup("configuration reloaded\" changed=[]")
	is("p_charge", `{"n":4}`, "RATE_LIMITED") // it is not given once more
	l.becomes("[gateway.identity.limit]", "limit = [{ calls = 1, per = \"1h\" }]\n", "")

	// Another program for the server, while its call runs, and then no such server at all.
	held := l.send("tools/call", `{"name":"p_charge","arguments":{"hold":1}}`)
	l.await("under")
	l.becomes("[server.env]", `ROUND = "1"`, `ROUND = "2"`)
	is("p_charge", `{"n":5}`, "done by 2")
	l.write("env", "ROUND=3\n")
	l.becomes("[server.env_file]", `env = {`, "env_file = \"env\"\nenv = {")
	is("p_charge", `{"n":6}`, "done by 3")
	l.write("env", "ROUND=4\n")
	l.hangup("configuration reloaded\" changed=[]")
	is("p_charge", `{"n":7}`, "done by 4")
	other := strings.NewReplacer(`id = "s"`, `id = "z"`, `ROUND = "1"`, `ROUND = "5"`).Replace(oneServer)
	l.becomes("[server]", l.conf[strings.Index(l.conf, "[[server]]"):strings.Index(l.conf, "[[gateway.identity]]")], other)
	is("p_charge", `{"n":8}`, "NOT_FOUND")
	is("z__charge", `{"n":8}`, "done by 5")
	l.write("over", "")
	if got := l.answer(held); !strings.Contains(got, "done by 1") {
		t.Errorf("the call that was under way: %s", got)
	}
	l.gone(`ROUND=1`)

	// The rules of its own log.
	l.becomes("[allow_all]", "allow_all = true\n", "allow_all = false\n")
	is("z__charge", `{"n":9}`, "was denied")
	l.becomes("[rule]", "allow_all = false\n", "[[rule]]\ntool = \"charge\"\ndecision = \"APPROVE\"\n")
	is("z__charge", `{"n":10}`, "done by 5")
	if got := scrape(t, filepath.Join(l.dir, "m")); !strings.Contains(got, "tgad_gateway_config_reload_success 1\n") {
		t.Error("the metric does not say that the newest configuration holds")
	}
}

// TestShimAsksTheFileThatHolds: for each call a shim looks up the place of the key, and what to do with a changed
// definition, in the current file. The tool server is not restarted for that.
func TestShimAsksTheFileThatHolds(t *testing.T) {
	l := goes(t, Gateway, "allow_all = true\n"+strings.Replace(oneServer, "env = {", "drift = \"block\"\nenv = {", 1))
	is := func(args, want string) {
		t.Helper()
		if got := l.call("s__charge", args); !strings.Contains(got, want) {
			t.Errorf("%s: %s lacks %s", args, got, want)
		}
	}
	l.ask("tools/list", `{}`)
	is(`{"k":"1","n":1}`, "done by 1")
	l.becomes("[tool]", "[[server]]", "[[tool]]\nserver = \"s\"\nname = \"charge\"\nkey = { from = \"/k\" }\n[[server]]")
	is(`{"k":"1","n":1}`, "done by 1")
	is(`{"k":"1","n":1}`, "dev.tgad/replayed")
	l.becomes("[tool.log]", "key = {", "log = \"none\"\nkey = {")
	if got := l.call("s__charge", `{"k":"1","n":1}`); strings.Contains(got, "dev.tgad/replayed") {
		t.Errorf("a call that is to pass: %s", got)
	}
	l.becomes("[server.env tool.log]", "log = \"none\"\n", "", `ROUND = "1"`, `ROUND = "2", SAYS = "another one"`)
	is(`{"k":"2","n":2}`, "CHANGED")
	l.becomes("[server.drift]", `drift = "block"`, `drift = "report"`)
	is(`{"k":"3","n":3}`, "done by 2")
}

// await waits for a file.
func (l *live) await(name string) {
	l.t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(l.dir, name)); err == nil {
			return
		}
		if time.Now().After(until) {
			l.t.Fatalf("there is no %s:\n%s", name, l.log)
		}
	}
}

// gone waits until no process that runs in the directory has a variable.
func (l *live) gone(variable string) {
	l.t.Helper()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return // of a system that does not say
	}
	runs := func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range all {
			raw, err := os.ReadFile(name)
			at, _ := os.Readlink(filepath.Join(filepath.Dir(name), "cwd"))
			if err == nil && at == l.dir && slices.Contains(strings.Split(string(raw), "\x00"), variable) {
				return true
			}
		}
		return false
	}
	for until := time.Now().Add(20 * time.Second); runs(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			l.t.Fatalf("a process with %s runs still", variable)
		}
	}
}

// TestGatewayTakesAllOrNothing: a file with a mistake in any part, and a file that changes a key that takes a restart, are
// refused with an error that names the part. Then the old file stays in effect in every part.
func TestGatewayTakesAllOrNothing(t *testing.T) {
	conf := "allow_all = true\n[store]\nmemtable_bytes = \"1MiB\"\n[gateway]\nmetrics = \"unix:m\"\n" + oneServer
	l := goes(t, Gateway, conf)
	lax := "prefix = \"\"\n" // stands beside the mistake, and would be seen
	for _, c := range []struct{ from, to, want string }{
		{"ROUND", "ROUND\" = 1", "tgad.toml:"},
		{"dir = \".\"", "dir = \".\"\nheaders_file = \"nowhere\"", "headers_file"},
		{"dir = \".\"", "dir = \".\"\nenv_file = \"nowhere\"", "env_file"},
		{"[store]", "[[server]]\nid = \"b\"\ntype = \"mcp-command\"\ncommand = [\"x\"]\nprefix = \"\"\n[store]", "could not be told apart"},
		{"[store]\nmemtable_bytes = \"1MiB\"", "[store]\nmemtable_bytes = \"2MiB\"", "needs a restart: store.memtable_bytes"},
		{"\"unix:m\"", "\"unix:n\"", "needs a restart: gateway.metrics"},
		{"metrics = \"unix:m\"\n", "metrics = \"unix:m\"\nmode = \"observe\"\n", "needs a restart: gateway.mode"},
		{"dir = \".\"", "dir = \".\"\nworkspace = \"w\"", "needs a restart: server.workspace"},
		{"[gateway]", "[[gateway.identity]]\nname = \"ann\"\nkey_sha256 = \"" + strings.Repeat("ab", 32) + "\"\n[gateway]", "--identity says who"},
		{"allow_all = true", "allow_all = true\n[[rule]]\ndecision = \"DENY\"\nclass = \"x\"", "tgad.toml:"},
	} {
		l.file(strings.Replace(strings.Replace(conf, "env = {", lax+"env = {", 1), c.from, c.to, 1))
		l.hangup(holdsStill)
		lines := strings.Split(strings.TrimSpace(l.log.String()), holdsStill)
		if last := lines[len(lines)-1]; !strings.Contains(last, c.want) {
			t.Errorf("%q: the log says %s, want %s", c.to, last, c.want)
		}
		if got := l.call("s__charge", fmt.Sprintf(`{"n":%q}`, c.to)); !strings.Contains(got, "done by 1") {
			t.Errorf("after %q: %s", c.to, got)
		}
		if got := l.call("charge", `{}`); !strings.Contains(got, "NOT_FOUND") {
			t.Errorf("%q: a part of the file was taken: %s", c.to, got)
		}
		if got := scrape(t, filepath.Join(l.dir, "m")); !strings.Contains(got, "tgad_gateway_config_reload_success 0\n") {
			t.Errorf("after %q the metric does not say that it was refused", c.to)
		}
	}
	l.file(conf)
	l.becomes("[server.prefix]", "env = {", lax+"env = {")
	if got := l.call("charge", `{"n":"last"}`); !strings.Contains(got, "done by 1") {
		t.Errorf("the file is right at last: %s", got)
	}
}

// TestShimReloads: a shim with a file applies what the file says about its server's tools, and refuses a change that takes
// a restart. It ignores what the file says about other servers.
func TestShimReloads(t *testing.T) {
	conf := "allow_all = true\n[[server]]\nid = \"s\"\ntype = \"external\"\n[[tool]]\nserver = \"s\"\nname = \"charge\"\nkey = { from = \"/k\" }\n"
	l := goes(t, MCP, conf, "--server-id", "s", "--", "/bin/sh", "-c", "cd "+os.TempDir()+"; "+scripted)
	is := func(args, want string, replayed bool) {
		t.Helper()
		if got := l.call("charge", args); !strings.Contains(got, want) || strings.Contains(got, "dev.tgad/replayed") != replayed {
			t.Errorf("%s: %s, want %s, replayed %v", args, got, want, replayed)
		}
	}
	is(`{"k":"1","j":"1"}`, "done", false)
	is(`{"k":"1","j":"1"}`, "done", true)
	l.becomes("[tool.key.from]", `"/k"`, `"/j"`)
	is(`{"k":"1","j":"2"}`, "done", false)
	l.becomes("[tool.log]", "key = {", "log = \"none\"\nkey = {")
	is(`{"k":"1","j":"2"}`, "done", false)
	l.becomes("[tool.log]", "log = \"none\"\n", "")
	is(`{"k":"1","j":"2"}`, "done", true)
	l.becomes("[server tool]", "[[tool]]", "[[server]]\nid = \"other\"\ntype = \"external\"\ntrusted = true\n[[tool]]\nserver = \"other\"\nname = \"x\"\nlog = \"none\"\n[[tool]]")
	good := l.conf
	l.file(strings.Replace(good, "type = \"external\"", "type = \"external\"\ncall_ids = [\"x\"]", 1))
	l.hangup("needs a restart: server.call_ids")
	l.file(strings.Replace(good, "allow_all", "allow_al", 1))
	l.hangup(holdsStill)
	is(`{"k":"1","j":"2"}`, "done", true)
	l.file(good)
	l.becomes("[allow_all]", "allow_all = true\n", "allow_all = false\n")
	is(`{"j":"3"}`, "was denied", false)
}
