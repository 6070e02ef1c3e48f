package tga

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

func TestMembersAndElementsInTheirOrder(t *testing.T) {
	text := "{ \"b\" : 1.0 ,\"a\\u002fb\":\"x\\n\", \"c\":{\"d\":[1, \"]\"]},\"e\":[ ],\"f\":null,\"\":\"\",\"n\":-0.5e1 }"
	var got []string
	err := Members([]byte(text), func(name, value []byte) error {
		got = append(got, fmt.Sprintf("%s=%s", name, value))
		return nil
	})
	want := `[b=1.0 a/b="x\n" c={"d":[1, "]"]} e=[ ] f=null ="" n=-0.5e1]`
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	got = nil
	err = Elements([]byte(` [ "a" , {"b":[2]},[ ], 3.50,true ] `), func(value []byte) error {
		got = append(got, string(value))
		return nil
	})
	if want := `["a" {"b":[2]} [ ] 3.50 true]`; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	for _, empty := range []string{`{}`, ` { } `} {
		if err := Members([]byte(empty), func(_, _ []byte) error { return errors.New("called") }); err != nil {
			t.Errorf("%s: %v", empty, err)
		}
	}
}

func TestMembersRefuse(t *testing.T) {
	for _, text := range []string{`[]`, `"x"`, `1`, `null`, ``, `{`, `{"a":1,"a":2}`, `{"a":9007199254740993}`, `{"a":1}{}`} {
		if err := Members([]byte(text), func(_, _ []byte) error { return nil }); !errors.Is(err, ValidationError) {
			t.Errorf("members of %s: %v", text, err)
		}
	}
	for _, text := range []string{`{}`, `"x"`, `null`, `[1,]`, `[1] 2`} {
		if err := Elements([]byte(text), func([]byte) error { return nil }); !errors.Is(err, ValidationError) {
			t.Errorf("elements of %s: %v", text, err)
		}
	}
	stop, calls := errors.New("stop"), 0
	err := Members([]byte(`{"a":1,"b":2}`), func(_, _ []byte) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestPlainString(t *testing.T) {
	for text, want := range map[string]string{`"abc"`: "abc", `""`: "", `"ä"`: "ä"} {
		if got, ok := PlainString([]byte(text)); !ok || string(got) != want {
			t.Errorf("%s: %q %v", text, got, ok)
		}
	}
	for _, text := range []string{`"a\nb"`, `"\\"`, `1`, `{}`, `null`, `["a"]`, ``} {
		if got, ok := PlainString([]byte(text)); ok {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestAppendStringIsReadBack(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "plain text of more than eight bytes": "plain text of more than eight bytes",
		"\x00\x1f\"\\/\n<&>\u2028 \U0001f600": "\x00\x1f\"\\/\n<&>\u2028 \U0001f600",
		"bad \xff byte":                       "bad \ufffd byte", "\xed\xa0\x80": "\ufffd",
	} {
		text := AppendString([]byte("x"), s)
		var back string
		if err := json.Unmarshal(text[1:], &back); err != nil || back != want || text[0] != 'x' {
			t.Errorf("%q: %s: %q, %v", s, text, back, err)
		}
		if err := Gate(text[1:], Limits{}); err != nil {
			t.Errorf("%q: %s: %v", s, text, err)
		}
	}
}
