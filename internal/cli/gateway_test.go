//go:build unix

package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runGateway runs the verb gateway with a configuration in dir, and with a log of its own there.
func runGateway(t *testing.T, dir, conf, in string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(dir, "gateway.toml")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TGAD_DATA", "")
	t.Setenv("TGAD_SOCKET", "")
	var out, errs bytes.Buffer
	socket := filepath.Join(dir, "none")
	c := Gateway(&Streams{In: strings.NewReader(in), Out: &out, Err: &errs}, &socket)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append(args, "--config", file, "--data", filepath.Join(dir, "log")))
	err := c.ExecuteContext(t.Context())
	return out.String() + errs.String(), err
}

// TestSecretsOfAServerAreNowhere: a server gets the secrets of the file in its environment. Nothing that
// the gateway writes contains them: not the log, not its own messages, not an error.
func TestSecretsOfAServerAreNowhere(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-cli-gw-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const secret = "s3cret-of-the-server"
	env, script := filepath.Join(dir, "env"), filepath.Join(dir, "server")
	got := filepath.Join(dir, "got")
	for name, text := range map[string]string{env: "TOKEN=" + secret + "\n", script: "[ ${#TOKEN} = 20 ] && : > " + got + "\n" + scripted} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := "allow_all = true\n[[server]]\nid = \"s\"\ntype = \"mcp-command\"\ncommand = [\"/bin/sh\", \"server\"]\ndir = \".\"\nenv_file = \"env\"\nenv = { TOKEN = \"no\" }\n"
	in := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__charge","arguments":{}}}` + "\n"
	said, err := runGateway(t, dir, conf, in, "--log-level", "debug")
	if err != nil || !strings.Contains(said, `"text":"done"`) {
		t.Fatalf("%v\n%s", err, said)
	}
	if _, err := os.Stat(got); err != nil {
		t.Error("the server has not got its secret")
	}
	if err := os.WriteFile(env, []byte("TOKEN "+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong, err := runGateway(t, dir, conf, in)
	if err == nil {
		t.Error("a file that is none was taken")
	} else {
		wrong += err.Error()
	}
	if strings.Contains(said+wrong, secret) {
		t.Errorf("the gateway says the secret:\n%s\n%s", said, wrong)
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || name == env {
			return err
		}
		raw, err := os.ReadFile(name)
		if bytes.Contains(raw, []byte(secret)) {
			t.Errorf("%s has the secret", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestGatewayThatCannotBe: each wrong configuration is refused with a reason.
func TestGatewayThatCannotBe(t *testing.T) {
	server := func(id, more string) string {
		return "[[server]]\nid = \"" + id + "\"\ntype = \"mcp-command\"\ncommand = [\"/bin/true\"]\n" + more + "\n"
	}
	for _, c := range []struct {
		conf string
		args []string
		want string
	}{
		{"", nil, "nothing to put behind"},
		{server("a", `prefix = "x_"`) + server("b", `prefix = "x_"`), nil, "could not be told apart"},
		{server("a.b", "") + server("a_b", ""), nil, "could not be told apart"},
		{server("a", "") + "[[gateway.identity]]\nname = \"ann\"\nkey_sha256 = \"" + strings.Repeat("ab", 32) + "\"\n", nil, "--identity says"},
		{server("a", "") + "[[gateway.identity]]\nname = \"ann\"\nkey_sha256 = \"" + strings.Repeat("ab", 32) + "\"\n", []string{"--identity", "eve"}, "no such identity"},
		{server("a", ""), []string{"--listen", "0.0.0.0:0"}, "an address of this machine"},
		{server("a", ""), []string{"accept", "b"}, "no server"},
		{"[[server]]\nid = \"u\"\ntype = \"mcp-url\"\nurl = \"https://u.example/mcp\"\nforward_auth = \"header\"\n", nil, "a client on stdin sends no credentials"},
	} {
		if _, err := runGateway(t, t.TempDir(), c.conf, "", c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v\n%v, want %q", c.conf, c.args, err, c.want)
		}
	}
}
