package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func scan(msg string, limit int64, step int) *scanner {
	s := newScanner(limit)
	for len(msg) > 0 {
		n := min(step, len(msg))
		_, _ = s.Write([]byte(msg[:n]))
		msg = msg[n:]
	}
	return s
}

func TestScanner(t *testing.T) {
	for _, c := range []struct{ msg, id, method, result, fault string }{
		{`{"jsonrpc":"2.0","id":1,"result":{"a":[1.0,"}\"]"]}}`, "1", "", `{"a":[1.0,"}\"]"]}`, ""},
		{"{ \"result\" : 9007199254740993 \r\n, \"id\" : \"x\\\"\" }\n", `"x\""`, "", "9007199254740993", ""},
		{`{"error":{"code":1},"id":null}`, "null", "", "", `{"code":1}`},
		{`{"id":7,"method":"ping","params":{"id":8,"result":{}}}`, "7", "ping", "", ""},
		{`{"result":"","other":{"result":1},"x\"y":2,"id":true}`, "true", "", `""`, ""},
	} {
		for step := 1; step < len(c.msg)+1; step++ {
			s := scan(c.msg, 1000, step)
			if !s.done() || string(s.id.data) != c.id || s.name() != c.method ||
				string(s.result.data) != c.result || string(s.fault.data) != c.fault {
				t.Fatalf("%s in steps of %d: id %s, method %s, result %s, error %s, done %v",
					c.msg, step, s.id.data, s.method.data, s.result.data, s.fault.data, s.done())
			}
		}
		for n := range c.msg {
			if strings.TrimSpace(c.msg[n:]) != "" && scan(c.msg[:n], 1000, n+1).done() {
				t.Errorf("%s cut at %d is taken for whole", c.msg, n)
			}
		}
	}
	for _, bad := range []string{
		"", " ", "[]", "[{}]", "null", "hello", `{"id":1}{"id":2}`, `{"id":1} x`, `{"id":1,}`, `{"id"}`, `{,}`, `{"id":}`, `{"id" 1}`,
		`{"id":1,"id":2,"result":{}}`, `{"id":1,"result":{},"result":{}}`, `{1:2}`,
	} {
		if scan(bad, 1000, 1).done() {
			t.Errorf("%q is taken for a message", bad)
		}
	}
}

func TestCaptureAtItsLimit(t *testing.T) {
	const value = `{"x":"0123456789"}`
	msg := `{"id":1,"result":` + value + `}`
	for limit := int64(0); limit < int64(len(value))+3; limit++ {
		for step := 1; step <= len(msg); step++ {
			s := scan(msg, limit, step)
			over := limit < int64(len(value))
			if s.result.truncated() != over || (s.result.data == nil) != over ||
				s.result.bytes != int64(len(value)) || s.result.digest() != tga.Sum([]byte(value)) {
				t.Fatalf("limit %d, step %d: %+v", limit, step, s.result)
			}
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":[1.0,"}\"]"]}}`), uint8(3))
	f.Add([]byte(`{"id":"\\","error":{"code":-1},"method":"\u0070"}`), uint8(1))
	f.Add([]byte("{\"result\":\t9007199254740993 \n,\"id\":1e0}"), uint8(2))
	f.Fuzz(func(t *testing.T, msg []byte, step uint8) {
		whole := scan(string(msg), 1<<20, len(msg)+1)
		parts := scan(string(msg), 1<<20, int(step)+1)
		if whole.done() != parts.done() || whole.done() && !bytes.Equal(whole.result.data, parts.result.data) {
			t.Fatalf("%q: steps of %d change what is read", msg, step)
		}
		// Against encoding/json, which folds repeated and escaped names: leave those out.
		if !json.Valid(msg) || bytes.IndexByte(msg, '\\') >= 0 || len(msg) > maxKey {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(msg, &want) != nil || want == nil {
			if whole.done() {
				t.Fatalf("%q is no object", msg)
			}
			return
		}
		if !whole.done() {
			if names(msg) == len(want) {
				t.Fatalf("%q was refused", msg)
			}
			return
		}
		if !bytes.Equal(whole.result.data, want["result"]) || !bytes.Equal(whole.fault.data, want["error"]) || !bytes.Equal(whole.id.data, want["id"]) {
			t.Fatalf("%q: result %q, error %q, id %q", msg, whole.result.data, whole.fault.data, whole.id.data)
		}
	})
}

// names counts the members of an object, repeated ones too.
func names(msg []byte) int {
	d := json.NewDecoder(bytes.NewReader(msg))
	n, depth, name := 0, 0, true
	for {
		tok, err := d.Token()
		if err != nil {
			return n
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			continue
		case json.Delim('}'), json.Delim(']'):
			depth--
			if depth == 1 {
				name = true
			}
			continue
		}
		if depth == 1 {
			if name {
				n++
			}
			name = !name
		}
	}
}

func answerOf(msg string) *answer {
	s := scan(msg, 1000, len(msg))
	return &answer{result: s.result, fault: s.fault}
}

func TestReplies(t *testing.T) {
	for _, c := range []struct{ msg, status, doubt string }{
		{`{"id":1,"result":{}}`, "SUCCESS", ""},
		{`{"id":1,"result":{"isError":false,"resultType":"complete"}}`, "SUCCESS", ""},
		{`{"id":1,"result":{"isError":true}}`, "FAILURE", ""},
		{`{"id":1,"result":{"IsError":true,"iserror":true}}`, "SUCCESS", ""}, // other members
		{`{"id":1,"error":{"code":-32602,"message":""}}`, "FAILURE", ""},
		{`{"id":1,"error":{"code":-32603}}`, "FAILURE", ""},
		{`{"id":1,"error":{"code":-32001}}`, "", "does not know"},
		{`{"id":1,"error":{"code":-32042}}`, "", "not a final effect"},
		{`{"id":1,"result":{"resultType":"input_required"}}`, "", `resultType is "input_required"`},
		{`{"id":1,"result":{"resultType":"task"}}`, "", `resultType is "task"`},
		{`{"id":1,"result":{"resultType":"novel"}}`, "", `resultType is "novel"`},
		{`{"id":1,"result":{"resultType":1}}`, "", "resultType"},
		{`{"id":1,"result":{"isError":"yes"}}`, "", "isError"},
		{`{"id":1,"result":null}`, "", "null"},
		{`{"id":1,"result":[]}`, "", "no JSON object"},
		{`{"id":1,"result":{"a":01}}`, "", "no JSON object"},
		{`{"id":1,"error":"no"}`, "", "error member"},
		{`{"id":1,"error":{"code":1},"result":{}}`, "", "both"},
		{`{"id":1}`, "", "neither"},
	} {
		r, err := answerOf(c.msg).reply(1)
		if c.doubt != "" {
			if err == nil || !strings.Contains(err.Error(), c.doubt) || errors.Is(err, runtime.ErrNotSent) {
				t.Errorf("%s: %+v, %v; want doubt: %s", c.msg, r, err, c.doubt)
			}
			continue
		}
		if err != nil || r.Status != c.status {
			t.Errorf("%s: %+v, %v", c.msg, r, err)
		}
	}
}

// An earlier attempt may have run. Only a result, which the tool gives under the
// call's key, speaks for it too.
func TestLaterAttemptThatFailsEndsNoDoubt(t *testing.T) {
	for _, c := range []struct {
		a       *answer
		notSent bool
	}{
		{answerOf(`{"id":1,"error":{"code":-32602}}`), true},
		{&answer{refused: "HTTP status 401"}, true},
		{answerOf(`{"id":1,"error":{"code":-32603}}`), false},
	} {
		if r, err := c.a.reply(1); err != nil || r.Status == tga.StatusSuccess {
			t.Errorf("attempt 1: %+v, %v", r, err)
		}
		if r, err := c.a.reply(2); err == nil || errors.Is(err, runtime.ErrNotSent) != c.notSent {
			t.Errorf("attempt 2: %+v, %v", r, err)
		}
	}
	for _, msg := range []string{`{"id":1,"result":{}}`, `{"id":1,"result":{"isError":true}}`} {
		if r, err := answerOf(msg).reply(2); err != nil {
			t.Errorf("%s: %+v, %v", msg, r, err)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"☃☃☃☃", 3, "☃☃☃"}, {"a\xff", 3, "a\uFFFD"}, {"a\xff\xfe☃b", 2, "a\uFFFD"},
	} {
		if got := clip(c.in, c.n); got != c.want {
			t.Errorf("clip(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}
