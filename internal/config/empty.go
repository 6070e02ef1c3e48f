package config

import (
	"fmt"
	"reflect"
)

// selecting are the keys that choose among calls, tools or services, and whose absence chooses all of them. An empty
// value reads as none of them. It would count as absent: a rule whose text a template did not fill in would approve every
// tool, or erase the calls of every namespace. The key notify.on has a check of its own.
var selecting = map[string]bool{
	"rule.server": true, "rule.tool": true, "rule.risk": true,
	"retention.rule.namespace": true, "retention.rule.server": true, "retention.rule.tool": true, "retention.rule.states": true, "retention.rule.classes": true,
	"notify.namespace": true, "notify.server": true, "notify.tool": true,
	"server.allow": true, "server.services": true, "store.namespace": true,
	"gateway.identity.allow": true, "gateway.identity.resources": true, "gateway.identity.limit.tool": true,
}

// checkEmpty refuses the keys of a table, and of those below it, that are selecting, in the file and empty. at is the
// path of the table in the file, and key the path of its keys in [Keys].
func (r *report) checkEmpty(table reflect.Value, at, key string) {
	for _, f := range fieldsOf(table.Type()) {
		name := f.Tag.Get("toml")
		v, at, key := table.FieldByIndex(f.Index), join(at, name), join(key, name)
		_, given := r.positions[at]
		switch form := formOf(f.Type); {
		case form == FormTables:
			for i := range v.Len() {
				r.checkEmpty(v.Index(i), fmt.Sprintf("%s.%d", at, i), key)
			}
		case form == FormTable && !(v.Kind() == reflect.Pointer && v.IsNil()):
			r.checkEmpty(reflect.Indirect(v), at, key)
		case selecting[key] && given && v.Len() == 0:
			r.add(at, "it is empty, which would choose everything: leave the key out if that is meant")
		}
	}
}
