package config

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Setting is one line of a configuration with its defaults.
type Setting struct {
	Head   string `json:"table"`            // head of its table or element, in TOML
	Path   string `json:"path"`             // "server.0.url"
	Key    string `json:"key,omitempty"`    // below the head; "" for the head itself
	Value  string `json:"value,omitempty"`  // in TOML, without secrets
	Line   int    `json:"line,omitempty"`   // in the file; 0 = not in the file
	Column int    `json:"column,omitempty"` // from 1
	Preset bool   `json:"default,omitempty"`

	zero bool // the file says 0, which counts as absent: Value is the default
}

// always are the tables whose defaults are listed although the file does not have them.
var always = map[string]bool{"store": true, "limits": true, "approval": true}

// Settings are the values in effect: those of the file, and the defaults of its tables. In their
// order they are a file with the same meaning. Values that may be secret are hidden.
func (c *Config) Settings() []Setting {
	s := settings{c: c, keys: map[string]KeyDoc{}}
	for _, k := range Keys() {
		s.keys[k.Path] = k
	}
	s.table(reflect.ValueOf(c).Elem(), "", "", "")
	return s.all
}

type settings struct {
	c    *Config
	keys map[string]KeyDoc
	all  []Setting
}

// table lists a table: first its keys, then the tables below it that have heads of their own. doc is
// the path without numbers, and head is the table's head in TOML.
func (s *settings) table(v reflect.Value, path, doc, head string) {
	s.lines(v, path, doc, head, "")
	s.below(v, path, doc)
}

// lines lists the keys of a table. The keys of a table inside it are dotted.
func (s *settings) lines(v reflect.Value, path, doc, head, prefix string) {
	kind := ""
	if f := v.FieldByName("Type"); f.IsValid() && f.Kind() == reflect.String {
		kind = f.String()
	}
	for _, f := range fieldsOf(v.Type()) {
		name := f.Tag.Get("toml")
		k, at := s.keys[join(doc, name)], join(path, name)
		field := v.FieldByIndex(f.Index)
		switch {
		case kind != "" && k.Types != nil && !slices.Contains(k.Types, kind):
		case k.Form == FormTable && doc != "":
			if field.Kind() == reflect.Pointer {
				if field.IsNil() {
					continue
				}
				field = field.Elem()
			}
			s.lines(field, at, join(doc, name), head, join(prefix, name))
		case k.IsTable():
		default:
			s.value(k, field, at, head, join(prefix, name), idle(v.Interface(), name))
		}
	}
}

func (s *settings) value(k KeyDoc, field reflect.Value, at, head, key string, idle bool) {
	place, there := s.c.places[at]
	text, zero := "", there && saysNothing(k, field)
	switch {
	case zero:
		v, ok := k.value()
		if !ok {
			v = field.Interface() // the default is not a value that the key could have
		}
		text = tomlText(reflect.ValueOf(v))
	case there && k.Secret:
		text = secretText(field)
	case there:
		text = tomlText(field)
	case !field.IsZero():
		text = tomlText(field) // from fill
	case idle:
		return
	default:
		v, ok := k.value()
		if !ok {
			return
		}
		text = tomlText(reflect.ValueOf(v))
	}
	s.all = append(s.all, Setting{Head: head, Path: at, Key: key, Value: text, Line: place.line, Column: place.column, Preset: !there, zero: zero})
}

// saysNothing says whether the value in the file counts as if the key were absent. That is the case for 0,
// unless the field is a pointer, which distinguishes 0 from absent.
func saysNothing(k KeyDoc, field reflect.Value) bool {
	switch k.Form {
	case FormInteger, FormDuration, FormSize:
		return field.Kind() != reflect.Pointer && field.IsZero() && k.Default != "0"
	}
	return false
}

// zerosThatSayNothing warns of each 0 in the file that counts as absent.
func (c *Config) zerosThatSayNothing() (all []Advice) {
	for _, s := range c.Settings() {
		switch {
		case !s.zero:
		case s.Value == "0" || s.Value == "'0s'":
			all = append(all, Advice{s.Line, s.Column, s.Path, "0 counts as if the key were absent"})
		default:
			all = append(all, Advice{s.Line, s.Column, s.Path, "0 counts as if the key were absent: " + strings.Trim(s.Value, "'") + " holds"})
		}
	}
	return all
}

// idle says whether the default of a key has no effect with the other values of its table.
func idle(table any, key string) bool {
	switch t := table.(type) {
	case Store:
		return t.URL != "" && slices.Contains(directoryKeys, key) || t.URL == "" && slices.Contains(databaseKeys, key)
	case Keyring:
		return key == "kek_timeout" && !t.asks()
	case Place:
		return key == "path" && t.Git == ""
	case Server:
		return key == "workspace_keep" && t.Workspace == ""
	case Tool:
		return key == "margin" && t.licence.Kind != ledger.DedupeKey
	case Model:
		return key == "max_tokens" && t.Type != Anthropic
	case Backoff:
		return key == "first" && t.Max.D > 0 && t.Max.D < time.Second || key == "max" && t.First.D > time.Hour
	case Rule:
		return key == "required" && t.Decision != tga.NeedsApproval
	}
	return false
}

// below lists the tables below a table that have heads of their own.
func (s *settings) below(v reflect.Value, path, doc string) {
	for _, f := range fieldsOf(v.Type()) {
		name := f.Tag.Get("toml")
		k, at := s.keys[join(doc, name)], join(path, name)
		field := v.FieldByIndex(f.Index)
		switch {
		case k.Form == FormTable && field.Kind() == reflect.Pointer:
		case k.Form == FormTable && doc != "":
			s.below(field, at, k.Path)
		case k.Form == FormTable && (always[k.Path] || !field.IsZero()):
			s.head(at, "["+k.Path+"]")
			s.table(field, at, k.Path, "["+k.Path+"]")
		case k.Form == FormTables:
			for i := range field.Len() {
				at := at + "." + strconv.Itoa(i)
				s.head(at, "[["+k.Path+"]]")
				s.table(field.Index(i), at, k.Path, "[["+k.Path+"]]")
			}
		}
	}
}

func (s *settings) head(at, head string) {
	place := s.c.places[at]
	s.all = append(s.all, Setting{Head: head, Path: at, Line: place.line, Column: place.column, Preset: place.line == 0})
}

// secretText hides a value. Of a table it shows the names of the keys.
func secretText(v reflect.Value) string {
	if v.Kind() != reflect.Map {
		return tomlText(reflect.ValueOf(hidden))
	}
	names := map[string]string{}
	for _, name := range v.MapKeys() {
		names[name.String()] = hidden
	}
	return tomlText(reflect.ValueOf(names))
}

// tomlText is a value in TOML, without secrets.
func tomlText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	x := v.Interface()
	switch y := x.(type) {
	case Duration:
		x = shortDuration(y.D.String())
	case Bytes:
		x = shortSize(y.N)
	case []string:
		x = MaskWords(y)
	case string:
		x = Mask(y)
	case map[string]string:
		masked := map[string]string{}
		for name, text := range y {
			masked[name] = Mask(text)
		}
		x = masked
	}
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.SetTablesInline(true)
	if err := e.Encode(map[string]any{"x": x}); err != nil {
		return hidden // cannot happen with a value of a parsed file
	}
	return strings.TrimPrefix(strings.TrimSpace(b.String()), "x = ")
}

// shortDuration is 1h for 1h0m0s.
func shortDuration(s string) string {
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}

// shortSize is "16MiB" for whole units, else the number.
func shortSize(n int64) any {
	for _, u := range []struct {
		suffix string
		size   int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n > 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return n
}
