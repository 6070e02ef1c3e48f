package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Changes lists the keys whose values differ from those of an earlier file, in the order of [Keys]. If
// a list of tables has another length, the list itself is named too, beside the changed keys of the
// tables that both files have at the same place.
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
	return refusal(c.Changes(earlier), Daemon)
}

// MayFollowAt is MayFollow of another program that reads the file, and of its servers: what differs is looked for in
// servers of the same id. of says which servers count. The changes are those that it applies, in the order of [Keys].
func (c *Config) MayFollowAt(r Reader, earlier *Config, of func(*Server) bool) (changed []string, err error) {
	now, was := c.beside(earlier, of)
	all := now.Changes(was)
	ids := func(c *Config) (all []string) {
		for i := range c.Servers {
			if of(&c.Servers[i]) {
				all = append(all, c.Servers[i].ID)
			}
		}
		slices.Sort(all)
		return all
	}
	if !slices.Equal(ids(c), ids(earlier)) {
		changed = append(changed, "server")
	}
	for _, key := range all {
		if ReloadOf(r, key) == ReloadApplies || key == "tool" { // one more, or one less, of those that count
			changed = append(changed, key)
		}
	}
	return changed, refusal(all, r)
}

// beside are two files with the servers that both have, in the same order, and with what belongs to these.
func (c *Config) beside(earlier *Config, of func(*Server) bool) (now, was *Config) {
	a, b := *c, *earlier
	a.Servers, b.Servers = nil, nil
	counts := map[string]bool{}
	for i := range c.Servers {
		s := &c.Servers[i]
		j := slices.IndexFunc(earlier.Servers, func(other Server) bool { return other.ID == s.ID })
		if counts[s.ID] = of(s); counts[s.ID] && j >= 0 {
			a.Servers, b.Servers = append(a.Servers, *s), append(b.Servers, earlier.Servers[j])
		}
	}
	others := func(t Tool) bool { return !counts[t.Server] }
	a.Tools, b.Tools = slices.DeleteFunc(slices.Clone(c.Tools), others), slices.DeleteFunc(slices.Clone(earlier.Tools), others)
	return &a, &b
}

func refusal(changed []string, r Reader) error {
	var fixed []string
	for _, key := range changed {
		if ReloadOf(r, key) == ReloadRestart {
			fixed = append(fixed, key)
		}
	}
	if len(fixed) == 0 {
		return nil
	}
	return tga.Errorf(tga.ValidationError, "nothing of the configuration was applied: needs a restart: %s", strings.Join(fixed, ", "))
}
