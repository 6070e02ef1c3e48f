package redact

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var key = bytes.Repeat([]byte{7}, MinKey)

func of(t testing.TB, rule Rule) *Redactor {
	t.Helper()
	r, err := New(key, func(string, string) *Rule { return &rule })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func call(args string) runtime.Call {
	return runtime.Call{Namespace: "default", Server: "s", Tool: "t", Key: "k", Args: []byte(args)}
}

// shape returns a text with each mark replaced by "#".
func shape(raw []byte) string {
	return regexp.MustCompile(regexp.QuoteMeta(Mark)+`[0-9a-f]{64}\]`).ReplaceAllString(string(raw), "#")
}

// TestTheRestKeepsItsBytes: everything that no rule names keeps its bytes, numbers and escapes too.
func TestTheRestKeepsItsBytes(t *testing.T) {
	rule := Rule{
		Args:     []string{"/card/number", "/items/*/pin", "/a~1b"},
		Patterns: []*regexp.Regexp{regexp.MustCompile(`sk-[a-z0-9]+`), regexp.MustCompile(`^4[0-9]{15}$`)},
	}
	for _, c := range []struct{ in, want string }{
		{`{"amount":9007199254740993,"card":{"number":"4111"}}`, `{"amount":9007199254740993,"card":{"number":"#"}}`},
		{`{"card":{"number":{"deep":[1,2]}},"x":1.50e2}`, `{"card":{"number":"#"},"x":1.50e2}`},
		{`{"items":[{"pin":1},{"pin":null,"q":"\u00e9"}]}`, `{"items":[{"pin":"#"},{"pin":"#","q":"\u00e9"}]}`},
		{`{"a/b":true}`, `{"a/b":"#"}`},
		{` { "note" : "use sk-abc1 and sk-x" , "n":4111111111111111 } `, ` { "note" : "use # and #" , "n":"#" } `},
		{`{"sk-member":1}`, `{"#":1}`},
		{`{"card":{"number":"secret"},"copy":"a secret here","json":"{\"v\":\"secret\"}"}`, `{"card":{"number":"#"},"copy":"a # here","json":"{\"v\":\"#\"}"}`},
		{`{"card":{"number":"a\"b\\c"},"json":"{\"v\":\"a\\\"b\\\\c\"}"}`, `{"card":{"number":"#"},"json":"{\"v\":\"#\"}"}`},
		{`{"card":{"number":"1"},"copy":"1 of 1"}`, `{"card":{"number":"#"},"copy":"1 of 1"}`}, // too short to be looked for
		{`{"plain":true}`, `{"plain":true}`},
	} {
		kept, redacted, err := of(t, rule).Args(call(c.in))
		if err != nil || shape(kept) != c.want || redacted != (c.in != c.want) {
			t.Errorf("%s\n got %s, %v, %v\nwant %s", c.in, shape(kept), redacted, err, c.want)
		}
	}
}

// TestMarksTellSecretsApart: the same call leaves the same bytes. Another secret, key, place or tool leaves
// other bytes, and so does another key file: without the key file nobody can try values.
func TestMarksTellSecretsApart(t *testing.T) {
	rule := Rule{Args: []string{"/pin", "/again"}}
	r := of(t, rule)
	mark := func(r *Redactor, c runtime.Call) string {
		t.Helper()
		kept, redacted, err := r.Args(c)
		if err != nil || !redacted {
			t.Fatal(redacted, err)
		}
		return string(kept)
	}
	first := mark(r, call(`{"pin":1234}`))
	if mark(r, call(`{"pin":1234}`)) != first {
		t.Error("the same call leaves other bytes")
	}
	other, err := New(bytes.Repeat([]byte{8}, MinKey), func(string, string) *Rule { return &rule })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{first: "the first"}
	for what, c := range map[string]runtime.Call{
		"another pin":       call(`{"pin":1235}`),
		"another type":      call(`{"pin":"1234"}`),
		"another key":       {Namespace: "default", Server: "s", Tool: "t", Key: "l", Args: []byte(`{"pin":1234}`)},
		"another namespace": {Namespace: "n", Server: "s", Tool: "t", Key: "k", Args: []byte(`{"pin":1234}`)},
		"another server":    {Namespace: "default", Server: "u", Tool: "t", Key: "k", Args: []byte(`{"pin":1234}`)},
		"another tool":      {Namespace: "default", Server: "s", Tool: "u", Key: "k", Args: []byte(`{"pin":1234}`)},
	} {
		kept := mark(r, c)
		if was := seen[kept]; was != "" {
			t.Errorf("%s leaves the bytes of %s", what, was)
		}
		seen[kept] = what
	}
	if kept := mark(other, call(`{"pin":1234}`)); seen[kept] != "" {
		t.Error("another key file leaves the same bytes")
	}
	both := mark(r, call(`{"again":1234,"pin":1234}`))
	if m := regexp.MustCompile(`[0-9a-f]{64}`).FindAllString(both, -1); len(m) != 2 || m[0] == m[1] {
		t.Errorf("two places have one mark: %s", both)
	}
}

// TestAnswersAreRedacted: this includes arguments that the server repeats, texts beside the answer, and
// answers that are not JSON.
func TestAnswersAreRedacted(t *testing.T) {
	r := of(t, Rule{Args: []string{"/card"}, Result: []string{"/token"}, Patterns: []*regexp.Regexp{regexp.MustCompile(`key-[0-9]+`)}})
	c := call(`{"card":"4111-2222"}`)
	got, redacted, err := r.Reply(c, runtime.Reply{
		Status: "SUCCESS", Result: []byte(`{"token":"tok-secret","echo":"4111-2222","rest":1}`),
		Summary: "gave tok-secret for 4111-2222", ErrorMessage: "by key-77", ErrorCode: "E",
		Changes: []tga.StateChange{{ResourceType: "card", ResourceID: "4111-2222", Operation: "charge"}},
	})
	if err != nil || !redacted {
		t.Fatal(redacted, err)
	}
	if shape(got.Result) != `{"token":"#","echo":"#","rest":1}` || shape([]byte(got.Summary)) != "gave # for #" || shape([]byte(got.ErrorMessage)) != "by #" || shape([]byte(got.Changes[0].ResourceID)) != "#" {
		t.Errorf("%s\n%s\n%s\n%+v", got.Result, got.Summary, got.ErrorMessage, got.Changes)
	}
	if got.Received.IsZero() || got.ReceivedBytes != 50 || got.ErrorCode != "E" || got.Status != "SUCCESS" {
		t.Errorf("received %v, %d bytes; %s, %s", got.Received, got.ReceivedBytes, got.ErrorCode, got.Status)
	}
	for in, want := range map[string]string{"no json at all": "#", `"text"`: `"text"`, `{"x":"4111-2222"}`: `{"x":"#"}`} {
		got, _, err := r.Reply(c, runtime.Reply{Status: "SUCCESS", Result: []byte(in)})
		if err != nil || shape(got.Result) != want {
			t.Errorf("%s: %s, %v", in, got.Result, err)
		}
	}
	all := of(t, Rule{Result: []string{""}})
	if got, _, err := all.Reply(c, runtime.Reply{Status: "SUCCESS", Result: []byte(`{"a":1}`)}); err != nil || shape(got.Result) != `"#"` {
		t.Errorf("%s, %v", got.Result, err)
	}
	plain := of(t, Rule{Patterns: []*regexp.Regexp{regexp.MustCompile(`key-[0-9]+`)}})
	if got, _, err := plain.Reply(c, runtime.Reply{Status: "SUCCESS", Result: []byte("see key-12, not json")}); err != nil || shape(got.Result) != "see #, not json" {
		t.Errorf("%s, %v", got.Result, err)
	}
}

// TestSecretsAreNowhere: whatever is around it, a value that a pointer names is nowhere in the redacted
// document, which is still JSON.
func TestSecretsAreNowhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringN(minText, 40, 60).Filter(func(s string) bool { return len(s) >= minText && !strings.Contains(Mark, s) }).Draw(t, "secret")
		around := rapid.String().Draw(t, "around")
		doc := map[string]any{
			"secret": secret, "text": around + secret + around, "list": []any{secret, 1.5, nil, map[string]any{"x": secret}},
			around: rapid.Float64Range(-1e9, 1e9).Draw(t, "n"),
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(key, func(string, string) *Rule { return &Rule{Args: []string{"/secret"}} })
		if err != nil {
			t.Fatal(err)
		}
		kept, redacted, err := r.Args(call(string(raw)))
		if err != nil || !redacted || !json.Valid(kept) {
			t.Fatalf("%s: %v, %v", kept, redacted, err)
		}
		var left any
		if err := json.Unmarshal(kept, &left); err != nil {
			t.Fatal(err)
		}
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case string:
				if strings.Contains(regexp.MustCompile(regexp.QuoteMeta(Mark)+`[0-9a-f]{64}\]`).ReplaceAllString(v, "\x00"), secret) {
					t.Fatalf("%q is left in %q", secret, v)
				}
			case []any:
				for _, e := range v {
					walk(e)
				}
			case map[string]any:
				for n, e := range v {
					walk(n)
					walk(e)
				}
			}
		}
		walk(left)
	})
}

// TestRedactorIsChecked: a key at its least length and one byte shorter, and pointers.
func TestRedactorIsChecked(t *testing.T) {
	if _, err := New(key[:MinKey-1], nil); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a key of %d bytes: %v", MinKey-1, err)
	}
	for p, good := range map[string]bool{"/a": true, "/a/*/b~0~1": true, "/": true, "": false, "a": false, "/~": false, "/~2": false} {
		if err := CheckPointer(p, true); (err == nil) != good {
			t.Errorf("%q: %v", p, err)
		}
	}
	if err := CheckPointer("", false); err != nil {
		t.Errorf("the whole answer: %v", err)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"secret"},"c":[1,"secret"]}`), "/a/b")
	f.Add([]byte(`[{"x":"\ud800"}]`), "/*/x")
	f.Fuzz(func(t *testing.T, raw []byte, pointer string) {
		if !json.Valid(raw) || CheckPointer(pointer, false) != nil {
			return
		}
		r := of(t, Rule{Args: []string{pointer}, Result: []string{pointer}, Patterns: []*regexp.Regexp{regexp.MustCompile(`[0-9]{3,}`)}})
		kept, redacted, err := r.Args(runtime.Call{Args: raw})
		if err != nil || !json.Valid(kept) || !redacted && !bytes.Equal(kept, raw) {
			t.Fatalf("%q by %q: %q, %v, %v", raw, pointer, kept, redacted, err)
		}
		reply, _, err := r.Reply(runtime.Call{Args: raw}, runtime.Reply{Result: raw})
		if err != nil || !json.Valid(reply.Result) {
			t.Fatalf("%q by %q: %q, %v", raw, pointer, reply.Result, err)
		}
	})
}
