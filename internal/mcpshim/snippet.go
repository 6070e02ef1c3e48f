package mcpshim

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

// clients are the configurations of common clients. Those of one form differ in the name
// of the table.
var clients = []struct{ name, file, table string }{
	{"Claude Code", ".mcp.json", "mcpServers"},
	{"Claude Desktop", "claude_desktop_config.json", "mcpServers"},
	{"Cursor", ".cursor/mcp.json", "mcpServers"},
	{"VS Code", ".vscode/mcp.json", "servers"},
	{"Codex", "~/.codex/config.toml", ""},
}

// Snippets are the lines for common clients, without tgad and with it. self is the path
// of the command, flags what it is given.
func Snippets(server string, command []string, self string, flags []string) ([]Snippet, error) {
	wrapped := append(append([]string{self, "mcp"}, flags...), "--")
	wrapped = append(wrapped, command...)
	var all []Snippet
	for _, c := range clients {
		s := Snippet{Client: c.name, File: c.file}
		var err error
		if s.Before, err = snippet(c.table, server, command); err != nil {
			return nil, err
		}
		if s.After, err = snippet(c.table, server, wrapped); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func snippet(table, server string, command []string) (string, error) {
	args, err := oneLine(command[1:])
	if err != nil {
		return "", err
	}
	program, err := oneLine(command[0])
	if err != nil {
		return "", err
	}
	if table == "" {
		return fmt.Sprintf("[mcp_servers.%s]\ncommand = %s\nargs = %s\n", server, program, args), nil
	}
	return fmt.Sprintf("{\n  \"%s\": {\n    \"%s\": {\n      \"command\": %s,\n      \"args\": %s\n    }\n  }\n}\n", table, server, program, args), nil
}

// oneLine is the JSON of a value with a space after each comma; for strings it is TOML
// as well.
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
