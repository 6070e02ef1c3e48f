package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/outcome"
)

// TestGatewayIsChecked: two identities share keys only if both say so, and a setting that cannot be checked
// lets nobody in.
func TestGatewayIsChecked(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	who := func(name, more string) string {
		return fmt.Sprintf("[[gateway.identity]]\nname = %q\n%s\n", name, more)
	}
	a, jwt := who("a", `key_file = "a"`), "[gateway.jwt]\njwks_file = \"k\"\nissuer = \"i\"\naudience = \"a\"\n"
	n := 0
	far := func(url, auth string) string {
		n++
		return fmt.Sprintf("[[server]]\nid = \"f-%d\"\ntype = \"mcp-url\"\nurl = %q\nforward_auth = %q\n", n, url, auth)
	}
	const pair = "[gateway.tls]\ncert_file = \"c\"\nkey_file = \"k\"\n"
	for _, c := range []struct{ text, want string }{
		{a + who("b", `key_sha256 = "`+sum+`"`), ""},
		{jwt + who("a", `subject = "s"`), ""},
		{a + who("a", `key_file = "b"`), "another identity's too"},
		{a + who("b", `key_file = "a"`), "another identity's too"},
		{a + who("b", "key_file = \"b\"\nnamespace = \"a\""), "another identity has the namespace"},
		{who("a", "key_file = \"a\"\nnamespace = \"x\"") + who("b", "key_file = \"b\"\nnamespace = \"x\""), ""},
		{who("a", "key_file = \"a\"\nnamespace = \""+strings.Repeat("n", 255)+"\""), ""},
		{who("a", "key_file = \"a\"\nnamespace = \""+strings.Repeat("n", 256)+"\""), "256 bytes"},
		{who("a", ""), "nobody can be it"},
		{who("a", `subject = "s"`), "no token can be checked"},
		{who("a", `certificate = "c"`), "no certificate can be checked"},
		{pair + who("a", `certificate = "c"`), "no certificate can be checked"},
		{pair + "client_ca_file = \"c\"\n" + who("a", `certificate = "c"`), ""},
		{pair + "client_ca_file = \"c\"\n" + who("a", `certificate = "c"`) + who("b", `certificate = "c"`), "another identity's too"},
		{"[gateway.tls]\ncert_file = \"c\"\n" + a, "cert_file and key_file are required"},
		{"[gateway.tls]\nclient_ca_file = \"c\"\n" + a, "cert_file and key_file are required"},
		{who("a", `key_sha256 = "`+sum[1:]+`"`), "64 hex digits"},
		{who("a", "key_file = \"a\"\nkey_sha256 = \""+sum+"\""), "cannot stand beside"},
		{who("", `key_file = "a"`), "gateway.identity.0.name"},
		{"[gateway.jwt]\njwks_file = \"k\"\n", "are required"},
		{who("a", "key_file = \"a\"\nallow = [\"a*b\"]"), "the beginning of one"},
		{a + "[[gateway.identity.limit]]\ncalls = 1\nper = \"1ms\"\n", ""},
		{a + "[[gateway.identity.limit]]\ncalls = 0\nper = \"1m\"\n", "want at least 1"},
		{a + "[[gateway.identity.limit]]\ncalls = 1\n", "want a time"},
		{"[[server]]\nid = \"x\"\ntype = \"mcp-command\"\ncommand = [\"x\"]\ndeny = [\"\"]\n", "the beginning of one"},
		{"[[server]]\nid = \"x\"\ntype = \"external\"\nprefix = \"x\"\n", "does not belong to type external"},
		{far("https://x.example/mcp", "authorization") + far("https://x.example/other", "authorization"), ""},
		{far("https://x.example/mcp", "authorization") + far("https://y.example/mcp", "authorization"), "not of the same origin"},
		{far("https://x.example/mcp", "authorization") + far("https://y.example/mcp", "header") + far("https://z.example/mcp", "header"), ""},
		{strings.Replace(far("https://x.example/mcp", "header"), "id = \"f-", "id = \"F-4\" # ", 1) + "[[server]]\nid = \"f.4\"\ntype = \"mcp-url\"\nurl = \"https://x.example/mcp\"\nforward_auth = \"header\"\n", "both be in the header"},
		{far("http://x.example/mcp", "header"), "want https"},
		{far("http://127.0.0.1:1/mcp", "header"), ""},
		{far("https://x.example/mcp", "true"), "want authorization or header"},
		{far("https://x.example/mcp", "headers"), "did you mean header?"},
		{a + far("https://x.example/mcp", "authorization"), "says that a client is \"a\""},
		{jwt + who("a", `subject = "s"`) + far("https://x.example/mcp", "authorization"), "says that a client is \"a\""},
		{who("a", `key_sha256 = "`+sum+`"`) + far("https://x.example/mcp", "authorization"), "says that a client is \"a\""},
		{a + far("https://x.example/mcp", "header"), ""},
		{pair + "client_ca_file = \"c\"\n" + who("a", `certificate = "c"`) + far("https://x.example/mcp", "authorization"), ""},
		{"[[server]]\nid = \"x\"\ntype = \"mcp-command\"\ncommand = [\"x\"]\nforward_auth = \"header\"\n", "does not belong to type mcp-command"},
		{"[[server]]\nid = \"x\"\ntype = \"http\"\nurl = \"https://x\"\nforward_auth = \"header\"\n", "does not belong to type http"},
	} {
		_, err := parsed(t, "", []byte(c.text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n%v, want %q", c.text, err, c.want)
		}
	}
}

// TestLogOfAGatewayCallsNobody: in the log of a gateway the servers are external, and their answers are
// MCP's.
func TestLogOfAGatewayCallsNobody(t *testing.T) {
	c, err := parsed(t, "", []byte("[[server]]\nid = \"x\"\ntype = \"mcp-command\"\ncommand = [\"x\"]\n[[server]]\nid = \"y\"\ntype = \"http\"\nurl = \"http://y\"\n"+
		"[[tool]]\nserver = \"x\"\nname = \"t\"\n[[tool]]\nserver = \"y\"\nname = \"t\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	log := c.ForGatewayLog()
	if log.Servers[0].Type != config.External || log.Servers[1].Type != config.HTTP || log.Tools[0].Answer != outcome.FormMCP || log.Tools[1].Answer != "" {
		t.Errorf("servers %+v, tools %+v", log.Servers, log.Tools)
	}
	if c.Servers[0].Type != config.MCPCommand || c.Tools[0].Answer != "" || len(c.BehindGateway()) != 1 {
		t.Error("the configuration itself has changed")
	}
}
