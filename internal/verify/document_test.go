package verify

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const text = `{"a":{"b":[10,{"c":"x"}],"":1,"n":null,"~/":"t"},"big":9007199254740993,"one":1.0,"bool":true,"s":"1","e":""}`

func TestLookup(t *testing.T) {
	d, err := ParseDoc([]byte(" " + text + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		pointer, want string
		ok            bool
	}{
		{"", text, true},
		{"/a/b/0", "10", true},
		{"/a/b/1/c", `"x"`, true},
		{"/a/b/2", "", false},
		{"/a/b/-", "", false},
		{"/a/b/01", "", false},
		{"/a/b/+1", "", false},
		{"/a/b/99999999999999999999", "", false},
		{"/a/b/c", "", false},
		{"/a/", "1", true},
		{"/a/n", "null", true},
		{"/a/~0~1", `"t"`, true},
		{"/a/n/x", "", false},
		{"/big", "9007199254740993", true},
		{"/s/0", "", false},
		{"/none", "", false},
	} {
		got, ok, err := d.Lookup(test.pointer)
		if string(got) != test.want || ok != test.ok || err != nil {
			t.Errorf("%q: got %q, %v, %v", test.pointer, got, ok, err)
		}
	}
}

// TestRepeatedMemberIsNoAnswer: readers disagree about which of two equal members counts.
func TestRepeatedMemberIsNoAnswer(t *testing.T) {
	d, err := ParseDoc([]byte(`{"x":{"k":1,"k":2},"k":3}`))
	if err != nil {
		t.Fatal(err)
	}
	for pointer, bad := range map[string]bool{"/x/k": true, "/k": false, "/x": false} {
		if _, _, err := d.Lookup(pointer); (err != nil) != bad {
			t.Errorf("%s: %v", pointer, err)
		}
	}
	d, _ = ParseDoc([]byte(`{"a":1,"\u0061":2}`))
	if _, _, err := d.Lookup("/a"); err == nil {
		t.Error("an escaped name is another")
	}
}

func TestParseDocRefuses(t *testing.T) {
	for _, raw := range []string{"", "{", "{}{}", "<html>", "{\"a\":\"\xff\"}", "\xef\xbb\xbf{}"} {
		if d, err := ParseDoc([]byte(raw)); err == nil {
			t.Errorf("%q: %q", raw, d)
		}
	}
}

func TestIs(t *testing.T) {
	for _, test := range []struct {
		value, text string
		want        bool
	}{
		{`"x"`, "x", true}, {`"x"`, "X", false}, {`"\u0078"`, "x", true}, {`""`, "", true},
		{`1`, "1", true}, {`1.0`, "1", true}, {`1e2`, "100", true}, {`1`, "2", false},
		{`9007199254740993`, "9007199254740993", true},
		{`9007199254740993`, "9007199254740992", false}, // a double would say yes
		{`"1"`, "1", true}, {`"1.0"`, "1", false}, {`1`, `"1"`, false},
		{`true`, "true", true}, {`null`, "null", true}, {`null`, "", false}, {`false`, "true", false},
		{`{}`, "{}", false}, {`[1]`, "1", false},
	} {
		if got := Doc(test.value).Is(test.text); got != test.want {
			t.Errorf("%s is %s: %v", test.value, test.text, got)
		}
	}
}

func TestNothingHasNoMembers(t *testing.T) {
	for _, pointer := range []string{"", "/a"} {
		if v, ok, err := Doc(nil).Lookup(pointer); v != nil || ok || err != nil {
			t.Errorf("%q: %q, %v, %v", pointer, v, ok, err)
		}
	}
}

// FuzzLookup: a pointer finds a complete value that is in the text.
func FuzzLookup(f *testing.F) {
	for _, p := range []string{"", "/a", "/a/b/1/c", "/a/~0~1", "/a/b/-", "//"} {
		f.Add([]byte(text), p)
	}
	f.Add([]byte("[1,[2,{}]]"), "/1/1")
	f.Add([]byte(`{"a":1,"a":2}`), "/a")
	f.Fuzz(func(t *testing.T, raw []byte, pointer string) {
		d, err := ParseDoc(raw)
		if err != nil || !ValidPointer(pointer) {
			return
		}
		v, ok, err := d.Lookup(pointer)
		if ok != (v != nil) || err != nil && ok {
			t.Fatalf("%q in %q: %q, %v, %v", pointer, raw, v, ok, err)
		}
		if ok && (!json.Valid(v) || !bytes.Contains(raw, v)) {
			t.Fatalf("%q in %q: %q", pointer, raw, v)
		}
		if text, isText := v.Text(); isText && !v.Is(text) {
			t.Fatalf("%q is not %q", v, text)
		}
	})
}

func ptr(s string) *string { return &s }

func TestChecks(t *testing.T) {
	s := OfChange(tga.StateChange{ResourceID: "1", Version: "x"})
	for _, test := range []struct {
		c    Check
		want Truth
	}{
		{Check{Pointer: "/s", Equals: ptr("1")}, Holds},
		{Check{Pointer: "/s", Equals: ptr("2")}, Fails},
		{Check{Pointer: "/e", Equals: ptr("")}, Holds},
		{Check{Pointer: "/none", Equals: ptr("1")}, Unsaid},
		{Check{Pointer: "/none", Field: "etag"}, Unsaid},
		{Check{Pointer: "/s", Field: "resource_id"}, Holds},
		{Check{Pointer: "/s", Field: "version"}, Fails},
		{Check{Pointer: "/s", Field: "etag"}, Holds},    // the change has none: nothing to compare
		{Check{Pointer: "/a/n", Field: "etag"}, Unsaid}, // but null is not in the text
		{Check{Pointer: "/a/b/1/c", Contains: "x"}, Holds},
		{Check{Pointer: "/a/b/1/c", Contains: "y"}, Fails},
		{Check{Pointer: "/a", Contains: "x"}, Unsaid},
		{Check{Pointer: "/a"}, Holds},
		{Check{Pointer: "/a/n"}, Unsaid},
		{Check{Pointer: "/a/n", Equals: ptr("null")}, Holds},
	} {
		if got, err := test.c.Of(Doc(text), s); got != test.want || err != nil {
			t.Errorf("%+v: got %v, %v", test.c, got, err)
		}
	}
	for _, test := range []struct {
		pointers string
		want     Truth
	}{{"", Holds}, {"/a /s", Holds}, {"/a /none", Unsaid}, {"/none /s=", Fails}, {"/s= /none", Fails}} {
		var checks []Check
		for _, p := range strings.Fields(test.pointers) {
			p, bad := strings.CutSuffix(p, "=")
			c := Check{Pointer: p}
			if bad {
				c.Equals = ptr("no")
			}
			checks = append(checks, c)
		}
		if got, err := All(checks, Doc(text), s); got != test.want || err != nil {
			t.Errorf("%s: %v, %v", test.pointers, got, err)
		}
	}
}

func TestChecksAreChecked(t *testing.T) {
	for _, test := range []struct {
		c     Check
		names Names
		key   string
	}{
		{Check{Pointer: "/a"}, ChangeNames, ""},
		{Check{Field: "version"}, ChangeNames, ""},
		{Check{}, ChangeNames, "k"},
		{Check{Pointer: "a"}, ChangeNames, "k.pointer"},
		{Check{Pointer: "/a~2"}, ChangeNames, "k.pointer"},
		{Check{Pointer: "/a", Equals: ptr(""), Field: "etag"}, ChangeNames, "k.field"},
		{Check{Pointer: "/a", Field: "key"}, ChangeNames, "k.field"},
		{Check{Pointer: "/a", Field: "/x"}, ChangeNames, "k.field"},
		{Check{Pointer: "/a", Field: "key"}, CallNames, ""},
		{Check{Pointer: "/a", Field: "/x/0"}, CallNames, ""},
		{Check{Pointer: "/a", Field: "/x~"}, CallNames, "k.field"},
		{Check{Pointer: "/a", Field: "version"}, CallNames, "k.field"},
	} {
		wantKey(t, test.c.Validate("k", test.names), test.key)
	}
}

// wantKey wants a VALIDATION_ERROR about a key, or none for "".
func wantKey(t *testing.T, err error, key string) {
	t.Helper()
	if (err == nil) != (key == "") || err != nil && (tga.CodeOf(err) != tga.ValidationError || !strings.Contains(err.Error(), " "+key+": ")) {
		t.Errorf("got %v, want an error about %q", err, key)
	}
}

func TestUnlookedMarks(t *testing.T) {
	c := tga.StateChange{Version: "1", ETag: "e"}
	for _, test := range []struct{ compared, ignored, want string }{
		{"", "", "version etag"}, {"version", "", "etag"}, {"version", "etag", ""}, {"etag resource_id", "", "version"},
	} {
		if got := strings.Join(Unlooked(c, strings.Fields(test.compared), strings.Fields(test.ignored)), " "); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
	if got := Unlooked(tga.StateChange{}, nil, nil); got != nil {
		t.Errorf("got %q", got)
	}
	wantKey(t, CheckIgnored([]string{"etag", "version"}), "")
	wantKey(t, CheckIgnored([]string{"resource_id"}), "ignore")
}

func TestReplyIsNotMadeUp(t *testing.T) {
	none := func(s string) string { return s }
	answer := []byte(` {"r": {"n": 9007199254740993} ,"m":"said secret","k":1,"k":2} `)
	hide := NewSecrets("secret").Hide
	for _, test := range []struct {
		said   Said
		result string
		ok     bool
	}{
		{Said{}, string(answer), true},
		{Said{Result: "/r"}, `{"n": 9007199254740993}`, true},
		{Said{Result: "/none"}, "", false},
		{Said{Result: "/k"}, "", false},
		{Said{Summary: "/none"}, string(answer), true},
		{Said{Summary: "/r"}, string(answer), true},
	} {
		r, err := test.said.Reply(answer, none)
		if (err == nil) != test.ok || test.ok && (string(r.Result) != test.result || r.ResultDigest != tga.Sum(r.Result)) {
			t.Errorf("%+v: got %q, %v", test.said, r.Result, err)
		}
	}
	r, err := Said{Summary: "/m", Failed: true}.Reply(answer, hide)
	if err != nil || r.Status != tga.StatusFailure || r.Summary != "said [hidden]" || r.ErrorMessage != r.Summary || r.ErrorCode != string(tga.ToolError) {
		t.Errorf("got %+v, %v", r, err)
	}
	long := `{"m":"` + strings.Repeat("é", 600) + `"}`
	r, err = Said{Summary: "/m", Failed: true}.Reply([]byte(long), none)
	if err != nil || len(r.Summary) != 2*maxSummary || len(r.ErrorMessage) != 2*maxMessage {
		t.Errorf("%d, %d bytes, %v", len(r.Summary), len(r.ErrorMessage), err)
	}
	// An answer that is not JSON can be a result as it is.
	if r, err := (Said{}).Reply([]byte("ok"), none); err != nil || string(r.Result) != "ok" {
		t.Errorf("got %+v, %v", r, err)
	}
	var _ runtime.Reply = r
}
