package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Values of [Answers].Approve: which calls a new configuration approves.
const (
	ApproveAll  = "all"  // every call
	ApproveAsk  = "ask"  // what only reads; a person decides about the rest
	ApproveNone = "none" // nothing
)

// Answers are the answers from which a configuration is made.
type Answers struct {
	Store   string // id; "" pins none
	Witness string // its witness_file; "" = none
	Servers []Server
	Approve string
}

// Template makes a commented configuration from a few answers. Texts and defaults are those of [Keys].
func Template(a Answers) []byte {
	t := template{keys: map[string]KeyDoc{}}
	for _, k := range Keys() {
		t.keys[k.Path] = k
	}
	t.line("# Configuration of tgad, which tgad init wrote. docs/CONFIG.md lists every key.")
	t.line("# tgad config check says what is wrong with this file, tgad config show prints what holds.")
	t.line("# A line such as \"# page = 1000\" shows a default: take the # away to change the value.")
	t.head("store", "[store]")
	if a.Store != "" {
		t.set("store.id", a.Store)
	}
	if a.Witness != "" {
		t.set("store.witness_file", a.Witness)
	}
	t.presets("store")
	t.approvals(a.Approve)
	for i := range a.Servers {
		t.server(&a.Servers[i])
	}
	if len(a.Servers) == 0 {
		t.line("\n# A tool server, for example:\n# [[server]]\n# id = \"files\"\n# type = \"mcp-command\"\n# command = [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/srv\"]")
	}
	t.head("approval", "[approval]")
	t.presets("approval")
	t.head("limits", "[limits]")
	t.presets("limits")
	return []byte(t.b.String())
}

type template struct {
	b    strings.Builder
	keys map[string]KeyDoc
}

func (t *template) line(format string, args ...any) { fmt.Fprintf(&t.b, format+"\n", args...) }

// head writes the description of a table as a comment, and then its head.
func (t *template) head(path, head string) {
	t.line("")
	t.comment(t.keys[path].Text)
	t.line("%s", head)
}

// set writes the description of a key as a comment, and then the key and its value.
func (t *template) set(path string, v any) {
	t.comment(t.keys[path].Text)
	// Strings and lists of strings are the same in JSON and in TOML.
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings have a form in JSON
	}
	t.line("%s = %s", path[strings.LastIndexByte(path, '.')+1:], raw)
}

// presets writes the keys of a table that have a default, as comments.
func (t *template) presets(table string) {
	for _, k := range Keys() {
		name, ok := strings.CutPrefix(k.Path, table+".")
		if v, has := k.value(); ok && has && !slices.Contains(databaseKeys, name) {
			raw, err := json.Marshal(v)
			if err != nil {
				panic(err) // the table's own texts
			}
			t.line("# %-26s # %s", name+" = "+string(raw), strings.ReplaceAll(k.Text, "`", ""))
		}
	}
}

// comment writes a text as comment lines of at most 100 characters.
func (t *template) comment(text string) {
	line := "#"
	for _, word := range strings.Fields(strings.ReplaceAll(text, "`", "")) {
		if len(line)+len(word) > 99 {
			t.line("%s", line)
			line = "#"
		}
		line += " " + word
	}
	t.line("%s", line)
}

func (t *template) approvals(approve string) {
	if approve == ApproveAll {
		// In TOML, a key without a table must come before all tables.
		text := t.b.String()
		t.b.Reset()
		top, rest, _ := strings.Cut(text, "\n\n")
		t.line("%s\n", top)
		t.comment(t.keys["allow_all"].Text)
		t.line("allow_all = true\n")
		t.b.WriteString(rest)
		return
	}
	t.line("")
	t.comment(t.keys["rule"].Text)
	if approve == ApproveNone {
		t.line("# [[rule]]\n# server = \"ID\"\n# tool = \"NAME\"\n# decision = %q", tga.Approve)
		return
	}
	t.line("[[rule]]\nrisk = %q\ndecision = %q\n", tga.RiskRead, tga.Approve)
	t.line("[[rule]]\ndecision = %q\nrationale = \"what may change something needs a person\"", tga.NeedsApproval)
}

func (t *template) server(s *Server) {
	t.head("server", "[[server]]")
	t.set("server.id", s.ID)
	t.set("server.type", s.Type)
	if s.Type == MCPCommand {
		t.set("server.command", s.Command)
	} else {
		t.set("server.url", s.URL)
	}
	t.line("")
	t.comment(t.keys["tool"].Text)
	t.comment(t.keys["tool.licence"].Text)
	t.line("# [[tool]]\n# server = %q\n# name = \"NAME\"\n# licence = \"park\"", s.ID)
}
