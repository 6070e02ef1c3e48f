package setup

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Scopes of a client's file: User holds for a user in every project, Project for everybody who has
// the project's directory, Local for a user in one project.
const (
	User    = "user"
	Project = "project"
	Local   = "local"
)

// Client is an MCP client whose file [Read] understands.
type Client struct {
	Name  string // the name on the command line
	Title string
	table []string            // path in the file to the tool servers
	files map[string][]string // by scope: path of the file below the home, or below the project's directory
	mac   map[string][]string // files on macOS, if they differ
	local []string            // table in scope Local; "" stands for the project's directory
	moved string              // environment variable that names another directory for the user's file
}

// known are the clients whose files tgad knows. For another client with a file of the same form,
// use the name of one of these and --file.
var known = []Client{
	{Name: "claude", Title: "Claude Code", table: []string{"mcpServers"}, files: map[string][]string{User: {".claude.json"}, Local: {".claude.json"}, Project: {".mcp.json"}}, local: []string{"projects", "", "mcpServers"}},
	{Name: "claude-desktop", Title: "Claude Desktop", table: []string{"mcpServers"}, mac: map[string][]string{User: {"Library", "Application Support", "Claude", "claude_desktop_config.json"}}},
	{Name: "codex", Title: "Codex", table: []string{"mcp_servers"}, files: map[string][]string{User: {".codex", "config.toml"}, Project: {".codex", "config.toml"}}, moved: "CODEX_HOME"},
	{Name: "cursor", Title: "Cursor", table: []string{"mcpServers"}, files: map[string][]string{User: {".cursor", "mcp.json"}, Project: {".cursor", "mcp.json"}}},
	{Name: "gemini", Title: "Gemini CLI", table: []string{"mcpServers"}, files: map[string][]string{User: {".gemini", "settings.json"}, Project: {".gemini", "settings.json"}}},
	{
		Name: "vscode", Title: "VS Code", table: []string{"servers"},
		files: map[string][]string{User: {".config", "Code", "User", "mcp.json"}, Project: {".vscode", "mcp.json"}},
		mac:   map[string][]string{User: {"Library", "Application Support", "Code", "User", "mcp.json"}},
	},
	{Name: "windsurf", Title: "Windsurf", table: []string{"mcpServers"}, files: map[string][]string{User: {".codeium", "windsurf", "mcp_config.json"}}},
	{Name: "zed", Title: "Zed", table: []string{"context_servers"}, files: map[string][]string{User: {".config", "zed", "settings.json"}}},
}

// ClientNames returns the names of the clients on the command line.
func ClientNames() (names []string) {
	for _, c := range known {
		names = append(names, c.Name)
	}
	return names
}

// ClientOf returns a client by its name.
func ClientOf(name string) (*Client, bool) {
	i := slices.IndexFunc(known, func(c Client) bool { return c.Name == name })
	if i < 0 {
		return nil, false
	}
	return &known[i], true
}

// Machine says where to look for a client's files.
type Machine struct {
	Home, Dir, System string              // the user's home; the project's directory, absolute; runtime.GOOS
	Env               func(string) string // os.Getenv
}

// Place is a client's file, and the path in the file to the tool servers.
type Place struct {
	File  string
	Table []string
	TOML  bool
}

// Place returns where a client has its tool servers in a scope. file, if not "", replaces the client's file.
func (c *Client) Place(scope, file string, m Machine) (Place, error) {
	steps, base := c.files[scope], m.Home
	if m.System == "darwin" && c.mac[scope] != nil {
		steps = c.mac[scope]
	}
	if scope == Project {
		base = m.Dir
	}
	if dir := c.moved; scope == User && dir != "" && m.Env(dir) != "" {
		base, steps = m.Env(dir), steps[len(steps)-1:]
	}
	p := Place{File: file, Table: c.table}
	if scope == Local {
		p.Table = slices.Clone(c.local)
		for i := range p.Table {
			if p.Table[i] == "" {
				p.Table[i] = m.Dir
			}
		}
	}
	if file == "" {
		if steps == nil {
			return p, tga.Errorf(tga.ValidationError, "%s has no file of scope %s that is known on %s; its scopes are: %s. Name the file with --file", c.Title, scope, m.System, strings.Join(c.scopes(m.System), ", "))
		}
		p.File = filepath.Join(append([]string{base}, steps...)...)
	} else if p.Table == nil {
		return p, tga.Errorf(tga.ValidationError, "%s has no scope %s", c.Title, scope)
	}
	p.TOML = filepath.Ext(p.File) == ".toml"
	return p, nil
}

func (c *Client) scopes(system string) (scopes []string) {
	for _, s := range []string{User, Project, Local} {
		if c.files[s] != nil || system == "darwin" && c.mac[s] != nil {
			scopes = append(scopes, s)
		}
	}
	if scopes == nil {
		return []string{"none"}
	}
	return scopes
}
