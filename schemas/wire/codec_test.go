package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/schemas/tga"
)

// TestSplicedBytesAreExact: stored JSON goes into a message and out of it again byte for byte, whatever its
// white space, escapes and numbers are.
func TestSplicedBytesAreExact(t *testing.T) {
	for _, raw := range []string{
		`{"b":1,"a":1.0}`, "{ \"a\" :\n [1e2 ,9007199254740993] }", `"<&>\u2028` + "\u2028" + `"`, `{"a":1,"a":2}`, `null`, `-0`,
	} {
		text := Append(nil, Call{Result: json.RawMessage(raw)})
		if !bytes.Contains(text, []byte(`"result":`+raw+`,`)) {
			t.Errorf("%s is not in %s", raw, text)
		}
		var back Call
		if err := json.Unmarshal(text, &back); err != nil || string(back.Result) != raw && raw != "null" {
			t.Errorf("%s came back as %s: %v", raw, back.Result, err)
		}
		if tga.Gate([]byte(raw), tga.Limits{}) != nil {
			continue // such an answer travels as result_base64
		}
		var m FinishRequest
		if err := Decode([]byte(`{"permit":"p","status":"SUCCESS","result":`+raw+`}`), &m); err != nil || string(m.Result) != raw {
			t.Errorf("%s was read as %s: %v", raw, m.Result, err)
		}
	}
}

// TestMessageRoundTrip fills messages and reads them back, strictly and as a client does.
func TestMessageRoundTrip(t *testing.T) {
	id, err := tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []any{
		&CallRequest{
			TraceID: id, ToolServer: "s", ToolName: "t", Args: json.RawMessage(`{"a":1}`), IdempotencyKey: "k <&> \u2028 \"", PlanID: id,
			Resources: []Resource{{"db", "x"}}, Deadline: 1_700_000_000_123, Retry: true,
			Meta: tga.Meta{"n": tga.Number("1.50"), "s": "x", "b": false, "z": nil},
		},
		&BeginRequest{CallRequest: CallRequest{ToolServer: "s", ToolName: "t"}, BeginID: "b"},
		&FinishRequest{Permit: "p", Outcome: Outcome{Status: "SUCCESS", ResultBase64: []byte{0, 255}}},
		&FinishRequest{Permit: "p", Outcome: Outcome{Status: "SUCCESS", ResultBase64: []byte{}}},
		&AppendRequest{Lease: "l", Expect: &Expect{Seq: 0}, Artifacts: []NewArtifact{{Artifact: json.RawMessage(`{}`), Documents: []NewDocument{{Pointer: "/result"}}}}},
		&Traces{Traces: []OpenTrace{}},
		&Recovered{Traces: []RecoveredTrace{{OpenTrace: OpenTrace{TraceID: id, Since: 1}, Call: Call{Attempts: 3}}}},
		&BatchAnswers{Items: []BatchAnswer{{Problem: &Problem{Type: "t", Code: tga.NotFound}}}},
		&Lease{Lease: "l", TraceID: id, Epoch: "18446744073709551615", Expires: 1},
	} {
		text := Append(nil, m)
		if err := tga.Gate(text, tga.Limits{}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		back := reflect.New(reflect.TypeOf(m).Elem()).Interface()
		if err := Decode(text, back); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(m, back); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestDecodeIsClosed(t *testing.T) {
	ok := `{"tool_server":"s","tool_name":"t"`
	for text, at := range map[string]string{
		ok + `,"extra":1}`:                   "/extra",
		ok + `,"zz":1,"extra":2}`:            "/zz",
		ok + `,"Args":{}}`:                   "/Args",
		ok + `,"a/b~c":1}`:                   "/a~1b~0c",
		ok + `,"intent":null}`:               "/intent",
		ok + `,"intent":1}`:                  "/intent",
		ok + `,"retry":"true"}`:              "/retry",
		ok + `,"trace_id":"x"}`:              "/trace_id",
		ok + `,"deadline":"2026-01-01"}`:     "/deadline",
		ok + `,"resources":{}}`:              "/resources",
		ok + `,"resources":[{"kind":"db"}]}`: "/resources/0/id",
		ok + `,"resources":[{"kind":"db",` + `"id":"x","more":1}]}`: "/resources/0/more",
		ok + `,"meta":{"a":[]}}`:                                    "/meta/a",
		ok + `,"meta":[]}`:                                          "/meta",
		`{"tool_server":"s"}`:                                       "/tool_name",
		`[]`:                                                        "",
		`null`:                                                      "",
		`"x"`:                                                       "",
	} {
		var m CallRequest
		err := Decode([]byte(text), &m)
		e, isError := err.(*tga.Error)
		if !isError || e.Code != tga.ValidationError || e.Pointer != at {
			t.Errorf("%s: %v, want VALIDATION_ERROR at %q", text, err, at)
		}
	}
	// Bytes are accepted as base64 only, and the error about a value that is not an integer speaks of JSON
	// types.
	for text, want := range map[string]string{
		`{"permit":"x","status":"SUCCESS","result_base64":[104,105]}`: "/result_base64", `{"permit":"x","status":"SUCCESS","result_base64":[]}`: "/result_base64",
		`{"permit":"x","status":"SUCCESS","result_base64":1}`: "/result_base64", `{"permit":"x","status":"SUCCESS","result_bytes":1e3}`: "/result_bytes",
		`{"permit":"x","status":"SUCCESS","result_bytes":-1}`: "/result_bytes", `{"permit":"x","status":"SUCCESS","retry_after_ms":-1}`: "/retry_after_ms",
	} {
		var m FinishRequest
		err := Decode([]byte(text), &m)
		if e, ok := errors.AsType[*tga.Error](err); !ok || e.Code != tga.ValidationError || e.Pointer != want || strings.Contains(e.Error(), "Go ") {
			t.Errorf("%s: %v, want VALIDATION_ERROR at %q", text, err, want)
		}
	}
	for text, at := range map[string]string{`{"ttl_ms":1.5}`: "/ttl_ms", `{"ttl_ms":"1"}`: "/ttl_ms", `{"ttl_ms":99999999999999999999}`: "/ttl_ms"} {
		var m LeaseRequest
		if err := Decode([]byte(text), &m); err == nil || !strings.HasSuffix(err.Error(), "(at "+at+")") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAnswerOfAnotherVersion: a client reads the answer of a daemon that knows more members, or fewer.
func TestAnswerOfAnotherVersion(t *testing.T) {
	for text, want := range map[string]Call{
		`{"state":"COMPLETED","sequence_number":4,"attempts":1,"sent":1}`:                  {State: "COMPLETED", Seq: 4, Attempts: 1, Sent: 1},
		`{"state":"COMPLETED","sequence_number":4,"attempts":1,"sent":1,"more":{"a":[1]}}`: {State: "COMPLETED", Seq: 4, Attempts: 1, Sent: 1},
		`{"sequence_number":4}`: {Seq: 4},
		`{"sequence_number":4,"attempts":1,"sent":1,"status":null,"result":{"a": 1.0}}`:                  {Seq: 4, Attempts: 1, Sent: 1, Result: json.RawMessage(`{"a": 1.0}`)},
		`{"changes":[],"sequence_number":4,"attempts":1,"sent":1,"confirmation":{"checked":2,"more":1}}`: {Seq: 4, Attempts: 1, Sent: 1, Confirmation: &Confirmation{Checked: 2}},
	} {
		var got Call
		if err := DecodeAnswer([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		got.Changes = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for _, text := range []string{``, `{`, `[]`, `{"sequence_number":"4"}`, `{"sequence_number":4}{}`} {
		var got Call
		if err := DecodeAnswer([]byte(text), &got); err == nil {
			t.Errorf("%s was read as %+v", text, got)
		}
	}
}
