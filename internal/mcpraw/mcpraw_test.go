package mcpraw

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/clip"
)

// scanned is what a scanner found, and the bytes that it passed of result and error.
type scanned struct {
	Envelope
	result, fault bytes.Buffer
	whole         bool
}

func scan(msg string, step int) *scanned {
	var found scanned
	s := Scanner{Result: &found.result, Fault: &found.fault}
	for rest := msg; len(rest) > 0; {
		n := min(step, len(rest))
		_, _ = s.Write([]byte(rest[:n]))
		rest = rest[n:]
	}
	found.Envelope = s.Finish()
	found.whole = found.Bad == "" && !found.Batch
	return &found
}

// told fails the test if the bytes that were passed of a member are not those of its span.
func (f *scanned) told(t *testing.T, msg string) {
	t.Helper()
	for _, m := range []struct {
		at  Span
		got []byte
	}{{f.Result, f.result.Bytes()}, {f.Fault, f.fault.Bytes()}} {
		if f.whole && msg[m.at.From:m.at.To] != string(m.got) {
			t.Fatalf("%q: a member is at %v, and was told as %q", msg, m.at, m.got)
		}
	}
}

func TestScanner(t *testing.T) {
	for _, c := range []struct{ msg, id, method, result, fault string }{
		{`{"jsonrpc":"2.0","id":1,"result":{"a":[1.0,"}\"]"]}}`, "1", "", `{"a":[1.0,"}\"]"]}`, ""},
		{"{ \"result\" : 9007199254740993 \r\n, \"id\" : \"x\\\"\" }\n", `"x\""`, "", "9007199254740993", ""},
		{`{"error":{"code":1},"id":null}`, "", "", "", `{"code":1}`},
		{`{"id":7,"method":"ping","params":{"id":8,"result":{}}}`, "7", "ping", "", ""},
		{`{"result":"","other":{"result":1},"x\"y":2,"id":7.0}`, "7.0", "", `""`, ""},
		{`{"\u0069d":7,"me\u0074hod":"p\u0069ng"}`, "7", "ping", "", ""},
	} {
		for step := 1; step < len(c.msg)+1; step++ {
			s := scan(c.msg, step)
			if !s.whole || string(s.RawID) != c.id || s.Method != c.method || s.result.String() != c.result || s.fault.String() != c.fault {
				t.Fatalf("%s in steps of %d: %+v", c.msg, step, s)
			}
			s.told(t, c.msg)
		}
		for n := range c.msg {
			if strings.TrimSpace(c.msg[n:]) != "" && scan(c.msg[:n], n+1).whole {
				t.Errorf("%s cut at %d is taken for whole", c.msg, n)
			}
		}
	}
	for _, bad := range []string{
		"", " ", "[]", "[{}]", "null", "hello", `{"id":1,"result":1}{"id":2}`, `{"id":1,"result":1} x`, `{"id":1,"result":1,}`, `{"id"}`, `{,}`, `{"id":}`, `{"id" 1}`,
		`{"id":1,"id":2,"result":{}}`, `{"id":1,"result":{},"result":{}}`, `{1:2}`, `{"id":true,"result":{}}`, `{"id":1}`,
		`{"id":1,"ID":1,"result":{}}`, `{"id":1,"result":{},"Result":{}}`,
	} {
		if scan(bad, 1).whole {
			t.Errorf("%q is taken for a message", bad)
		}
	}
	for n, whole := range map[int]bool{maxName: true, maxName + 1: false} {
		id := `"` + strings.Repeat("i", n-2) + `"`
		if s := scan(`{"id":`+id+`,"result":1}`, 7); s.whole != whole {
			t.Errorf("an id of %d bytes: %v, %s", n, s.whole, s.Bad)
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":[1.0,"}\"]"]}}`), uint8(3))
	f.Add([]byte(`{"id":"\\","error":{"code":-1},"method":"\u0070"}`), uint8(1))
	f.Add([]byte("{\"result\":\t9007199254740993 \n,\"id\":1e0}"), uint8(2))
	f.Fuzz(func(t *testing.T, msg []byte, step uint8) {
		whole, parts := scan(string(msg), len(msg)+1), scan(string(msg), int(step)+1)
		if whole.Bad != parts.Bad || whole.whole && (whole.Result != parts.Result || whole.Fault != parts.Fault || whole.Method != parts.Method) {
			t.Fatalf("%q: steps of %d change what is read: %+v, %+v", msg, step, whole.Envelope, parts.Envelope)
		}
		parts.told(t, string(msg))
		// encoding/json reads an accepted message in the same way.
		var want map[string]json.RawMessage
		if !whole.whole || !json.Valid(msg) || json.Unmarshal(msg, &want) != nil {
			return
		}
		for name, at := range map[string]Span{"result": whole.Result, "error": whole.Fault, "params": whole.Params} {
			if !bytes.Equal(msg[at.From:at.To], want[name]) {
				t.Fatalf("%q: %s is %q, and encoding/json reads %q", msg, name, msg[at.From:at.To], want[name])
			}
		}
	})
}

func TestClipRunes(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"☃☃☃☃", 3, "☃☃☃"}, {"a\xff", 3, "a\uFFFD"}, {"a\xff\xfe☃b", 2, "a\uFFFD"},
	} {
		if got := clip.Runes(c.in, c.n); got != c.want {
			t.Errorf("clip.Runes(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}
