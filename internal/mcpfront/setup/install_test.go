package setup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"

	"github.com/tgad/tgad/schemas/tga"
)

var (
	front   = Front{Program: "/opt/bin/tgad", Flags: []string{"--data", "/d"}}
	mcpJSON = Place{File: "mcp.json", Table: []string{"mcpServers"}}
	codex   = Place{File: "config.toml", Table: []string{"mcp_servers"}, TOML: true}
)

// forms are files as clients and people write them, each with the result of install.
var forms = []struct {
	name         string
	place        Place
	before, want string
}{
	{"one line", mcpJSON, `{"mcpServers":{"a":{"command":"npx","args":["-y","x"],"env":{"TOKEN":"t"}}}}`,
		`{"mcpServers":{"a":{"command":"/opt/bin/tgad","args":["mcp", "--server-id", "a", "--data", "/d", "--", "npx", "-y","x"],"env":{"TOKEN":"t"}}}}`},
	{"comments", mcpJSON, "// mine\n{\n\t\"mcpServers\": {\n\t\t\"a\": { // first\n\t\t\t\"command\": \"npx\", /* c */\n\t\t\t\"args\": [\n\t\t\t\t// y\n\t\t\t\t\"-y\",\n\t\t\t],\n\t\t},\n\t},\n}\n",
		"// mine\n{\n\t\"mcpServers\": {\n\t\t\"a\": { // first\n\t\t\t\"command\": \"/opt/bin/tgad\", /* c */\n\t\t\t\"args\": [\n\t\t\t\t// y\n\t\t\t\t\"mcp\", \"--server-id\", \"a\", \"--data\", \"/d\", \"--\", \"npx\", \"-y\",\n\t\t\t],\n\t\t},\n\t},\n}\n"},
	{"no args", mcpJSON, "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}",
		"{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"/opt/bin/tgad\",\n      \"args\": [\"mcp\", \"--server-id\", \"a\", \"--data\", \"/d\", \"--\", \"x\"]\n    }\n  }\n}"},
	{"args before, empty", mcpJSON, "{\"mcpServers\":\r\n{\"a b\": {\"args\": [ ], \"command\": \"\\u0078\"}}}",
		"{\"mcpServers\":\r\n{\"a b\": {\"args\": [\"mcp\", \"--data\", \"/d\", \"--\", \"x\" ], \"command\": \"/opt/bin/tgad\"}}}"},
	{"a table below others", Place{File: "x", Table: []string{"projects", "/w", "mcpServers"}}, `{"projects":{"/v":{"mcpServers":{"a":{"command":"no"}}},"/w":{"mcpServers":{"a":{"command":"yes"}}}}}`,
		`{"projects":{"/v":{"mcpServers":{"a":{"command":"no"}}},"/w":{"mcpServers":{"a":{"command":"/opt/bin/tgad", "args": ["mcp", "--server-id", "a", "--data", "/d", "--", "yes"]}}}}}`},
	{"toml", codex, "model = \"m\" # mine\n\n[mcp_servers.a]\ncommand = 'npx' # c\nargs = [\n  # y\n  \"-y\", \"x\",\n]\n[mcp_servers.a.env]\nTOKEN = \"t\"\n\n[other]\ncommand = \"no\"\n",
		"model = \"m\" # mine\n\n[mcp_servers.a]\ncommand = \"/opt/bin/tgad\" # c\nargs = [\n  # y\n  \"mcp\", \"--server-id\", \"a\", \"--data\", \"/d\", \"--\", \"npx\", \"-y\", \"x\",\n]\n[mcp_servers.a.env]\nTOKEN = \"t\"\n\n[other]\ncommand = \"no\"\n"},
	{"toml without args", codex, "[mcp_servers.\"a b\"]\ncommand = \"x\"\nenabled = true", "[mcp_servers.\"a b\"]\ncommand = \"/opt/bin/tgad\"\nargs = [\"mcp\", \"--data\", \"/d\", \"--\", \"x\"]\nenabled = true"},
	{"toml on one line", codex, "[mcp_servers]\na = { command = \"x\", env = { A = \"b\" } }\n", "[mcp_servers]\na = { command = \"/opt/bin/tgad\", args = [\"mcp\", \"--server-id\", \"a\", \"--data\", \"/d\", \"--\", \"x\"], env = { A = \"b\" } }\n"},
	{"toml with dots", codex, "mcp_servers.a.command = \"x\"\nmcp_servers.a.args = []\n", "mcp_servers.a.command = \"/opt/bin/tgad\"\nmcp_servers.a.args = [\"mcp\", \"--server-id\", \"a\", \"--data\", \"/d\", \"--\", \"x\"]\n"},
}

// meaning returns what a client reads from a file.
func meaning(t *testing.T, raw []byte, p Place) (v map[string]any) {
	t.Helper()
	var err error
	if p.TOML {
		err = toml.Unmarshal(raw, &v)
	} else if raw, err = hujson.Standardize(append([]byte(nil), raw...)); err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		t.Fatalf("%s\n%v", raw, err)
	}
	return v
}

// TestInstallChangesTheCommandsAlone: every other byte stays, a second install changes nothing, and
// uninstall restores the meaning of the file.
func TestInstallChangesTheCommandsAlone(t *testing.T) {
	for _, x := range forms {
		after, changes, err := Install([]byte(x.before), x.place, front, nil)
		if err != nil || string(after) != x.want || len(changes) != 1 || changes[0].After == nil {
			t.Errorf("%s: %+v %v\n%s\nwant\n%s", x.name, changes, err, after, x.want)
			continue
		}
		meaning(t, after, x.place)
		again, changes, err := Install(after, x.place, front, nil)
		if err != nil || string(again) != x.want || changes[0].Why != behind {
			t.Errorf("%s: the second install: %+v %v\n%s", x.name, changes, err, again)
		}
		// Uninstall by another tgad at another path.
		if _, changes, _ := Install(after, x.place, Front{Program: "/usr/bin/tgad"}, nil); changes[0].Why != behind {
			t.Errorf("%s: another tgad would be put before tgad: %+v", x.name, changes)
		}
		back, changes, err := Uninstall(after, x.place, front, nil)
		if err != nil || len(changes) != 1 || changes[0].After == nil {
			t.Errorf("%s: uninstall: %+v %v", x.name, changes, err)
			continue
		}
		got, want := meaning(t, back, x.place), meaning(t, []byte(x.before), x.place)
		if !reflect.DeepEqual(withArgs(got), withArgs(want)) {
			t.Errorf("%s: uninstall makes\n%s\nof\n%s", x.name, back, x.before)
		}
	}
}

// withArgs makes no difference between no args and none in the list.
func withArgs(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for k, e := range m {
		out[k] = withArgs(e)
	}
	if m["command"] != nil && m["args"] == nil {
		out["args"] = []any{}
	}
	return out
}

// TestWhatStaysAsItIs: servers that install does not change, each with the reason.
func TestWhatStaysAsItIs(t *testing.T) {
	for server, why := range map[string]string{
		`{"url":"https://h/mcp"}`:                                 atAddress,
		`{"type":"http","serverUrl":"https://h","headers":{}}`:    atAddress,
		`{"command":"tgad","args":["mcp","--","x"]}`:              behind,
		`{"command":"/y/tgad","args":["mcp","serve"]}`:            isTgad,
		`{"command":"/y/tgad","args":["gateway","--config","c"]}`: isTgad,
		`{"command":{"path":"x","args":[]}}`:                      oddForm,
		`{"command":"x","args":"y"}`:                              oddForm,
		`{"command":"x","args":["a",1]}`:                          oddForm,
		`{"command":"x","command":"y"}`:                           oddForm,
		`{"command":"x","args":[],"args":["y"]}`:                  oddForm,
		`"x"`:                                                     oddForm,
	} {
		text := `{"mcpServers":{"s":` + server + `}}`
		after, changes, err := Install([]byte(text), mcpJSON, front, nil)
		if err != nil || string(after) != text || len(changes) != 1 || changes[0].Why != why {
			t.Errorf("%s: %+v %v\n%s", server, changes, err, after)
		}
	}
	// Somebody put tgad there by hand: uninstall leaves it.
	text := `{"mcpServers":{"s":{"command":"tgad","args":["mcp","--","x"]}}}`
	if after, changes, err := Uninstall([]byte(text), mcpJSON, front, nil); err != nil || string(after) != text || changes[0].Why != notOurs {
		t.Errorf("%+v %v", changes, err)
	}
	// A file without servers.
	for _, text := range []string{`{}`, `{"mcpServers":{}}`, ``} {
		p := mcpJSON
		if p.TOML = text == ""; p.TOML {
			p = codex
		}
		if after, changes, err := Install([]byte(text), p, front, nil); err != nil || string(after) != text || len(changes) != 0 {
			t.Errorf("%q: %+v %v", text, changes, err)
		}
	}
}

// TestNamedServersAlone: only the named servers are changed, and an unknown name is an error.
func TestNamedServersAlone(t *testing.T) {
	text := `{"mcpServers":{"a":{"command":"x"},"b":{"command":"y"}}}`
	after, changes, err := Install([]byte(text), mcpJSON, front, []string{"b"})
	if err != nil || len(changes) != 1 || !strings.HasPrefix(string(after), `{"mcpServers":{"a":{"command":"x"},"b":{"command":"/opt/bin/tgad"`) {
		t.Errorf("%+v %v\n%s", changes, err, after)
	}
	if _, _, err := Install([]byte(text), mcpJSON, front, []string{"c"}); tga.CodeOf(err) != tga.NotFound || !strings.Contains(err.Error(), "a, b") {
		t.Error(err)
	}
	for _, broken := range []string{`{"mcpServers":[]}`, `{"mcpServers":{},"mcpServers":{"a":{"command":"x"}}}`, `{"mcpServers":{"a":{"command":"x"},"a":{"command":"y"}}}`, `{`} {
		if _, _, err := Install([]byte(broken), mcpJSON, front, nil); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", broken, err)
		}
	}
	if _, _, err := Install([]byte("[mcp_servers.a"), codex, front, nil); tga.CodeOf(err) != tga.ValidationError {
		t.Error(err)
	}
}

// TestPlacesOfClients checks the place of each client's file.
func TestPlacesOfClients(t *testing.T) {
	env := map[string]string{}
	at := func(system string) Machine {
		return Machine{Home: "/h", Dir: "/w", System: system, Env: func(name string) string { return env[name] }}
	}
	for _, x := range []struct{ client, scope, system, want, table string }{
		{"claude", User, "linux", "/h/.claude.json", "mcpServers"},
		{"claude", Project, "linux", "/w/.mcp.json", "mcpServers"},
		{"claude", Local, "linux", "/h/.claude.json", "projects /w mcpServers"},
		{"claude-desktop", User, "darwin", "/h/Library/Application Support/Claude/claude_desktop_config.json", "mcpServers"},
		{"claude-desktop", User, "linux", "", ""},
		{"codex", User, "linux", "/h/.codex/config.toml", "mcp_servers"},
		{"codex", Project, "linux", "/w/.codex/config.toml", "mcp_servers"},
		{"cursor", User, "darwin", "/h/.cursor/mcp.json", "mcpServers"},
		{"cursor", Project, "linux", "/w/.cursor/mcp.json", "mcpServers"},
		{"cursor", Local, "linux", "", ""},
		{"gemini", User, "linux", "/h/.gemini/settings.json", "mcpServers"},
		{"vscode", User, "linux", "/h/.config/Code/User/mcp.json", "servers"},
		{"vscode", User, "darwin", "/h/Library/Application Support/Code/User/mcp.json", "servers"},
		{"vscode", Project, "darwin", "/w/.vscode/mcp.json", "servers"},
		{"windsurf", User, "linux", "/h/.codeium/windsurf/mcp_config.json", "mcpServers"},
		{"windsurf", Project, "linux", "", ""},
		{"zed", User, "linux", "/h/.config/zed/settings.json", "context_servers"},
	} {
		c, ok := ClientOf(x.client)
		if !ok {
			t.Fatal(x.client)
		}
		p, err := c.Place(x.scope, "", at(x.system))
		if x.want == "" {
			if tga.CodeOf(err) != tga.ValidationError {
				t.Errorf("%+v: %+v %v", x, p, err)
			}
		} else if err != nil || p.File != x.want || strings.Join(p.Table, " ") != x.table || p.TOML != (x.client == "codex") {
			t.Errorf("%+v: %+v %v", x, p, err)
		}
	}
	env["CODEX_HOME"] = "/c"
	c, _ := ClientOf("codex")
	if p, err := c.Place(User, "", at("linux")); err != nil || p.File != "/c/config.toml" {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := c.Place(User, "/other.json", at("linux")); err != nil || p.File != "/other.json" || p.TOML {
		t.Errorf("%+v %v", p, err)
	}
	if len(ClientNames()) != len(known) {
		t.Error(ClientNames())
	}
}

// TestWhatWasThereComesBack: uninstall restores the file byte for byte, even after a second install of
// other servers, but not over a change that somebody made since.
func TestWhatWasThereComesBack(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mcp.json")
	p := Place{File: file, Table: []string{"mcpServers"}}
	original := []byte("{ \"mcpServers\" : {\n \"a\": {\"command\":\"x\" },\n \"b\": {\"command\":\"y\"}\n}}\n")
	if err := os.WriteFile(file, original, 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(servers ...string) {
		t.Helper()
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		after, _, err := Install(before, p, front, servers)
		if err != nil {
			t.Fatal(err)
		}
		bare, _, err := Uninstall(before, p, front, nil)
		if err != nil {
			t.Fatal(err)
		}
		backup, err := Put(file, before, after, bare)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(backup); err != nil || string(kept) != string(original) {
			t.Errorf("the backup is\n%s\n%v", kept, err)
		}
	}
	names := func() int {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	put("a")
	put("b")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || names() != 2 {
		t.Errorf("%v %v, %d files", info.Mode(), err, names())
	}
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := PutBack(file, append(now, ' ')); back || err != nil {
		t.Errorf("a file that was changed is restored from the backup: %v %v", back, err)
	}
	if back, err := PutBack(file, now); !back || err != nil {
		t.Fatal(back, err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(original) || names() != 1 {
		t.Errorf("%s %v, %d files", got, err, names())
	}
	// The client writes its file in between.
	if err := Replace(file, []byte("other"), []byte("new")); tga.CodeOf(err) != tga.StateConflict {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(original) || names() != 1 {
		t.Errorf("%s %v, %d files", got, err, names())
	}
}
