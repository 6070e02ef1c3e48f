package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestEveryKeyIsAppliedOrRefusedByName changes each key of a file that has them all. Changes names this key
// and no other, and MayFollow refuses the keys that take a restart, by their names. A server that differs
// only in keys which the daemon does not read counts as unchanged.
func TestEveryKeyIsAppliedOrRefusedByName(t *testing.T) {
	words := map[string]int{}
	for _, k := range Keys() {
		if k.IsTable() {
			continue
		}
		if words[k.Reload]++; k.Reload != ReloadApplies && k.Reload != ReloadRestart && k.Reload != ReloadUnread {
			t.Errorf("%s: a reload makes %q of it", k.Path, k.Reload)
			continue
		}
		was, now := Default(), Default()
		fillTables(reflect.ValueOf(was).Elem())
		fillTables(reflect.ValueOf(now).Elem())
		was.places = map[string]position{"limits.body_budget": {1, 1}}
		change(t, reflect.ValueOf(now).Elem(), k.Path)
		if got := now.Changes(was); !slices.Equal(got, []string{k.Path}) {
			t.Errorf("%s: the changes are %v", k.Path, got)
		}
		if same := reflect.DeepEqual(was.Servers[0].Read(), now.Servers[0].Read()); strings.HasPrefix(k.Path, "server.") && same != (k.Reload == ReloadUnread) {
			t.Errorf("%s, which is %s: to the daemon the server is the same: %t", k.Path, k.Reload, same)
		}
		err := now.MayFollow(was)
		switch {
		case k.Reload != ReloadRestart && err != nil:
			t.Errorf("%s: %v", k.Path, err)
		case k.Reload == ReloadRestart && (!errors.Is(err, tga.ValidationError) || !strings.HasSuffix(err.Error(), "needs a restart: "+k.Path)):
			t.Errorf("%s: %v", k.Path, err)
		}
	}
	for _, rows := range []map[string]string{reloadRows, gatewayRows, shimRows} {
		for path := range rows {
			if !slices.ContainsFunc(Keys(), func(k KeyDoc) bool { return k.Path == path }) {
				t.Errorf("a table has %s, which is no key", path)
			}
		}
	}
	if words[ReloadRestart] < 10 || words[ReloadApplies] < 100 {
		t.Errorf("keys by what a reload makes of them: %v", words)
	}
}

// TestServersAreComparedByTheirIDs: a server that moved to another place in the file is the same server, and
// a change in a part that does not count is no change.
func TestServersAreComparedByTheirIDs(t *testing.T) {
	server := func(id, more string) string {
		return "[[server]]\nid = \"" + id + "\"\ntype = \"mcp-command\"\ncommand = [\"x\"]\n" + more
	}
	far := "[[server]]\nid = \"far\"\ntype = \"http\"\nurl = \"http://127.0.0.1:1\"\n"
	a, b := server("a", "workspace = \"w\"\n"), server("b", "")
	for _, c := range []struct{ was, now, changed, refused string }{
		{a + b, b + a, "", ""}, {a + b, a, "server", ""}, {a, b + a, "server", ""}, {b, a + b, "server", ""},
		{a + b, server("b", "workspace = \"w\"\n") + a, "", "server.workspace"}, {a, server("a", "workspace = \"v\"\n"), "", "server.workspace"},
		{a + far, far + a, "", ""}, {a, a + far, "", ""}, {a + b, server("b", "prefix = \"p\"\n") + a, "server.prefix", ""},
		{a + "[[tool]]\nserver = \"a\"\nname = \"t\"\n", a, "tool", ""},
		{a + far + "[[tool]]\nserver = \"far\"\nname = \"t\"\n", a + far, "", ""},
	} {
		parse := func(text string) *Config {
			conf, err := Parse("c.toml", []byte(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			return conf
		}
		changed, err := parse(c.now).MayFollowAt(Behind, parse(c.was), (*Server).SpeaksMCP)
		if got := strings.Join(changed, " "); got != c.changed || (err != nil) != (c.refused != "") || err != nil && !strings.HasSuffix(err.Error(), ": "+c.refused) {
			t.Errorf("from\n%sto\n%schanged %q, %v", c.was, c.now, got, err)
		}
	}
}

// fillTables gives each list of tables an element, and each absent table a value.
func fillTables(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		x := v.FieldByIndex(f.Index)
		switch form := formOf(f.Type); {
		case form == FormTables:
			x.Set(reflect.MakeSlice(f.Type, 1, 1))
			fillTables(x.Index(0))
		case form == FormTable && x.Kind() == reflect.Pointer:
			x.Set(reflect.New(f.Type.Elem()))
			fillTables(x.Elem())
		case form == FormTable:
			fillTables(x)
		}
	}
}

// change gives the key another value than it has.
func change(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	name, rest, below := strings.Cut(path, ".")
	for _, f := range fieldsOf(v.Type()) {
		if f.Tag.Get("toml") != name {
			continue
		}
		x := v.FieldByIndex(f.Index)
		if below {
			if x.Kind() == reflect.Slice {
				x = x.Index(0)
			}
			change(t, reflect.Indirect(x), rest)
			return
		}
		if x.Kind() == reflect.Pointer {
			x.Set(reflect.New(f.Type.Elem()))
			return // the key was absent
		}
		another(t, x)
		return
	}
	t.Fatalf("no field %s", path)
}

func another(t *testing.T, x reflect.Value) {
	switch x.Kind() {
	case reflect.String:
		x.SetString(x.String() + "x")
	case reflect.Bool:
		x.SetBool(!x.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		x.SetInt(x.Int() + 1)
	case reflect.Slice:
		x.Set(reflect.MakeSlice(x.Type(), x.Len()+1, x.Len()+1))
	case reflect.Map:
		m := reflect.MakeMap(x.Type())
		m.SetMapIndex(reflect.ValueOf("another").Convert(x.Type().Key()), reflect.Zero(x.Type().Elem()))
		x.Set(m)
	case reflect.Interface:
		x.Set(reflect.ValueOf("another"))
	case reflect.Struct: // a duration or a size
		another(t, x.Field(0))
	default:
		t.Fatalf("a value of kind %v", x.Kind())
	}
}

// TestChangesOfLists: a list that became longer is named. A default that depends on the machine is no change
// of the file.
func TestChangesOfLists(t *testing.T) {
	parse := func(text string) *Config {
		c, err := Parse("c.toml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one := "[[rule]]\ndecision = \"APPROVE\"\n"
	was, now := parse(one), parse("[[rule]]\ndecision = \"DENY\"\n"+one)
	if got := now.Changes(was); !slices.Equal(got, []string{"rule", "rule.decision"}) {
		t.Errorf("the changes are %v", got)
	}
	now = parse(one)
	now.Limits.BodyBudget.N++
	if got := now.Changes(was); got != nil {
		t.Errorf("the changes are %v", got)
	}
	now.places["limits.body_budget"] = position{1, 1}
	if got := now.Changes(was); !slices.Equal(got, []string{"limits.body_budget"}) {
		t.Errorf("the changes are %v", got)
	}
}
