// Package setup puts tgad before a tool server in a client's configuration. It changes the
// client's file or makes the lines for it, and makes the tool server's id in the log.
package setup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Snippet is the part of a client's configuration that names a tool server.
type Snippet struct {
	Client string `json:"client"`
	File   string `json:"file"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// clients are the configurations of common clients. The JSON files differ only in the name of the
// table, and in whether a server at an address has a type.
var clients = []struct {
	name, file, table string
	typed             bool
}{
	{"Claude Code", ".mcp.json", "mcpServers", true},
	{"Claude Desktop", "claude_desktop_config.json", "mcpServers", false},
	{"Cursor", ".cursor/mcp.json", "mcpServers", false},
	{"VS Code", ".vscode/mcp.json", "servers", true},
	{"Codex", "~/.codex/config.toml", "", false},
}

// Snippets returns the lines for common clients, without tgad and with it. The tool server is
// started by command or is at address. self is the path of tgad, flags are the flags of tgad mcp.
func Snippets(server string, command []string, address, self string, flags []string) ([]Snippet, error) {
	wrapped := append([]string{self, "mcp"}, flags...)
	if address == "" {
		wrapped = append(append(wrapped, "--"), command...)
	} else {
		wrapped = append(wrapped, "--url", address)
	}
	var all []Snippet
	for _, c := range clients {
		s := Snippet{Client: c.name, File: c.file}
		bare := []member{{"command", command[:min(1, len(command))]}, {"args", command[min(1, len(command)):]}}
		if address != "" {
			bare = []member{{"url", []string{address}}}
			if c.typed {
				bare = append([]member{{"type", []string{"http"}}}, bare...)
			}
		}
		var err error
		if s.Before, err = snippet(c.table, server, bare); err != nil {
			return nil, err
		}
		if s.After, err = snippet(c.table, server, []member{{"command", wrapped[:1]}, {"args", wrapped[1:]}}); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// member is one line about a tool server. The value of args is a list, any other value is one word.
type member struct {
	name  string
	words []string
}

func snippet(table, server string, all []member) (string, error) {
	name, err := oneLine(server)
	if err != nil {
		return "", err
	}
	toml, rows := "[mcp_servers."+tomlKey(server, name)+"]\n", []string(nil)
	for _, m := range all {
		var value string
		if m.name == "args" {
			value, err = oneLine(m.words)
		} else {
			value, err = oneLine(m.words[0])
		}
		if err != nil {
			return "", err
		}
		toml += m.name + " = " + value + "\n"
		rows = append(rows, fmt.Sprintf("      %q: %s", m.name, value))
	}
	if table == "" {
		return toml, nil
	}
	return fmt.Sprintf("{\n  \"%s\": {\n    %s: {\n%s\n    }\n  }\n}\n", table, name, strings.Join(rows, ",\n")), nil
}

// tomlKey is a TOML key. It is quoted if it has characters that a bare key cannot have: a dot, for
// example, would begin a nested table.
func tomlKey(key, quoted string) string {
	if strings.ContainsFunc(key, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) {
		return quoted
	}
	return key
}

// oneLine is the JSON of a value with a space after each comma. The JSON of a string is also valid
// TOML.
func oneLine(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	s := strings.TrimSpace(b.String())
	if list, ok := v.([]string); ok {
		if len(list) == 0 {
			return "[]", nil
		}
		var items []string
		for _, i := range list {
			one, err := oneLine(i)
			if err != nil {
				return "", err
			}
			items = append(items, one)
		}
		s = "[" + strings.Join(items, ", ") + "]"
	}
	return s, nil
}
