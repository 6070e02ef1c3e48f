package mcpraw

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

func TestParamHeaders(t *testing.T) {
	const mark = `"x-mcp-header":`
	deep := func(n int) string {
		return strings.Repeat(`{"properties":{"a":`, n) + `{}` + strings.Repeat(`}}`, n)
	}
	for schema, want := range map[string]string{
		`true`: "[]",
		``:     "[]",
		`{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"},"q":{"type":"string"}}}`:                                       "[{Region [r]}]",
		`{"properties":{"o":{"type":"object","properties":{"n/m":{"x-mcp-header":"A-1","type":"integer"}}},"b":{"type":"boolean",` + mark + `"b"}}}`: "[{A-1 [o n/m]} {b [b]}]",
		`{"properties":{"r":{"type":["string","null"],` + mark + `"R"}}}`:                                                                            "[{R [r]}]",
		// Not annotations: a property of that name, and data.
		`{"properties":{"x-mcp-header":{"type":"object"}}}`:                               "[]",
		`{"properties":{"a":{"default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}]}}}`: "[]",
		deep(maxSchemaDepth / 2): "[]",

		`{"properties":{"r":{"type":"string",` + mark + `""}}}`:                                        "no name of a header",
		`{"properties":{"r":{"type":"string",` + mark + `7}}}`:                                         "no name of a header",
		`{"properties":{"r":{"type":"string",` + mark + `"a b"}}}`:                                     "no name of a header",
		`{"properties":{"r":{"type":"string",` + mark + `"a\r\nb"}}}`:                                  "no name of a header",
		`{"properties":{"r":{"type":"string",` + mark + `"é"}}}`:                                       "no name of a header",
		`{"properties":{"r":{"type":"number",` + mark + `"R"}}}`:                                       "want the type",
		`{"properties":{"r":{"type":["string","integer"],` + mark + `"R"}}}`:                           "want the type",
		`{"properties":{"r":{` + mark + `"R"}}}`:                                                       "want the type",
		`{"properties":{"r":{"type":"object",` + mark + `"R"}}}`:                                       "want the type",
		`{"properties":{"r":{"type":"string",` + mark + `"R"},"s":{"type":"string",` + mark + `"r"}}}`: "there twice",
		`{"type":"string",` + mark + `"R"}`:                                                            "is not on a property",
		`{"properties":{"l":{"items":{"properties":{"r":{"type":"string",` + mark + `"R"}}}}}}`:        "is not on a property",
		`{"anyOf":[{"properties":{"r":{"type":"string",` + mark + `"R"}}}]}`:                           "is not on a property",
		`{"if":{"properties":{"r":{"type":"string",` + mark + `"R"}}}}`:                                "is not on a property",
		`{"$defs":{"r":{"type":"string",` + mark + `"R"}}}`:                                            "is not on a property",
		deep(maxSchemaDepth + 1):                                                                       "nested more than",
	} {
		got, err := ParamHeaders([]byte(schema))
		said := fmt.Sprint(got)
		if err != nil {
			said = err.Error()
			if code := tga.CodeOf(err); code != tga.ValidationError && code != tga.LimitExceeded {
				t.Errorf("%.200s: code %s", schema, code)
			}
		}
		if said != want && !(err != nil && strings.Contains(said, want)) {
			t.Errorf("%.200s:\n got %s\nwant %s", schema, said, want)
		}
	}
	if _, err := ParamHeaders([]byte(deep(maxSchemaDepth))); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func TestParamValues(t *testing.T) {
	headers := []ParamHeader{{"H", []string{"o", "a/b~c"}}}
	for v, want := range map[string]string{
		`"us-west1"`: "us-west1", `"padded "`: "padded ", `""`: "", `"\u00e9"`: "é", `true`: "true", `false`: "false",
		`42`: "42", `-7`: "-7", `42.0`: "42", `1e2`: "100", `-0`: "0", `4.2e1`: "42", `0.0e99`: "0",
		`9007199254740991`: "9007199254740991", `-9007199254740991`: "-9007199254740991", `90071992547409910e-1`: "9007199254740991",
		`9007199254740992`: "!", `-9007199254740992`: "!", `1.5`: "!", `1e99`: "!", `1e999999999`: "!", `1e-999999999`: "!", `{}`: "!", `["a"]`: "!",
		`null`: "-",
	} {
		got, err := ParamValues(headers, []byte(`{"o":{"a/b~c":`+v+`}}`))
		said := "-"
		switch {
		case err != nil:
			said = "!"
			if e, ok := err.(*tga.Error); !ok || e.Code != tga.ValidationError || e.Pointer != "/o/a~1b~0c" || !strings.Contains(e.Message, "Mcp-Param-H") {
				t.Errorf("%s: %#v", v, err)
			}
		case len(got) == 1 && got[0].Header == "H":
			said = got[0].Value
		}
		if said != want {
			t.Errorf("%s: got %q, want %q", v, said, want)
		}
	}
	for _, args := range []string{`{}`, `{"o":{}}`, `{"o":7}`, `{"o":null}`} {
		if got, err := ParamValues(headers, []byte(args)); err != nil || got != nil {
			t.Errorf("%s: %v, %v", args, got, err)
		}
	}
}

func TestMirror(t *testing.T) {
	h := http.Header{}
	h.Set("Authorization", "Bearer x")
	h.Set("mcp-param-tenant", "of the operator")
	h.Set("Mcp-Name", "of the operator")
	Mirror(h, Newest, "tools/call", "zahl-über", []ParamValue{{"Region", "us-west1"}, {"Text", " padded "}, {"Empty", ""}})
	b64 := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	for name, want := range map[string]string{
		"Authorization": "Bearer x", "Mcp-Protocol-Version": string(Newest), "Mcp-Method": "tools/call", "Mcp-Name": b64("zahl-über"),
		"Mcp-Param-Region": "us-west1", "Mcp-Param-Text": b64(" padded "), "Mcp-Param-Empty": b64(""), "Mcp-Param-Tenant": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for v, plain := range map[string]bool{
		"a b": true, "~!": true, "file:///a?b=é": false, "a\nb": false, "a\x7f": false, "\ta": false, "a ": false, "": false,
		"=?base64?literal?=": false, "=?base64?literal": true,
	} {
		want := v
		if !plain {
			want = b64(v)
		}
		if got := headerText(v); got != want {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
	Mirror(h, Newest, "tools/list", "", nil)
	if h.Get("Mcp-Name") != "" || h.Get("Mcp-Param-Region") != "" {
		t.Errorf("left over: %v", h)
	}
	for _, c := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"a"}`, "a"}, {"prompts/get", `{"name":"b"}`, "b"}, {"resources/read", `{"uri":"c"}`, "c"},
		{"tasks/get", `{"taskId":"d"}`, "d"}, {"tasks/update", `{"taskId":"e"}`, "e"}, {"tasks/cancel", `{"taskId":"f"}`, "f"},
		{"tools/list", `{"name":"g"}`, ""}, {"tools/call", `{}`, ""},
	} {
		if got := NameOf(c.method, []byte(c.params)); got != c.want {
			t.Errorf("%s %s: %q", c.method, c.params, got)
		}
	}
}
