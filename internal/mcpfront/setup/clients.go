package setup

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Scopes of a client's file: of the user everywhere, of a project for everybody who has its
// directory, and of the user in one project.
const (
	User    = "user"
	Project = "project"
	Local   = "local"
)

// Client is an MCP client whose file [Read] understands.
type Client struct {
	Name  string // as on the command line
	Title string
	table []string            // where the tool servers stand in the file
	files map[string][]string // by scope: steps from the home, or from the directory of the project
	mac   map[string][]string // the same on macOS, where that differs
	local []string            // of scope local: where the project's part stands; "" is its directory
	moved string              // a variable that names another directory for the user's file
}

// known are the clients of which the place and the form of the file are known. Other clients with
// one of these forms can be given by --file.
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

// ClientNames are the clients by their names on the command line.
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

// Machine is where a client's files are looked for.
type Machine struct {
	Home, Dir, System string              // of the user; of the project, absolute; as runtime.GOOS has it
	Env               func(string) string // as os.Getenv
}

// Place is a client's file, and where in it the tool servers stand.
type Place struct {
	File  string
	Table []string
	TOML  bool
}

// Place returns where a client has its tool servers in a scope. file, if it is not "", is the file.
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
