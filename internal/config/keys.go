package config

import (
	"reflect"
	"slices"
	"strings"
)

// KeyDoc describes one key of the file, for people and for editors. Its text comes from keyRows, and
// its form from the field that it is read into.
type KeyDoc struct {
	Path    string // such as "server.breaker.open"
	Form    string // one of the forms below
	Default string // as in the file; "" = no default can be named
	Needed  bool   // its table is refused without it
	Words   []string
	Types   []string // values of the table's key type that the key belongs to; nil = all
	Secret  bool     // its value is never shown
	Reload  string   // what a reload does with it, one of the Reload words
	Text    string
}

// Forms of a [KeyDoc].
const (
	FormString   = "string"
	FormBool     = "true or false"
	FormInteger  = "integer"
	FormDuration = "duration"
	FormSize     = "size"
	FormStrings  = "list of strings"
	FormIntegers = "list of integers"
	FormMap      = "table of strings"
	FormTable    = "table"
	FormTables   = "list of tables"
	FormAny      = "any value"
)

// IsTable says whether there are other keys below the key.
func (k *KeyDoc) IsTable() bool { return k.Form == FormTable || k.Form == FormTables }

// row is the text about a key. name is its path. If a table is at several places in the file, name is
// the Go type of the table and the key.
type row struct {
	name   string
	preset string
	text   string
	words  []string
}

// needed stands in place of the default of a key that is required.
const needed = "(needed)"

// Keys lists every key of the file in the order of the fields, a table before its keys.
func Keys() []KeyDoc {
	rows := map[string]row{}
	for _, table := range keyRows {
		for _, r := range table {
			rows[r.name] = r
		}
	}
	return keysBelow(rows, reflect.TypeFor[Config](), "")
}

func keysBelow(rows map[string]row, t reflect.Type, prefix string) (all []KeyDoc) {
	for _, f := range fieldsOf(t) {
		name := f.Tag.Get("toml")
		path := join(prefix, name)
		r, ok := rows[path]
		if !ok {
			r = rows[owner(t, f).Name()+"."+name]
		}
		k := KeyDoc{
			Path: path, Form: formOf(f.Type), Default: r.preset, Needed: r.preset == needed,
			Words: r.words, Types: typesOf(path), Secret: secretKeys[path], Reload: reloadOf(path), Text: r.text,
		}
		if k.Needed {
			k.Default = ""
		}
		all = append(all, k)
		if k.IsTable() {
			all = append(all, keysBelow(rows, element(f.Type), path)...)
		}
	}
	return all
}

// fieldsOf are the fields of a table that the file can set, those of embedded structs too.
func fieldsOf(t reflect.Type) (fields []reflect.StructField) {
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("toml"); name != "" && name != "-" && f.IsExported() {
			fields = append(fields, f)
		}
	}
	return fields
}

// owner is the struct that declares a field: the one that is embedded, for a promoted field.
func owner(t reflect.Type, f reflect.StructField) reflect.Type {
	for _, i := range f.Index[:len(f.Index)-1] {
		t = t.Field(i).Type
	}
	return t
}

// element is the struct of a table or of a list of tables.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func formOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[Duration]():
		return FormDuration
	case reflect.TypeFor[Bytes]():
		return FormSize
	}
	switch t.Kind() {
	case reflect.Bool:
		return FormBool
	case reflect.String:
		return FormString
	case reflect.Map:
		return FormMap
	case reflect.Struct:
		return FormTable
	case reflect.Interface:
		return FormAny
	case reflect.Slice:
		switch t.Elem().Kind() {
		case reflect.Struct:
			return FormTables
		case reflect.String:
			return FormStrings
		}
		return FormIntegers
	}
	return FormInteger
}

// typesOf are the types that a key belongs to; nil if it belongs to all.
func typesOf(path string) []string {
	for prefix, table := range map[string]map[string][]string{"server.": only, "verifier.": verifierOnly, "prober.": proberOnly, "audit.": auditOnly, "notify.": notifyKeys} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			return slices.Clone(table[key])
		}
	}
	return nil
}

// secretKeys are the keys whose whole value may be a secret. [Mask] finds secrets inside other
// values.
var secretKeys = map[string]bool{"server.env": true, "gateway.identity.key_sha256": true}
