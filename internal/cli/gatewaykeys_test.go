//go:build unix

package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/mcpfront/gateway"
	"github.com/tgad/tgad/internal/mcpfront/names"
)

// shows returns everything that a gateway makes from a configuration: for its shims, its gates and its identities, and
// the answers to what a shim asks for.
func shows(t *testing.T, g *gatewayCommand, conf *config.Config) string {
	t.Helper()
	g.now.Store(conf)
	var b strings.Builder
	for i := range conf.Gateway.Identities {
		of := &conf.Gateway.Identities[i]
		p := &plan{gates: map[string]gatePlan{}, shims: map[shimOf]madeShim{}}
		if err := g.planGate(t.Context(), conf, of, p); err != nil {
			t.Fatal(err)
		}
		for name, s := range p.shims {
			tool := s.with.Tools("t")
			s.with.Log, s.with.Look, s.with.Tools, s.with.Observe, s.with.Tracer, s.with.Logger, s.with.Stderr = nil, nil, nil, nil, nil, nil, nil
			fmt.Fprintf(&b, "%v %+v %+v\n", name, s.with, tool)
		}
		for _, s := range p.made {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for name, of := range p.gates {
			of.o.Watch, of.o.Tasks, of.o.Logger = gateway.Watch{}, names.Tasks{}, nil
			fmt.Fprintf(&b, "%s %+v", name, of.o)
			for _, s := range of.behind {
				fmt.Fprintf(&b, " %+v %+v\n", s.Names, s.Resources)
			}
		}
		fmt.Fprintf(&b, "%s %s %s %s %s\n", of.Name, of.KeySHA256, of.KeyFile, of.Subject, of.Certificate)
	}
	fmt.Fprintf(&b, "%+v\n", conf.Gateway.JWT)
	return b.String()
}

// TestEveryKeyOfTheGateway tries every key of the configuration. A key that applies on reload must change the gateway. A
// key that takes a restart must be refused by its name. A key that the gateway does not read must change and refuse nothing.
func TestEveryKeyOfTheGateway(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"h1": "A: 1\n", "h2": "A: 2\n", "e1": "A=1\n", "e2": "A=2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parse := func(text string) *config.Config {
		t.Helper()
		file := filepath.Join(dir, "g.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := assemble.Load(file)
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		return c
	}
	sha := func(s string) string { return strings.Repeat(s, 32) }
	base := map[string]string{
		"server.id": `"s"`, "server.type": `"mcp-command"`, "server.command": `["/bin/true"]`, "tool.server": `"s"`, "tool.name": `"t"`,
		"gateway.identity.name": `"ann"`, "gateway.identity.key_sha256": `"` + sha("ab") + `"`,
	}
	render := func(with map[string]string) string {
		all := map[string]string{}
		for k, v := range base {
			all[k] = v
		}
		for k, v := range with {
			if all[k] = v; v == "" {
				delete(all, k)
			}
		}
		var b strings.Builder
		for _, table := range []string{"server", "tool", "gateway", "gateway.jwt", "gateway.tls", "gateway.identity"} {
			head := "[" + table + "]\n"
			if table == "server" || table == "tool" || table == "gateway.identity" {
				head = "[" + head[:len(head)-1] + "]\n"
			}
			b.WriteString(head)
			for _, k := range config.Keys() {
				if rest, ok := strings.CutPrefix(k.Path, table+"."); ok && all[k.Path] != "" && (table != "gateway" || !strings.Contains(rest, ".")) {
					fmt.Fprintf(&b, "%s = %s\n", rest, all[k.Path])
				}
			}
		}
		text := b.String()
		for _, empty := range []string{"[gateway.jwt]\n", "[gateway.tls]\n"} {
			if i := strings.Index(text, empty); i >= 0 && strings.HasPrefix(text[i+len(empty):], "[") {
				text = strings.Replace(text, empty, "", 1)
			}
		}
		return text
	}
	url := map[string]string{"server.type": `"mcp-url"`, "server.command": "", "server.url": `"https://one.example/"`}
	jwt := map[string]string{"gateway.jwt.jwks_file": `"j"`, "gateway.jwt.issuer": `"i"`, "gateway.jwt.audience": `"a"`}
	tls := map[string]string{"gateway.tls.cert_file": `"c"`, "gateway.tls.key_file": `"k"`, "gateway.tls.client_ca_file": `"a"`}
	with := func(m map[string]string, k, v string) map[string]string {
		all := map[string]string{k: v}
		for key, value := range m {
			if key != k {
				all[key] = value
			}
		}
		return all
	}
	type change struct{ before, after map[string]string }
	changes := map[string]change{
		"server.type":                  {nil, url},
		"server.url":                   {url, with(url, "server.url", `"https://two.example/"`)},
		"server.headers_file":          {with(url, "server.headers_file", `"h1"`), with(url, "server.headers_file", `"h2"`)},
		"server.forward_auth":          {url, with(url, "server.forward_auth", `"header"`)},
		"server.env_file":              {with(nil, "server.env_file", `"e1"`), with(nil, "server.env_file", `"e2"`)},
		"gateway.identity.key_file":    {with(nil, "gateway.identity.key_sha256", ""), nil},
		"gateway.identity.subject":     {jwt, with(jwt, "gateway.identity.subject", `"s"`)},
		"gateway.identity.certificate": {tls, with(tls, "gateway.identity.certificate", `"s"`)},
		"gateway.identity.name":        {nil, with(nil, "gateway.identity.name", `"bob"`)},
	}
	changes["gateway.identity.key_file"] = change{with(with(nil, "gateway.identity.key_sha256", ""), "gateway.identity.key_file", `"x"`), with(with(nil, "gateway.identity.key_sha256", ""), "gateway.identity.key_file", `"y"`)}
	for key := range jwt {
		changes[key] = change{jwt, with(jwt, key, `"other"`)}
	}
	for key := range tls {
		changes[key] = change{tls, with(tls, key, `"other"`)}
	}
	for key, value := range map[string]string{
		"server.command": `["/bin/false"]`, "server.env": `{ A = "1" }`, "server.dir": `"d"`, "server.start_timeout": `"1s"`, "server.trusted": "true", "server.call_ids": `["x"]`,
		"server.drift": `"report"`, "server.prefix": `"p"`, "server.rename": `{ a = "b" }`, "server.allow": `["a"]`, "server.deny": `["a"]`, "server.resources": `["a:*"]`,
		"server.workspace": `"w"`, "server.concurrency": "7",
		"tool.key.from": `"/k"`, "tool.key.argument": `"/k"`, "tool.key.meta": `"k"`, "tool.log": `"none"`, "tool.class": `"read"`,
		"gateway.mode": `"observe"`, "gateway.metrics": `"unix:m"`,
		"gateway.identity.namespace": `"n"`, "gateway.identity.key_sha256": `"` + sha("cd") + `"`, "gateway.identity.allow": `["a"]`, "gateway.identity.deny": `["a"]`, "gateway.identity.resources": `["a:*"]`,
		"gateway.identity.limit": `[{ calls = 1, per = "1h" }]`,
	} {
		changes[key] = change{nil, map[string]string{key: value}}
	}
	limit := func(tool, calls, per string) map[string]string {
		return map[string]string{"gateway.identity.limit": fmt.Sprintf(`[{ tool = %q, calls = %s, per = %q }]`, tool, calls, per)}
	}
	changes["gateway.identity.limit.tool"] = change{limit("a", "1", "1h"), limit("b", "1", "1h")}
	changes["gateway.identity.limit.calls"] = change{limit("a", "1", "1h"), limit("a", "2", "1h")}
	changes["gateway.identity.limit.per"] = change{limit("a", "1", "1h"), limit("a", "1", "2h")}

	g := &gatewayCommand{mcp: mcp{Streams: &Streams{Err: io.Discard}, file: filepath.Join(dir, "g.toml"), state: dir}, metrics: newGatewayMetrics()}
	space := with(nil, "server.workspace", `"w"`)
	for key, value := range map[string]string{"server.workspace_snapshots": `"x"`, "server.workspace_exclude": `["x"]`, "server.workspace_keep": "7"} {
		changes[key] = change{space, with(space, key, value)}
	}
	applied, restarts := 0, 0
	for _, k := range config.Keys() {
		word := config.ReloadOf(config.Behind, k.Path)
		c, tried := changes[k.Path]
		if !tried {
			if word != config.ReloadUnread && !k.IsTable() && k.Path != "server.id" && k.Path != "tool.server" && k.Path != "tool.name" {
				t.Errorf("%s, which %s, is not tried", k.Path, word)
			}
			continue
		}
		was, now := parse(render(c.before)), parse(render(c.after))
		changed, err := now.MayFollowAt(config.Behind, was, (*config.Server).SpeaksMCP)
		if fixed := err != nil && strings.Contains(err.Error(), "needs a restart: ") && strings.Contains(err.Error(), k.Path); fixed != (word == config.ReloadRestart) {
			t.Errorf("%s, which %s: %v", k.Path, word, err)
		}
		if word == config.ReloadRestart {
			restarts++
			continue
		}
		if named := slices.Contains(changed, k.Path); named != (word == config.ReloadApplies) {
			t.Errorf("%s, which %s: changed are %v", k.Path, word, changed)
		}
		if other := shows(t, g, was) != shows(t, g, now); other != (word == config.ReloadApplies) {
			t.Errorf("%s, which %s: the gateway is another one: %v", k.Path, word, other)
		}
		if word == config.ReloadApplies {
			applied++
		}
	}
	if applied < 30 || restarts != 9 {
		t.Errorf("%d keys apply, %d take a restart", applied, restarts)
	}
}
