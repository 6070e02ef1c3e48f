package subject

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestTokensAreForOneParty: a header goes to the tool servers of one origin. Credentials that were sent for one origin
// never go to another, even if a later configuration takes the same header for it.
func TestTokensAreForOneParty(t *testing.T) {
	a, b := Source{Authorization, "https://a.example/mcp"}, Source{Authorization, "https://b.example/mcp"}
	own := Source{HeaderOf(InHeader, "c"), "https://a.example/other"}
	all, err := Take(http.Header{Authorization: {"Bearer one"}, own.Header: {"Bearer two"}, "Tgad-Authorization-D": {"Bearer three"}}, []Source{a, {}, own})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of   Source
		want string
	}{
		{a, "Bearer one"}, {Source{Authorization, "https://A.example:443/elsewhere"}, "Bearer one"}, {own, "Bearer two"},
		{b, ""}, {Source{Authorization, "http://a.example/mcp"}, ""}, {Source{Authorization, "https://a.example:444/mcp"}, ""},
		{Source{own.Header, "https://b.example/mcp"}, ""}, {Source{HeaderOf(InHeader, "d"), a.URL}, ""}, {Source{}, ""}, {Source{URL: a.URL}, ""},
	} {
		if got := all.For(c.of); got != c.want {
			t.Errorf("for %+v: %q, want %q", c.of, got, c.want)
		}
	}
	if said := fmt.Sprintf("%v %+v %s", all, all, all); strings.Contains(said, "Bearer") {
		t.Errorf("printed: %s", said)
	}
	for _, h := range []http.Header{nil, {Authorization: {""}}, {"Tgad-Authorization-C": {""}}} {
		if all, err := Take(h, []Source{a, own}); err != nil || all.Mark() != "" {
			t.Errorf("%v: %v %v", h, all, err)
		}
	}
	for _, name := range []string{Authorization, own.Header} {
		if _, err := Take(http.Header{name: {"x", "x"}}, []Source{a, own}); err == nil {
			t.Errorf("%s was taken twice", name)
		}
	}
	if all, err := Take(http.Header{Authorization: {"x"}}, []Source{a, {Authorization, "https://a.example/2"}}); err != nil || len(all) != 1 {
		t.Errorf("two servers of one origin: %v %v", all, err)
	}
}

// TestMarksAreApart: different sets of credentials have different marks.
func TestMarksAreApart(t *testing.T) {
	seen := map[string]string{}
	for _, all := range []Tokens{
		nil, {{"A", "p", "x"}}, {{"A", "p", "y"}}, {{"A", "q", "x"}}, {{"B", "p", "x"}}, {{"A", "p", "x"}, {"B", "p", "x"}},
		{{"A", "p", "x\nB\np\nx"}}, {{"A", "p", "x"}, {"B", "p", "y"}},
	} {
		words := ""
		for _, x := range all {
			words += fmt.Sprintf("%q %q %q,", x.header, x.party, x.value)
		}
		if other, taken := seen[all.Mark()]; taken {
			t.Errorf("%s has the mark of %s", words, other)
		}
		seen[all.Mark()] = words
		if len(all) == 2 && (Tokens{all[1], all[0]}).Mark() != all.Mark() {
			t.Errorf("the order counts of %s", words)
		}
	}
}

// TestWhoWouldGetTheSame: two servers that would get the same credentials are refused, unless they are the same party.
func TestWhoWouldGetTheSame(t *testing.T) {
	const x, y = "https://x.example/1", "https://y.example/1"
	auth := func(url string) Source { return Source{HeaderOf(InAuthorization, "?"), url} }
	own := func(id, url string) Source { return Source{HeaderOf(InHeader, id), url} }
	for _, c := range []struct {
		all   map[string]Source
		wrong string
	}{
		{map[string]Source{"a": auth(x), "b": auth(x + "/2"), "c": {URL: y}}, ""},
		{map[string]Source{"a": auth(x), "b": auth(y)}, "b"},
		{map[string]Source{"a": auth(x), "b": auth("http://x.example/1")}, "b"},
		{map[string]Source{"a": auth(x), "b": own("b", y), "c": own("c", y)}, ""},
		{map[string]Source{"a.b": own("a.b", x), "a/b": own("a/b", x)}, "a/b"},
		{map[string]Source{"ab": own("ab", x), "AB": own("AB", x)}, "ab"},
	} {
		if wrong, err := Check(c.all); wrong != c.wrong || (err == nil) != (wrong == "") {
			t.Errorf("%v: %q %v, want %q", c.all, wrong, err, c.wrong)
		}
	}
	if got := HeaderOf(InHeader, "Crm.eu/v_1-x"); got != "Tgad-Authorization-Crm-Eu-V-1-X" {
		t.Errorf("header %q", got)
	}
	if HeaderOf("", "a") != "" || HeaderOf("other", "a") != "" {
		t.Error("a server that gets none has a header")
	}
}
