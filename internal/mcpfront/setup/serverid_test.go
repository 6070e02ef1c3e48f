package setup

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

func TestServerIDs(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-memory@2026.8.31": "server-memory",
		"uvx mcp-server-git --repository /x":                   "mcp-server-git",
		"node /opt/acme-files/dist/index.js stdio":             "acme-files",
		"npx -y @acme/server":                                  "acme",
		"./server":                                             "server",
		"python3 -m my_server":                                 "my_server",
		"docker run -i --rm ghcr.io/acme/tools":                "tools",
		"/usr/bin/env X=1 ./bad name":                          "bad",
		"npx":                                                  "server",
		"./größe":                                              "gr__e",
	} {
		if got := ServerID(strings.Fields(command)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// TestServerIDsOfURLs: two addresses have two ids, no id contains a secret, and the log accepts each
// id as a name.
func TestServerIDsOfURLs(t *testing.T) {
	for address, want := range map[string]string{
		"https://mcp.example.com/mcp":                  "mcp.example.com/mcp",
		"https://MCP.example.com/":                     "mcp.example.com",
		"https://mcp.example.com":                      "mcp.example.com",
		"http://127.0.0.1:8080/a//b/../c":              "127.0.0.1_8080/a/c",
		"https://ann:secret@mcp.example.com/x?key=s#f": "mcp.example.com/x",
		"http://[::1]:80/größe":                        "___1__80/gr__e",
		"https://" + strings.Repeat("a", 128):          strings.Repeat("a", 128),
		"nonsense":                                     "",
		"http://":                                      "",
		"https://../..":                                "",
		"://":                                          "",
	} {
		if got := ServerIDOfURL(address); got != want || want != "" && !tga.CleanName(got) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	long := "https://a/" + strings.Repeat("b", 128)
	if one, two := ServerIDOfURL(long+"1"), ServerIDOfURL(long+"2"); one == two || len(one) != 128 || !tga.CleanName(one) {
		t.Errorf("%q and %q", one, two)
	}
}
