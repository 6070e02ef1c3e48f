package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/schemas/tga"
)

// Default is the configuration of an empty file: no tool server, every request denied.
func Default() *Config {
	c, err := Parse("", nil, nil)
	if err != nil {
		panic(err) // the empty file is valid
	}
	return c
}

// Load is [Parse] of a file. PERMISSION_DENIED: somebody else could have written it.
func Load(path string, b Builder) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "configuration: %w", err)
	}
	defer f.Close()
	// Check the open file and not the path: otherwise somebody could replace the file between the
	// check and the read.
	info, err := f.Stat()
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "configuration: %w", err)
	}
	found := access.Of(info)
	if found.Refuse != "" {
		return nil, tga.Errorf(tga.PermissionDenied, "configuration %s: %s: it names programs to run. chmod 600 it, owned by the daemon's user or root", path, found.Refuse)
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "configuration: %w", err)
	}
	c, err := Parse(path, raw, b)
	if err == nil && found.Warn != "" {
		c.warnings = append(c.warnings, "configuration "+path+": "+found.Warn)
	}
	return c, err
}

// Builder checks whether the things that a file describes can be made. [Parse] calls it so that one
// error also lists the mistakes that only the package of a type can find. Its methods contact no
// server. Each error begins with the wrong key and ": ".
type Builder interface {
	CheckStore(c *Config, s *Store) error
	CheckBackup(c *Config, b *Backup) error
	CheckServer(c *Config, s *Server) error
	CheckVerifier(c *Config, v *Verifier) error
	CheckProber(c *Config, p *Prober) error
	// CheckPublicKey checks a key that signs checkpoints, or that of a witness.
	CheckPublicKey(key string, witness bool) error
}

// Parse reads a configuration; name is that of the file, for messages and relative paths. If b is nil,
// the checks that need a [Builder] are left out; package assemble has one. The error is
// VALIDATION_ERROR and lists every mistake.
func Parse(name string, raw []byte, b Builder) (*Config, error) {
	c := &Config{dir: filepath.Dir(name)}
	r := &report{name: name, lines: strings.Split(string(raw), "\n")}
	d := toml.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		r.decode(err)
		return nil, r.err()
	}
	r.positions = positionsOf(raw)
	for path, at := range r.positions {
		if key := misspelt(reflect.TypeFor[Config](), path); key != nil {
			r.mistakes = append(r.mistakes, mistake{at, fmt.Sprintf("unknown key %q%s", strings.Join(key, "."), suggestion(key))})
		}
	}
	c.check(r, b)
	if err := r.err(); err != nil {
		return nil, err
	}
	c.places = r.positions
	c.zeros = c.zerosThatSayNothing() // before fill replaces them
	c.fill()
	return c, nil
}

// mistake is one thing that is wrong with a file.
type mistake struct {
	position
	what string
}

// position is a place in a file, counted from 1 in bytes; zero = the file as a whole.
type position struct{ line, column int }

// report collects what is wrong with a file.
type report struct {
	name      string
	lines     []string
	positions map[string]position // of keys, by path
	mistakes  []mistake
	hidden    map[int]bool // lines that may hold a secret; the error does not repeat them
}

// decode adds the mistakes that the TOML decoder found.
func (r *report) decode(err error) {
	var missing *toml.StrictMissingError
	var one *toml.DecodeError
	switch {
	case errors.As(err, &missing):
		for i := range missing.Errors {
			e := &missing.Errors[i]
			key := e.Key()
			r.mistakes = append(r.mistakes, mistake{placeOf(e), fmt.Sprintf("unknown key %q%s", strings.Join(key, "."), suggestion(key))})
		}
	case errors.As(err, &one):
		r.mistakes = append(r.mistakes, mistake{placeOf(one), strings.TrimPrefix(one.Error(), "toml: ")})
	default:
		r.mistakes = append(r.mistakes, mistake{position{}, err.Error()})
	}
}

func placeOf(e *toml.DecodeError) (p position) {
	p.line, p.column = e.Position()
	return p
}

// add reports a mistake at a key. If the key is absent, the place is that of its table.
func (r *report) add(path, format string, args ...any) {
	r.mistakes = append(r.mistakes, mistake{r.place(path), path + ": " + fmt.Sprintf(format, args...)})
}

// place is the position of a key, or of its nearest table in the file; zero if there is none.
func (r *report) place(path string) (at position) {
	for p := path; at.line == 0 && p != ""; {
		at = r.positions[p]
		p = p[:max(strings.LastIndexByte(p, '.'), 0)]
	}
	return at
}

// addSecret is add for a key whose value may be a secret: the error does not repeat its line.
func (r *report) addSecret(path, format string, args ...any) {
	r.add(path, format, args...)
	if r.hidden == nil {
		r.hidden = map[int]bool{}
	}
	r.hidden[r.place(path).line] = true
}

// err is the report as an error; nil if there is no mistake.
func (r *report) err() error {
	if len(r.mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(r.mistakes, func(a, b mistake) int { return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column)) })
	var b strings.Builder
	// Compact the list: a mistake about an array was added once for each of its elements.
	for i, m := range slices.Compact(r.mistakes) {
		if i > 0 {
			b.WriteByte('\n')
		}
		m.what = maskQuoted(m.what)
		name := cmp.Or(r.name, "configuration")
		if m.line == 0 || m.line > len(r.lines) {
			fmt.Fprintf(&b, "%s: %s", name, m.what)
			continue
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s", name, m.line, m.column, m.what)
		if !r.hidden[m.line] {
			fmt.Fprintf(&b, "\n%5d | %s", m.line, Mask(r.lines[m.line-1]))
		}
	}
	return tga.Errorf(tga.ValidationError, "%s", b.String())
}

// positionsOf finds the place of each key and table: "limits.depth", "server.0.url",
// "tool.2.outcome.0.class".
func positionsOf(raw []byte) map[string]position {
	at := map[string]position{}
	seen := map[string]int{} // elements so far, of each array of tables
	var p unstable.Parser
	p.Reset(raw)
	prefix := ""
	for p.NextExpression() {
		n := p.Expression()
		switch n.Kind {
		case unstable.Table, unstable.ArrayTable:
			parts, place := keyOf(&p, n)
			path := ""
			for i, part := range parts {
				path = join(path, part)
				if i == len(parts)-1 && n.Kind == unstable.ArrayTable {
					seen[path]++
				}
				// A key below an array of tables belongs to its newest element.
				if count := seen[path]; count > 0 {
					path = fmt.Sprintf("%s.%d", path, count-1)
				}
			}
			at[path], prefix = place, path
		case unstable.KeyValue:
			keyValue(&p, n, prefix, at)
		}
	}
	return at
}

func keyValue(p *unstable.Parser, n *unstable.Node, prefix string, at map[string]position) {
	parts, place := keyOf(p, n)
	path := join(prefix, strings.Join(parts, "."))
	at[path] = place
	value(p, n.Value(), path, place, at)
}

// value finds the keys in inline tables, and in those in an array.
func value(p *unstable.Parser, v *unstable.Node, path string, place position, at map[string]position) {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			keyValue(p, it.Node(), path, at)
		}
	case unstable.Array:
		n := 0
		for it := v.Children(); it.Next(); n++ {
			element := fmt.Sprintf("%s.%d", path, n)
			at[element] = place
			value(p, it.Node(), element, place, at)
		}
	}
}

// misspelt returns the names of a path if the last one differs only in case from a key of t; else
// nil. The decoder accepts such a name, although TOML distinguishes the case of keys. Without this
// check, of profile and PROFILE in one file the later would count.
func misspelt(t reflect.Type, path string) (names []string) {
	for rest, more := path, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, ".")
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if _, err := strconv.Atoi(name); err == nil && t.Kind() == reflect.Slice {
			t = t.Elem()
			continue
		}
		if t = element(t); t.Kind() != reflect.Struct {
			return nil // the keys of a map may have any name
		}
		names = append(names, name)
		i := slices.IndexFunc(fieldsOf(t), func(f reflect.StructField) bool { return f.Tag.Get("toml") == name })
		if i < 0 {
			if strings.Trim(rest, ".0123456789") != "" {
				return nil // the name of the table is misspelt, which is reported for the table
			}
			return names
		}
		t = fieldsOf(t)[i].Type
	}
	return nil
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

func keyOf(p *unstable.Parser, n *unstable.Node) (parts []string, place position) {
	for it := n.Key(); it.Next(); {
		k := it.Node()
		if place.line == 0 {
			start := p.Shape(k.Raw).Start
			place = position{start.Line, start.Column}
		}
		parts = append(parts, string(k.Data))
	}
	return parts, place
}
