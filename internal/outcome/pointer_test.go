package outcome

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPointersOfTheStandard: the document and the pointers of RFC 6901 §5, but for the
// whole document, and what the standard says is no pointer.
func TestPointersOfTheStandard(t *testing.T) {
	doc := parse([]byte(`{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}`))
	for p, want := range map[string]string{
		"/foo": `["bar","baz"]`, "/foo/0": `"bar"`, "/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3",
		"/g|h": "4", `/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8", "/foo/1": `"baz"`,
		"/foo/2": "", "/foo/-": "", "/foo/00": "", "/foo/01": "", "/foo/+1": "", "/foo/": "", "/foo/1e0": "",
		"/foo/99999999999999999999999999": "", "/foo/18446744073709551616": "",
		"/a/b": "", "/foo/0/0": "", "/Foo": "", "/m~01n": "",
	} {
		tokens, err := parsePointer("/doc" + p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		got := ""
		if v, absent := (documents{"doc": doc}).find(tokens); v != nil {
			got = string(v.raw)
		} else if !absent {
			t.Errorf("%s: not there and not absent", p)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
		if tokens.String() != "/doc"+p {
			t.Errorf("%s is written %s", p, tokens)
		}
	}
	for _, p := range []string{"", "foo", "#/foo", "/~", "/~2", "/a~", "/a/~01~", "/~~0"} {
		if got, err := parsePointer(p); err == nil {
			t.Errorf("%q is taken as %q", p, []string(got))
		}
	}
	if p, err := parsePointer("/~01"); err != nil || p[0] != "~1" {
		t.Errorf("~01 is %q, %v", p, err)
	}
	long := "/" + strings.Repeat("x", maxPointer-1)
	if _, err := parsePointer(long); err != nil {
		t.Error(err)
	}
	if _, err := parsePointer(long + "x"); err == nil {
		t.Error("a pointer over the limit is taken")
	}
}

// genValue makes a JSON value with all that pointers have to escape.
func genValue(depth int) *rapid.Generator[any] {
	names := rapid.SampledFrom([]string{"", "a", "~", "/", "~1", "a/b~0", "ü", "\"", "0", "-", "<&>", "\u2028"})
	return rapid.Custom(func(t *rapid.T) any {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 {
			kind %= 4
		}
		switch kind {
		case 0:
			return json.Number(rapid.SampledFrom([]string{"0", "-1", "1.0", "1e2", "9007199254740993", "0.10"}).Draw(t, "number"))
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2, 3:
			return rapid.String().Draw(t, "string")
		case 4:
			return rapid.SliceOfN(genValue(depth-1), 0, 3).Draw(t, "array")
		}
		return rapid.MapOfN(names, genValue(depth-1), 0, 3).Draw(t, "object")
	})
}

func encode(t interface{ Fatal(...any) }, v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestIndexOfEachDigit: each digit counts, at each place of an index.
func TestIndexOfEachDigit(t *testing.T) {
	items := make([]int, 100)
	for n := range items {
		items[n] = n
	}
	doc := parse([]byte(encode(t, items)))
	for n := range items {
		if v := doc.step(fmt.Sprint(n)); v == nil || string(v.raw) != fmt.Sprint(n) {
			t.Errorf("element %d is %v", n, v)
		}
	}
	for _, none := range []string{"100", "1:", ":", "1/", "/", "-1", ""} {
		if v := doc.step(none); v != nil {
			t.Errorf("element %q is %s", none, v.raw)
		}
	}
}

// TestEveryPlaceHasItsPointer: each value of a document is found at its own path, as it
// is written, and a path that goes on below it leads nowhere.
func TestEveryPlaceHasItsPointer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := genValue(4).Draw(t, "document")
		raw, err := json.MarshalIndent(tree, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		d := documents{"doc": parse(raw)}
		var walk func(at pointer, v any)
		walk = func(at pointer, v any) {
			p, err := parsePointer(at.String())
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			found, _ := d.find(p)
			if found == nil {
				t.Fatalf("nothing at %s of %s", at, raw)
			}
			var back any
			dec := json.NewDecoder(strings.NewReader(string(found.raw)))
			dec.UseNumber()
			if err := dec.Decode(&back); err != nil || encode(t, back) != encode(t, v) {
				t.Fatalf("%s is %s, want %s", at, found.raw, encode(t, v))
			}
			if n, ok := v.(json.Number); ok && string(found.raw) != string(n) {
				t.Fatalf("%s is written %s, want %s", at, found.raw, n)
			}
			below := func(token string) pointer { return append(append(pointer{}, at...), token) }
			if v, absent := d.find(below("no such member")); v != nil || !absent {
				t.Fatalf("something below %s", at)
			}
			switch v := v.(type) {
			case map[string]any:
				for name, m := range v {
					walk(below(name), m)
				}
			case []any:
				for i, e := range v {
					walk(below(fmt.Sprint(i)), e)
				}
				if v, _ := d.find(below(fmt.Sprint(len(v)))); v != nil {
					t.Fatalf("an element past the end of %s", at)
				}
			}
		}
		walk(pointer{"doc"}, tree)
	})
}

func TestARepeatedMemberIsNotThere(t *testing.T) {
	d := documents{"doc": parse([]byte(`{"a":1,"b":{"c":2},"a":3,"b":{"c":2},"d":4,"a":5,"\u0064":4}`))}
	for _, p := range []string{"/doc/a", "/doc/b/c", "/doc/b/x", "/doc/d", "/doc/a/0"} {
		tokens, err := parsePointer(p)
		if err != nil {
			t.Fatal(err)
		}
		if v, absent := d.find(tokens); v != nil || absent {
			t.Errorf("%s: %v, absent %v: neither value nor absence can be told", p, v, absent)
		}
	}
}

func TestTemplates(t *testing.T) {
	d := documents{
		"args":   parse([]byte(`{"x":"v","u":"ü\"\n"}`)),
		"result": parse([]byte(`{"id":9007199254740993,"ok":true,"f":1.0,"n":null,"o":{},"a":[],"half":"\ud800"}`)),
	}
	docs := []string{"args", "result"}
	for _, c := range []struct{ template, want, says string }{
		{"", "", ""},
		{"plain } text", "plain } text", ""},
		{"{/args/x}", "v", ""},
		{"a{/args/x}b{/result/id}c", "avb9007199254740993c", ""},
		{"{/result/ok}{/result/f}", "true1.0", ""},
		{"{/args/u}", "ü\"\n", ""},
		{"{{/args/x}", "{/args/x}", ""},
		{"{{{/args/x}}", "{v}", ""},
		{"{}{x}{", "{}{x}{", ""},
		{"{/result/n}", "", "nothing at /result/n"},
		{"{/result/none/x}", "", "nothing at /result/none/x"},
		{"{/result/o}", "", "/result/o is an object"},
		{"{/result/a}", "", "/result/a is an array"},
		{"{/result/half}", "", "/result/half"},
	} {
		tmpl, err := parseTemplate(c.template, docs)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		got, _, err := tmpl.text(d)
		if c.says == "" && (err != nil || got != c.want) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %q, %v", c.template, got, err)
		}
	}
	for _, bad := range []string{"{/args/x", "{/}", "{/other/x}", "{/args/~2}", "\xff", "{/item/x}"} {
		if _, err := parseTemplate(bad, docs); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	long := strings.Repeat("x", maxTemplate)
	if _, err := parseTemplate(long, docs); err != nil {
		t.Error(err)
	}
	if _, err := parseTemplate(long+"x", docs); err == nil {
		t.Error("a template over the limit is taken")
	}
}

// TestAnyTextHasATemplate: every text, with its braces escaped, is a template that gives the same text.
func TestAnyTextHasATemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.SampledFrom([]rune("{}/~aü1"))).Draw(t, "text")
		tmpl, err := parseTemplate(strings.ReplaceAll(s, "{", "{{"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := tmpl.text(nil); err != nil || got != s {
			t.Fatalf("%q came out as %q, %v", s, got, err)
		}
	})
}
