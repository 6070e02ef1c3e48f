package names

import (
	"strings"
	"testing"
)

// TestNoNameHasTwoOwners: with servers that Check accepts, each name leads to at most one server, and
// to the tool that is listed under it.
func TestNoNameHasTwoOwners(t *testing.T) {
	for _, c := range []struct {
		what, wrong string
		all         map[string]Names
	}{
		{"two prefixes", "", map[string]Names{"a": {Prefix: "a__"}, "b": {Prefix: "b__", Rename: map[string]string{"pay": "charge"}}}},
		{"one server without a prefix", "", map[string]Names{"a": {Rename: map[string]string{"pay": "charge", "charge": "pay"}}}},
		{"two names change places", "", map[string]Names{"a": {Prefix: "a_", Rename: map[string]string{"x": "a_y", "y": "a_x"}}}},
		{"the same prefix", "begins that of server", map[string]Names{"a": {Prefix: "x_"}, "b": {Prefix: "x_"}}},
		{"one begins the other", "begins that of server", map[string]Names{"a": {Prefix: "x_"}, "b": {Prefix: "x_y_"}}},
		{"no prefix beside another", "begins that of server", map[string]Names{"a": {}, "b": {Prefix: "b_"}}},
		{"a new name twice", "also has a tool with the name", map[string]Names{"a": {Prefix: "a_", Rename: map[string]string{"x": "pay"}}, "b": {Prefix: "b_", Rename: map[string]string{"x": "pay"}}}},
		{"a new name in another's", "begins as those of", map[string]Names{"a": {Prefix: "a_", Rename: map[string]string{"x": "b_x"}}, "b": {Prefix: "b_"}}},
		{"a new name of a tool that has one", "is that of the tool", map[string]Names{"a": {Prefix: "a_", Rename: map[string]string{"x": "a_y"}}}},
		{"an empty name", "is empty", map[string]Names{"a": {Prefix: "a_", Rename: map[string]string{"x": ""}}}},
	} {
		_, err := Check(c.all)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.what, err, c.wrong)
		}
		if err != nil {
			continue
		}
		for id, n := range c.all {
			for _, tool := range []string{"x", "y", "pay", "charge", "a_x", "b__x"} {
				name, owners := n.Seen(tool), 0
				for other, m := range c.all {
					if back, ok := m.Behind(name); ok {
						owners++
						if other != id || back != tool {
							t.Errorf("%s: %s of %s is seen as %s, which leads to %s of %s", c.what, tool, id, name, back, other)
						}
					}
				}
				if owners != 1 {
					t.Errorf("%s: the name %s has %d owners", c.what, name, owners)
				}
			}
		}
	}
}

// TestWhatIsDeniedIsNowhere: deny overrides allow, and an empty list of allowed names allows none.
func TestWhatIsDeniedIsNowhere(t *testing.T) {
	for _, c := range []struct {
		l    Lists
		name string
		want bool
	}{
		{Lists{}, "pay", true},
		{Lists{Allow: []string{}}, "pay", false},
		{Lists{Allow: []string{"pay"}}, "pay", true},
		{Lists{Allow: []string{"pay"}}, "pay2", false},
		{Lists{Allow: []string{"pa*"}}, "pay", true},
		{Lists{Allow: []string{"*"}, Deny: []string{"pa*"}}, "pay", false},
		{Lists{Deny: []string{"pay"}}, "look", true},
	} {
		if got := c.l.Permit(c.name); got != c.want {
			t.Errorf("%+v permits %s: %v", c.l, c.name, got)
		}
	}
}

// TestDefaultPrefix: the prefix has only characters that every client accepts.
func TestDefaultPrefix(t *testing.T) {
	for id, want := range map[string]string{"files": "files__", "mcp.acme.example/files": "mcp_acme_example_files__", "a-B9": "a-B9__"} {
		if got := Default(id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}
