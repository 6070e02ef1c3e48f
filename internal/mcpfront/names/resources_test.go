package names

import "testing"

// TestResourcesThatArePermitted: no URI leads out of the prefix of a pattern.
func TestResourcesThatArePermitted(t *testing.T) {
	for _, c := range []struct {
		uri      string
		patterns Resources
		want     bool
	}{
		{"file:///data/a", nil, false},
		{"file:///data/a", Resources{}, false},
		{"file:///data/a", Resources{"*"}, true},
		{"file:///data/../a", Resources{"*"}, true},
		{"file:///data/a", Resources{"file:///data/*"}, true},
		{"file:///data/a", Resources{"file:///data/a"}, true},
		{"file:///data/ab", Resources{"file:///data/a"}, false},
		{"file:///dat", Resources{"file:///data/*"}, false},
		{"file:///data/../a", Resources{"file:///data/*"}, false},
		{"file:///data/b/../../a", Resources{"file:///data/*"}, false},
		{"file:///data/%2e%2e/a", Resources{"file:///data/*"}, false},
		{"file:///data/..%2fa", Resources{"file:///data/*"}, false},
		{`file:///data/..\a`, Resources{"file:///data/*"}, false},
		{"file:///data/..", Resources{"file:///data/*"}, false},
		{"file:///data/..?x", Resources{"file:///data/*"}, false},
		{"file:///data/./a", Resources{"file:///data/*"}, false},
		{"file:///data/%zz", Resources{"file:///data/*"}, false},
		{"file:///data/..a/b..", Resources{"file:///data/*"}, true},
		{"file:///data/a", Resources{"x", "file:///d*"}, true},
	} {
		if got := c.patterns.Permit(c.uri); got != c.want {
			t.Errorf("%v, %s: %v", c.patterns, c.uri, got)
		}
	}
	for _, c := range []struct {
		template string
		patterns Resources
		want     bool
	}{
		{"file:///data/{name}", nil, false},
		{"file:///data/{name}", Resources{"*"}, true},
		{"file:///data/{name}", Resources{"file:///data/a"}, true},
		{"file:///data/{name}", Resources{"file:///other/*"}, false},
		{"file:///data/x/{name}", Resources{"file:///data/*"}, true},
		{"file:///data/x/{name}", Resources{"file:///data/"}, false},
		{"{+any}", Resources{"file:///data/*"}, true},
	} {
		if got := c.patterns.PermitTemplate(c.template); got != c.want {
			t.Errorf("%v, %s: %v", c.patterns, c.template, got)
		}
	}
}
