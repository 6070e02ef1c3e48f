package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAnswersTravelByOneRule: a tool answers with texts that parsers read differently, and with plain
// ones. Each is sent as JSON if it passes the gate, else as its bytes, and finish accepts the same
// members that tool-calls returned.
func TestAnswersTravelByOneRule(t *testing.T) {
	b := start(t, "")
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for i, c := range []struct {
		answer       string
		json, base64 bool
	}{
		{`{"a":1}`, true, false}, {`{ "a" : 1.0 }`, true, false}, {`"<&>"`, true, false}, {`null`, true, false},
		{"{\"a\":1}\n", true, true}, {" 1", true, true},
		{`{"a":1,"a":2}`, false, true}, {`9007199254740993`, false, true}, {`1e999`, false, true}, {`"\ud800"`, false, true},
		{deep, false, true}, {`{"a":1}{}`, false, true}, {"\xff", false, true}, {`plain`, false, true}, {"   ", false, true},
	} {
		b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { fmt.Fprint(w, c.answer) })
		_, _, raw := b.raw("POST", "/v1/tool-calls", fmt.Sprintf(`{"tool_server":"pay","tool_name":"charge","idempotency_key":"a-%d"}`, i))
		var got map[string]json.RawMessage
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%q: %v in %s", c.answer, err, raw)
		}
		if (got["result"] != nil) != c.json || (got["result_base64"] != nil) != c.base64 {
			t.Errorf("%q: result %s, result_base64 %s", c.answer, got["result"], got["result_base64"])
		}
		begun, err := b.client.Begin(t.Context(), runtime.BeginRequest{
			Request: runtime.Request{Server: "remote", Tool: "charge", Key: fmt.Sprint("b-", i)}, BeginID: newID().String(),
		})
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"permit":"%s","status":"SUCCESS"`, begun.Permit)
		for _, name := range []string{"result", "result_base64"} {
			if got[name] != nil {
				body += fmt.Sprintf(`,%q:%s`, name, got[name])
			}
		}
		status, _, raw := b.raw("POST", "/v1/traces/"+begun.Result.TraceID.String()+"/finish", body+"}")
		res, err := b.client.Recover(t.Context(), begun.Result.TraceID)
		if status != 200 || err != nil || string(res.Value) != c.answer {
			t.Errorf("%q handed back: %d %s; recorded %q, %v", c.answer, status, raw, res.Value, err)
		}
	}
	if _, err := oneOf("/result", []byte("1"), []byte(" 2")); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("two answers: %v", err)
	}
}

// TestTheToolGetsTheBytesThatWereDigested: over HTTP, and by a begin, arguments arrive in
// the canonical form, also when the call is sent again.
func TestTheToolGetsTheBytesThatWereDigested(t *testing.T) {
	const given, want = `{ "z":1.0, "a":-0, "s":"\u003c\u2028", "e":1e2 }`, "{\"a\":0,\"e\":100,\"s\":\"<\u2028\",\"z\":1}"
	b := start(t, "")
	var sent [][]byte
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, body []byte) {
		if sent = append(sent, bytes.Clone(body)); len(sent) == 1 {
			w.WriteHeader(500) // in doubt; the licence sends it again
		}
	})
	req := runtime.Request{Server: "pay", Tool: "charge", Key: "k", Args: []byte(given)}
	if _, err := b.client.Call(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 2 || string(sent[0]) != want || string(sent[1]) != want {
		t.Errorf("the tool got %q, want %q twice", sent, want)
	}
	req.Server = "remote"
	begun, err := b.client.Begin(t.Context(), runtime.BeginRequest{Request: req, BeginID: "b"})
	if err != nil || string(begun.Args) != want {
		t.Errorf("a remote executor is to send %q, %v", begun.Args, err)
	}
}
