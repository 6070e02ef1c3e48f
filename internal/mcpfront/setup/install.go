package setup

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Change describes what happens to one tool server in a client's file.
type Change struct {
	Server string   `json:"server"`
	Line   int      `json:"line,omitempty"`
	Before []string `json:"before,omitempty"` // the command and its arguments
	After  []string `json:"after,omitempty"`
	Why    string   `json:"why,omitempty"` // why the tool server stays unchanged
}

// Front is what is put before a tool server's command.
type Front struct {
	Program string   // path of tgad
	Flags   []string // flags of tgad mcp
}

// words returns the words that are put before a tool server's command.
func (f Front) words(server string) []string {
	words := []string{f.Program, "mcp"}
	if tga.CleanName(server) {
		words = append(words, "--server-id", server)
	}
	return append(append(words, f.Flags...), "--")
}

// Reasons why a tool server stays unchanged.
const (
	behind  = "it runs behind tgad already"
	isTgad  = "it is tgad itself"
	notOurs = "it does not run behind tgad"
)

// Install puts tgad before the commands of the named servers in a file, or of all servers if none is
// named. Everything else in the file stays, byte for byte. A server that runs behind tgad already
// stays unchanged.
func Install(raw []byte, p Place, f Front, servers []string) (after []byte, changes []Change, err error) {
	return edit(raw, p, servers, func(e *entry, c *Change) []splice {
		if isProgram(e.command.text, f.Program) {
			if c.Why = behind; inner(e) < 0 {
				c.Why = isTgad
			}
			return nil
		}
		front := f.words(e.name)
		c.After = append(front, c.Before...)
		return e.wrap(raw, p.TOML, append(front[1:], e.command.text), front[0])
	})
}

// Uninstall removes tgad from the commands before which [Install] put it. These begin with an
// absolute path of tgad, or with f.Program.
func Uninstall(raw []byte, p Place, f Front, servers []string) (after []byte, changes []Change, err error) {
	return edit(raw, p, servers, func(e *entry, c *Change) []splice {
		at := inner(e)
		if at < 0 || !isProgram(e.command.text, f.Program) || !filepath.IsAbs(e.command.text) && e.command.text != f.Program {
			c.Why = notOurs
			return nil
		}
		c.After = c.Before[1+at:]
		cut := span{e.args[0].from, e.args[at].to}
		if at+1 < len(e.args) {
			cut.to = e.args[at+1].from
		} else if rest := bytes.TrimLeft(raw[cut.to:], " \t\r\n"); bytes.HasPrefix(rest, []byte(",")) {
			cut.to = len(raw) - len(rest) + 1
		}
		was := e.args[at].span
		return []splice{{e.command.span, string(raw[was.from:was.to])}, {cut, ""}}
	})
}

// isProgram reports whether a command is tgad.
func isProgram(command, program string) bool {
	return command == program || filepath.Base(command) == "tgad"
}

// inner is the index of the argument that is the command behind tgad mcp, -1 if there is none.
func inner(e *entry) int {
	if len(e.args) == 0 || e.args[0].text != "mcp" {
		return -1
	}
	at := slices.IndexFunc(e.args, func(t token) bool { return t.text == "--" })
	if at < 0 || at+1 >= len(e.args) {
		return -1
	}
	return at + 1
}

// edit makes the changes that f returns for the servers.
func edit(raw []byte, p Place, servers []string, f func(*entry, *Change) []splice) ([]byte, []Change, error) {
	all, err := entriesOf(raw, p)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range servers {
		if !slices.ContainsFunc(all, func(e *entry) bool { return e.name == name }) {
			return nil, nil, tga.Errorf(tga.NotFound, "%s has no tool server %q; it has: %s", p.File, name, namesOf(all))
		}
	}
	var changes []Change
	var splices []splice
	for _, e := range all {
		if len(servers) > 0 && !slices.Contains(servers, e.name) {
			continue
		}
		c := Change{Server: e.name, Why: e.odd}
		if e.odd == "" {
			c.Before, c.Line = e.words(), 1+bytes.Count(raw[:e.command.from], []byte("\n"))
			splices = append(splices, f(e, &c)...)
		}
		changes = append(changes, c)
	}
	after := apply(raw, splices)
	// Read the result again: it must have the intended words, and the same words as before for all
	// other servers.
	again, err := entriesOf(after, p)
	if err == nil && len(again) != len(all) {
		err = tga.Errorf(tga.ValidationError, "%s: it would have %d tool servers, not %d", p.File, len(again), len(all))
	}
	for i := 0; err == nil && i < len(all); i++ {
		want := all[i]
		if want.odd != "" {
			continue
		}
		words := want.words()
		for _, c := range changes {
			if c.Server == want.name && c.After != nil {
				words = c.After
			}
		}
		if again[i].command == nil || !slices.Equal(again[i].words(), words) {
			err = tga.Errorf(tga.ValidationError, "%s: %q cannot be changed in the form that it has", p.File, want.name)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return after, changes, nil
}

func namesOf(all []*entry) string {
	var names []string
	for _, e := range all {
		names = append(names, e.name)
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// splice replaces a part of a file by a text.
type splice struct {
	span
	text string
}

func apply(raw []byte, splices []splice) []byte {
	slices.SortFunc(splices, func(a, b splice) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, s := range splices {
		out = append(append(out, raw[at:s.from]...), s.text...)
		at = s.to
	}
	return append(out, raw[at:]...)
}

// wrap replaces the command by program, and puts words before the arguments.
func (e *entry) wrap(raw []byte, isTOML bool, words []string, program string) []splice {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, quote(w))
	}
	text := strings.Join(quoted, ", ")
	s := []splice{{e.command.span, quote(program)}}
	switch {
	case len(e.args) > 0:
		at := e.args[0].from
		return append(s, splice{span{at, at}, text + ", "})
	case e.list != nil:
		at := e.list.from + 1
		return append(s, splice{span{at, at}, text})
	case isTOML && e.inline:
		text = ", args = [" + text + "]"
	case isTOML:
		text = "\nargs = [" + text + "]"
	default:
		text = "," + lineOf(raw, e.command.from) + `"args": [` + text + "]"
	}
	at := e.command.to
	return append(s, splice{span{at, at}, text})
}

// lineOf returns the white space to put between two members: a line end and the line's indentation if
// the member at at begins a line, else one blank.
func lineOf(raw []byte, at int) string {
	begin := bytes.LastIndexByte(raw[:at], '\n') + 1
	line := raw[begin:at]
	blanks := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	if begin == 0 || !bytes.HasPrefix(line[len(blanks):], []byte(`"command"`)) {
		return " "
	}
	return "\n" + string(blanks)
}

// quote makes a string literal that is valid in JSON and in TOML.
func quote(s string) string {
	text, err := oneLine(s)
	if err != nil {
		panic(err) // a string has a form in JSON
	}
	return strings.ReplaceAll(text, "\u007f", `\u007f`)
}
