package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
)

// written is a file with settings.
func written(all []config.Setting) string {
	var b strings.Builder
	for _, s := range all {
		if s.Key == "" {
			fmt.Fprintln(&b, s.Head)
		} else {
			fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
		}
	}
	return b.String()
}

// TestSettingsAreTheFile: the shown settings are a file that means the same, and each shown place is that of
// its key.
func TestSettingsAreTheFile(t *testing.T) {
	files := whole(t)
	raw, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	files[example] = raw
	for name, raw := range files {
		c, err := config.Parse(name, raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum := strings.Repeat("ab", 32)
		shown := strings.Replace(written(c.Settings()), "key_sha256 = '***'", "key_sha256 = '"+sum+"'", 1)
		again, err := config.Parse(name, []byte(shown), nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, shown)
			continue
		}
		if twice := strings.Replace(written(again.Settings()), "key_sha256 = '***'", "key_sha256 = '"+sum+"'", 1); twice != shown {
			t.Errorf("%s: shown\n%s\nand of that\n%s", name, shown, twice)
		}
		lines, settings := strings.Split(string(raw), "\n"), 0
		for _, s := range c.Settings() {
			if s.Key == "" || s.Preset {
				continue
			}
			settings++
			key := s.Key[strings.LastIndexByte(s.Key, '.')+1:]
			if at := lines[s.Line-1][s.Column-1:]; !strings.HasPrefix(at, key) && !strings.HasPrefix(at, strings.Split(s.Key, ".")[0]+".") {
				t.Errorf("%s: %s is said to stand at %d:%d, where there is %q", name, s.Path, s.Line, s.Column, at)
			}
		}
		// Each key that the file sets is shown.
		want := 0
		for _, k := range config.Keys() {
			if !k.IsTable() {
				at(tree(t, raw), strings.Split(k.Path, "."), func(m map[string]any, key string) {
					if m[key] != nil {
						want++
					}
				})
			}
		}
		if settings != want {
			t.Errorf("%s: %d of %d keys are shown", name, settings, want)
		}
	}
}

// TestDefaultsAreShown: the defaults of tables that have an effect although the file leaves them out are
// shown.
func TestDefaultsAreShown(t *testing.T) {
	shown := written(config.Default().Settings())
	for _, want := range []string{"profile = 'strict'", "[limits]\n", "lease_ttl = '30s'", "call_timeout = '10m'", "max_lease_ttl = '1h'", "request_bytes = '16MiB'", "rewrite_share = 15"} {
		if !strings.Contains(shown, want+"\n") && !strings.Contains(shown, want) {
			t.Errorf("no %s in\n%s", want, shown)
		}
	}
	for _, not := range []string{"lease = ", "[evidence]", "allow_all = true"} {
		if strings.Contains(shown, not) {
			t.Errorf("%s in\n%s", not, shown)
		}
	}
}

// TestNoSecretIsShown: a secret is not shown, wherever it may be in a file.
func TestNoSecretIsShown(t *testing.T) {
	const canary = "c4narY-77"
	text := `
[[server]]
id = "m"
type = "mcp-command"
command = ["npx", "--api-key", "` + canary + `", "--token=` + canary + `", "DB_PASSWORD=` + canary + `", "https://ann:` + canary + `@h/?access_token=` + canary + `", "-H", "Authorization: Bearer ` + canary + `"]
env = { ANY = "` + canary + `", "odd name" = "` + canary + `" }
[[server]]
id = "u"
type = "mcp-url"
url = "https://ann:` + canary + `@h/mcp?api_key=` + canary + `&x=shown"
[[verifier]]
resource_type = "a"
type = "postgres"
dsn = "host=h password=` + canary + ` user=shown"
[[gateway.identity]]
name = "a"
key_sha256 = "abababababababababababababababababababababababababababababababab"
`
	c, err := config.Parse("c.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%+v", c.Settings())
	if strings.Contains(shown, canary) || strings.Contains(shown, "abab") {
		t.Errorf("a secret in\n%s", shown)
	}
	if strings.Count(shown, "shown") != 2 || !strings.Contains(shown, "ANY") || !strings.Contains(shown, "npx") {
		t.Errorf("too much is hidden in\n%s", shown)
	}
	// Nor does an error repeat the line with the secret.
	for _, line := range []string{`env = { "TOKEN" = "` + canary + `" }`, `url = "http://a:` + canary + `@h"`} {
		_, err := config.Parse("c.toml", []byte("[[server]]\nid = \"e\"\ntype = \"external\"\n"+line+"\n"), nil)
		if err == nil || strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), line[:3]) {
			t.Errorf("%s: %v", line, err)
		}
	}
	// Nor a part of one.
	for _, address := range []string{"postgres://ann:%s@h/db", "https://ann:x@%s@h/mcp", "https://ann:%s@x@h", "https://ann@corp:%s@h:8080/a@b", "https://:%s@h"} {
		if shown := config.Mask(fmt.Sprintf(address, canary)); strings.Contains(shown, canary) || !strings.Contains(shown, "@h") {
			t.Errorf("%s is shown as %s", address, shown)
		}
	}
	for _, plain := range []string{"https://ann@h:8080/a@b", `["https://h:1", "ann@h"]`, "password_file = \"/etc/p\"", "token_file = \"t\"", "key_env = \"OPENAI_API_KEY\"", "max_tokens = 1", "sk-short", "a risk-based-approach"} {
		if config.Mask(plain) != plain {
			t.Errorf("%s is shown as %s", plain, config.Mask(plain))
		}
	}
}

// TestUnwise: each unwise setting is reported with its place. A file without one gives no report.
func TestUnwise(t *testing.T) {
	store, rule := "[store]\nid = \"01936a8b-4c2d-7000-8000-000000000001\"\n", "[[rule]]\nserver = \"s\"\ndecision = \"APPROVE\"\n"
	server := "[[server]]\nid = \"s\"\ntype = \"mcp-command\"\ncommand = [\"x\"]\n"
	good := store + rule + server + "env = { REGION = \"eu\" }\n[[role]]\nuid = [0]\nverbs = [\"append\"]\n[[server]]\nid = \"h\"\ntype = \"http\"\nurl = \"http://127.0.0.1:1\"\n"
	for _, x := range []struct{ text, want string }{
		{good, ""},
		{"allow_all = true\n" + store, "1:1 allow_all every request is approved"},
		{store, "0:0  every request is denied"},
		{rule, "0:0 store.id no store is pinned"},
		{"trust_hints = true\n" + good, "1:1 trust_hints"},
		{"profile = \"spec-9.3\"\n" + good, "1:1 profile a write call in doubt is sent again"},
		{good + "[approval]\nself = true\n", "19:1 approval.self"},
		{good + "[evidence]\nkey_file = \"k\"\n", "18:2 evidence no checkpoint leaves"},
		{good + "[[rule]]\ndecision = \"APPROVE\"\n", "18:3 rule.1 the rule approves whatever"},
		{good + "[[rule]]\ndecision = \"DENY\"\n" + rule, "20:3 rule.2 no request reaches"},
		{strings.Replace(good, "REGION", "DB_PASSWORD", 1), "10:9 server.0.env.DB_PASSWORD DB_PASSWORD looks like a secret"},
		{strings.Replace(good, "127.0.0.1", "tools.example", 1), "17:1 server.1.url calls and answers pass"},
		{strings.Replace(good, "[\"append\"]", "[\"append\", \"decide\"]", 1), "13:1 role.0.verbs the role makes calls"},
		{good + "[[tool]]\nserver = \"s\"\nname = \"*\"\nlicence = \"dedupe_args\"\n", "21:1 tool.0.licence it holds for every tool"},
		{good + "[[server]]\nid = \"own\"\ntype = \"external\"\n[[tool]]\nserver = \"own\"\nname = \"*\"\nclient_licence = true\n", "24:1 tool.0.client_licence every program that may make calls"},
		{good + "[limits]\nfollowers = 0\n", "19:1 limits.followers 0 counts as if the key were absent: 128 holds"},
		{good + "[[supervisor]]\nuid = [1]\nissuer = \"i\"\nkeys_file = \"k\"\nskew = \"0s\"\n", ""},
		{good + "connect_ahead = 0\nbreaker = { failures = 5, open = \"0s\" }\n", "19:27 server.1.breaker.open 0 counts as if the key were absent: 1m holds"},
		{good + "[[tool]]\nserver = \"s\"\nname = \"t\"\nresends = 0\nprobe = { attempts = 0 }\n", ""},
	} {
		c, err := config.Parse("c.toml", []byte(x.text), nil)
		if err != nil {
			t.Errorf("%s\n%v", x.text, err)
			continue
		}
		var said []string
		for _, a := range c.Unwise() {
			said = append(said, fmt.Sprintf("%d:%d %s %s", a.Line, a.Column, a.Path, a.Text))
		}
		if len(said) > 1 || x.want == "" && len(said) > 0 || x.want != "" && (len(said) == 0 || !strings.HasPrefix(said[0], x.want)) {
			t.Errorf("%s\nadvice %q, want %q", x.text, said, x.want)
		}
	}
}

// A value of 0 that means the default is shown as the default, in each table: an operator who writes
// low_water_bytes = 0 has a low-water mark of 1 GiB, and has to be told.
func TestZeroThatSaysNothingIsShownAsWhatHolds(t *testing.T) {
	t.Parallel()
	for _, k := range config.Keys() {
		table, key, ok := strings.Cut(k.Path, ".")
		if !ok || (table != "store" && table != "limits") || k.Default == "0" || strings.Contains(k.Default, " ") {
			continue
		}
		zero := map[string]string{config.FormInteger: "0", config.FormSize: "0", config.FormDuration: `"0s"`}[k.Form]
		if zero == "" {
			continue
		}
		c, err := config.Parse("c.toml", []byte("["+table+"]\n"+key+" = "+zero+"\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := "no such key"
		for _, s := range config.Default().Settings() {
			if s.Path == k.Path {
				want = s.Value
			}
		}
		for _, s := range c.Settings() {
			if s.Path == k.Path && s.Value != want && want != "no such key" {
				t.Errorf("%s = %s is shown as %s, and %s holds", k.Path, zero, s.Value, want)
			}
			if s.Path == k.Path && (s.Value == "0" || s.Value == "'0s'") {
				t.Errorf("%s = %s is shown as it stands there", k.Path, zero)
			}
		}
	}
}
