package config

import "reflect"

// UnusedRows returns the rows of keyRows that no key has.
func UnusedRows() (names []string) {
	used := map[string]bool{}
	var walk func(reflect.Type, string)
	walk = func(t reflect.Type, prefix string) {
		for _, f := range fieldsOf(t) {
			path := join(prefix, f.Tag.Get("toml"))
			used[path], used[owner(t, f).Name()+"."+f.Tag.Get("toml")] = true, true
			if form := formOf(f.Type); form == FormTable || form == FormTables {
				walk(element(f.Type), path)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	for _, table := range keyRows {
		for _, r := range table {
			if !used[r.name] {
				names = append(names, r.name)
			}
		}
	}
	return names
}
