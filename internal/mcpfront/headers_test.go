package mcpfront

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
)

// TestErrorsHaveTheirStatus: an error has the HTTP status that the revision gives it. A client of
// an earlier revision gets 200.
func TestErrorsHaveTheirStatus(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	for code, want := range map[int]int{
		-32020: 400, -32021: 400, -32022: 400, -32601: 404,
		-32602: 200, -32603: 200, -32600: 200, -32700: 200, -32000: 200, -32050: 200, 1: 200,
	} {
		body, h := fronttest.Modern("1", "refuse", fmt.Sprintf(`"code":%d`, code))
		if status, got := fronttest.Post(t, url, body, h...); status != want || !strings.HasPrefix(got, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,`, code)) {
			t.Errorf("%d: %d %s, want %d", code, status, got, want)
		}
		if status, got := fronttest.Post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"refuse","params":{"code":%d}}`, code)); status != 200 {
			t.Errorf("without a revision: %d: %d %s", code, status, got)
		}
	}
	version, method := []string{"Mcp-Protocol-Version", "2026-07-28"}, []string{"Mcp-Method", "echo"}
	both := append(version[:2:2], method...)
	request := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"echo"` + params + `}`
	}
	whole := request(`,"params":{"_meta":` + fronttest.ModernMeta + `}`)
	noCapabilities := request(`,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)
	for _, c := range []struct {
		body   string
		header []string
		status int
		has    string
	}{
		{whole, both, 200, `"result"`},
		{whole, nil, 400, `"id":1,"error":{"code":-32020`},
		{whole, append(both, "Mcp-Method", "tools/call"), 400, `-32020`},
		{whole, append(both, "Mcp-Session-Id", "of another revision"), 200, `"result"`},
		{request(``), both, 400, `"id":1,"error":{"code":-32602`},
		{request(`,"params":{}`), both, 400, `-32602`},
		{noCapabilities, both, 400, `-32602`},
		{`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"tgad-x","_meta":` + fronttest.ModernMeta + `}}`, append(version[:2:2], "Mcp-Method", "tasks/get"), 400, `-32021`},
		{`{`, both, 400, `{"jsonrpc":"2.0","error":{"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"echo","method":"x"}`, both, 400, `"id":1,"error":{"code":-32600`},
		{`[` + whole + `]`, both, 400, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{`[` + request(``) + `,` + whole + `]`, nil, 400, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, both, 400, `-32600`},
		{`{"jsonrpc":"2.0","method":"notifications/x"}`, version, 202, ``},
		// Earlier revisions.
		{`{`, nil, 200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"echo","method":"x"}`, nil, 200, `"id":1,"error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":1,"method":"none"}`, []string{"Mcp-Protocol-Version", "2025-11-25"}, 200, `-32601`},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 202, ``},
	} {
		if status, got := fronttest.Post(t, url, c.body, c.header...); status != c.status || !strings.Contains(got, c.has) {
			t.Errorf("%s %v: %d %s\nwant %d %s", c.body, c.header, status, got, c.status, c.has)
		}
	}
}

// annotated is a list of tools. The first wants three arguments in headers, and the last breaks
// the rules for headers.
const annotated = `{"tools":[{"name":"charge","inputSchema":{"type":"object","properties":{` +
	`"r":{"type":"string","x-mcp-header":"Region"},"o":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},"b":{"type":"boolean","x-mcp-header":"B"}}}},` +
	`{"name":"bad","inputSchema":{"type":"object","properties":{"x":{"type":"number","x-mcp-header":"X"}}}}]}`

func callOver(url, tool, args, key string, header ...string) (int, string, error) {
	body, h := fronttest.Modern("7", "tools/call", `"name":"`+tool+`","arguments":`+args, append(header, "Mcp-Name", tool)...)
	return fronttest.TryPost(url, strings.Replace(body, `"_meta":{`, `"_meta":{"dev.tgad/idempotencyKey":"`+key+`",`, 1), h...)
}

// TestArgumentHeadersAreThoseOfTheBody: a call whose Mcp-Param headers differ from its arguments is
// refused and does nothing, whether or not the tools were listed before.
func TestArgumentHeadersAreThoseOfTheBody(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.Journal+".tools", []byte(annotated), 0o600); err != nil {
		t.Fatal(err)
	}
	url := w.listening()
	h := func(kv ...string) (all []string) {
		for i := 0; i < len(kv); i += 2 {
			all = append(all, "Mcp-Param-"+kv[i], kv[i+1])
		}
		return all
	}
	for i, c := range []struct {
		args   string
		header []string
	}{
		{`{"r":"eu"}`, nil},
		{`{"r":"eu"}`, h("Region", "us")},
		{`{"r":"eu"}`, h("Region", "EU")},
		{`{"r":"eu"}`, h("Region", "")},
		{`{"r":"eu"}`, h("Region", "eu", "Region", "eu")},
		{`{"r":"eu"}`, h("Region", "eu", "N", "1")},
		{`{}`, h("Region", "eu")},
		{`{"r":null}`, h("Region", "null")},
		{`{"r":"é"}`, h("Region", "é")},               // no character of a header
		{`{"r":"é"}`, h("Region", "=?base64?w6l?=")},  // no base64
		{`{"r":"é"}`, h("Region", "=?Base64?w6k=?=")}, // not marked
		{`{"r":"é"}`, h("Region", "=?base64?w6o=?=")}, // another
		{`{"r":"42"}`, h("Region", "42.0")},           // no number
		{`{"r":["eu"]}`, h("Region", "eu")},           // no scalar
		{`{"o":{"n":42}}`, h("N", "43")},              //
		{`{"o":{"n":42}}`, h("N", "true")},            //
		{`{"o":{"n":42}}`, h("N", `"42"`)},            //
		{`{"o":{"n":42}}`, h("N", `42,"n":42`)},       //
		{`{"o":{"n":4.5}}`, h("N", "4.5")},            // no integer
		{`{"o":{"n":9007199254740993}}`, h("N", "9007199254740993")},
		{`{"b":true}`, h("B", "True")},
		{`{"b":true}`, h("B", "1")},
	} {
		if status, got, err := callOver(url, "charge", c.args, fmt.Sprint("bad", i), c.header...); err != nil || status != 400 || !strings.Contains(got, `"id":7,"error":{"code":-32020`) {
			t.Errorf("%s %v: %d %s, %v", c.args, c.header, status, got, err)
		}
	}
	if n := len(w.Effects()); n != 0 {
		t.Fatalf("%d effects", n)
	}
	good := []struct {
		tool, args string
		header     []string
	}{
		{"charge", `{"r":"eu","o":{"n":42},"b":false}`, h("Region", "eu", "N", "42", "B", "false")},
		{"charge", `{"r":"eu","o":{"n":42.0}}`, h("region", "=?base64?ZXU=?=", "n", "42")},
		{"charge", `{"o":{"n":42}}`, h("N", "42.0")},
		{"charge", `{"o":{"n":-42}}`, h("N", "=?base64?LTQy?=")},
		{"charge", `{"r":"é"}`, h("Region", "=?base64?w6k=?=")},
		{"charge", `{"r":"=?base64?="}`, h("Region", "=?base64?=")},
		{"charge", `{"r":""}`, h("Region", "")},
		{"charge", `{"r":null,"b":null}`, nil},
		{"charge", `{}`, h("Other", "nobody's")},
		{"bad", `{"x":1}`, h("X", "2")},      // no annotation that counts
		{"unlisted", `{"x":1}`, h("X", "2")}, // nor this
	}
	for i, c := range good {
		if status, got, err := callOver(url, c.tool, c.args, fmt.Sprint("good", i), c.header...); err != nil || status != 200 || !strings.Contains(got, `"ok"`) {
			t.Errorf("%s %s %v: %d %s, %v", c.tool, c.args, c.header, status, got, err)
		}
	}
	if n := len(w.Effects()); n != len(good) {
		t.Errorf("%d effects of %d", n, len(good))
	}
	// The headers of a client of an earlier revision are not checked.
	if status, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"charge","arguments":{"r":"old"}}}`, h("Region", "us")...); status != 200 || !strings.Contains(got, `"ok"`) {
		t.Errorf("%d %s", status, got)
	}
	// The current definitions count.
	if err := os.WriteFile(w.Journal+".tools", []byte(strings.Replace(annotated, `"Region"`, `"Zone"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":7,"method":"changed"}`); status != 200 {
		t.Fatalf("%d %s", status, got)
	}
	if status, got, err := callOver(url, "charge", `{"r":"eu"}`, "new", h("Region", "eu")...); err != nil || status != 400 || !strings.Contains(got, "Mcp-Param-Zone") {
		t.Errorf("%d %s, %v", status, got, err)
	}
}

// TestDefinitionsThatCannotBeHad: if a tool server lists no tools, it has asked for no headers, and
// calls pass. If it cannot be asked, a call is refused, because its headers may be those of another.
func TestDefinitionsThatCannotBeHad(t *testing.T) {
	for name, c := range map[string]struct {
		instead, has string
		effects      int
	}{
		"it lists none": {`{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no"}}`, `"ok"`, 1},
		"it dies":       {``, `"code":-32000,"message":"tgad: the call was not sent`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			url := w.listening()
			if status, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"started"}`); status != 200 {
				t.Fatalf("%d %s", status, got)
			}
			if err := os.WriteFile(w.Journal+".instead", []byte(c.instead), 0o600); err != nil {
				t.Fatal(err)
			}
			status, got, err := callOver(url, "charge", `{"r":"eu"}`, "k", "Mcp-Param-Region", "us")
			if err != nil || status != 200 {
				t.Fatalf("%d %s, %v", status, got, err)
			}
			fronttest.Has(t, got, c.has)
			if n := len(w.Effects()); n != c.effects {
				t.Errorf("%d effects", n)
			}
			if err := os.Remove(w.Journal + ".instead"); err != nil {
				t.Fatal(err)
			}
			fronttest.Eventually(t, "the call", func() bool {
				_, got, err = callOver(url, "charge", `{"r":"eu"}`, "later", "Mcp-Param-Region", "us")
				return err == nil && strings.Contains(got, `"ok"`)
			})
		})
	}
}

// TestListThatIsForgottenMeanwhile: if the first pages of a list are forgotten while it is read, not
// all tools count as known afterwards.
func TestListThatIsForgottenMeanwhile(t *testing.T) {
	var m toolset.Mirrors
	since := m.Since()
	m.Learn([]toolset.Definition{{Name: "a", Raw: []byte(marked("a", "X"))}})
	m.Forget()
	m.Learn([]toolset.Definition{{Name: "b", Raw: []byte(marked("b", "X"))}})
	m.All(since)
	if _, known := m.Of("a"); known {
		t.Error("what was forgotten is taken for a tool without headers")
	}
	m.All(m.Since())
	if _, known := m.Of("a"); !known {
		t.Error("not known after a whole list")
	}
}
