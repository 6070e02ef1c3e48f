package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Changes lists the keys in whose values the file differs from an earlier one, in the order of
// [Keys]. A list of tables that is longer or shorter is named itself, beside the keys of the tables
// that both files have at the same place.
func (c *Config) Changes(earlier *Config) []string {
	found := map[string]bool{}
	compare(found, reflect.ValueOf(earlier).Elem(), reflect.ValueOf(c).Elem(), "")
	if earlier.places["limits.body_budget"] == (position{}) && c.places["limits.body_budget"] == (position{}) {
		delete(found, "limits.body_budget") // its default is what the machine had when each file was read
	}
	var all []string
	for _, k := range Keys() {
		if found[k.Path] && !slices.Contains(all, k.Path) {
			all = append(all, k.Path)
		}
	}
	return all
}

// compare notes the keys of a table that differ in two values of it.
func compare(found map[string]bool, a, b reflect.Value, path string) {
	for _, f := range fieldsOf(a.Type()) {
		at := join(path, f.Tag.Get("toml"))
		x, y := a.FieldByIndex(f.Index), b.FieldByIndex(f.Index)
		switch form := formOf(f.Type); {
		case form == FormTable && x.Kind() == reflect.Pointer && (x.IsNil() || y.IsNil()):
			found[at] = found[at] || x.IsNil() != y.IsNil()
		case form == FormTable:
			compare(found, reflect.Indirect(x), reflect.Indirect(y), at)
		case form == FormTables:
			found[at] = found[at] || x.Len() != y.Len()
			for i := range min(x.Len(), y.Len()) {
				compare(found, x.Index(i), y.Index(i), at)
			}
		case !reflect.DeepEqual(x.Interface(), y.Interface()):
			found[at] = true
		}
	}
}

// MayFollow refuses a file that a running daemon cannot take after an earlier one:
// VALIDATION_ERROR, which names each key that takes a restart.
func (c *Config) MayFollow(earlier *Config) error {
	var fixed []string
	for _, key := range c.Changes(earlier) {
		if reloadOf(key) == ReloadRestart {
			fixed = append(fixed, key)
		}
	}
	if len(fixed) == 0 {
		return nil
	}
	return tga.Errorf(tga.ValidationError, "nothing of the configuration was applied: needs a restart: %s", strings.Join(fixed, ", "))
}
