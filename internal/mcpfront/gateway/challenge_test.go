package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/subject"
)

// TestChallengeComesBackThroughAGateway: if the token is the client's Authorization, each request whose answer would lack
// the tool server's part is answered with the challenge, and runs with a token.
func TestChallengeComesBackThroughAGateway(t *testing.T) {
	y := ways[0]
	crm := fronttest.Guard(t, "tok-alic")
	w := newWorld(t)
	crmBehind := w.guarded("crm", crm, y)
	near := w.behind("near", names.Names{})
	near.Resources, crmBehind.Resources = names.Resources{"*"}, names.Resources{"pay:*"}
	_, url := w.door(y, w.gateTo(names.Lists{}, near, crmBehind))
	challenged := func(what string, status int, body string, h http.Header) {
		t.Helper()
		if status != http.StatusUnauthorized || h.Get("WWW-Authenticate") != fronttest.WantsToken || !json.Valid([]byte(body)) || h.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %d %q %s", what, status, h, body)
		}
	}
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	for _, token := range []string{"", "tok-expired"} {
		status, body, h := fronttest.Exchange(t, url, hello, y.with(token)...)
		challenged("the handshake", status, body, h)
	}
	fronttest.Eventually(t, "it is gone", func() bool { return near.Shim.Conversations() == 0 && crmBehind.Shim.Conversations() == 0 })
	session := fronttest.SessionAs(t, url, "", y.with("tok-alic")...)
	if session == "" {
		t.Fatal("no session with a token")
	}
	asks := []struct{ method, params string }{
		{"tools/call", `{"name":"crm__charge","arguments":{"a":1},"_meta":{"dev.tgad/idempotencyKey":"s"}}`}, // first: it waits for a server that is being started
		{"tools/list", `{}`}, {"resources/list", `{}`}, {"resources/read", `{"uri":"pay:alic"}`}, {"logging/setLevel", `{"level":"info"}`}, {"prompts/get", `{"name":"crm__p"}`},
	}
	// The token becomes invalid. First the tool server refuses it; then the session is lost too, and a new one is refused.
	crm.Set(func() { crm.Good = map[string]bool{} })
	inSession := func(method, params string) (int, string, http.Header) {
		return fronttest.Exchange(t, url, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, append(y.with("tok-alic"), "Mcp-Session-Id", session)...)
	}
	for range 2 {
		for _, a := range asks {
			status, body, h := inSession(a.method, a.params)
			challenged("in a session, "+a.method, status, body, h)
		}
		crm.Set(func() { crm.Good, crm.Bad = map[string]bool{"Bearer tok-alic": true}, http.StatusNotFound })
		inSession("tools/call", `{"name":"crm__charge","arguments":{"a":0}}`) // which ends the session at the tool server
		crm.Set(func() { crm.Good, crm.Bad = map[string]bool{}, 0 })
	}
	if n := crm.Runs(); n != 0 {
		t.Errorf("%d ran without a token", n)
	}
	crm.Set(func() { crm.Good = map[string]bool{"Bearer tok-alic": true} })
	for _, a := range []struct{ method, members string }{
		{"tools/list", ""}, {"server/discover", ""}, {"resources/list", ""}, {"resources/read", `"uri":"pay:alic"`}, {"subscriptions/listen", `"notifications":{"toolsListChanged":true}`},
		{"tools/call", `"name":"crm__charge","arguments":{"a":1}`},
	} {
		var more []string
		switch a.method {
		case "tools/call":
			more = []string{"Mcp-Name", "crm__charge"}
		case "resources/read":
			more = []string{"Mcp-Name", "pay:alic"}
		}
		for _, token := range []string{"", "tok-expired"} {
			status, body, h := y.ask(t, url, token, a.method, a.members, more...)
			challenged(a.method, status, body, h)
		}
		if a.method == say.Listen {
			continue // its stream would not end
		}
		if status, body, _ := y.ask(t, url, "tok-alic", a.method, a.members, more...); status != 200 || strings.Contains(body, `"error"`) {
			t.Errorf("%s with a token: %d %s", a.method, status, body)
		}
	}
	status, body, _ := fronttest.CallAs(t, url, "crm__charge", "", `{"a":1}`, `{"dev.tgad/idempotencyKey":"s"}`, y.with("tok-alic")...)
	if status != 200 || !strings.Contains(body, "paid by alic") || strings.Contains(body, "replayed") {
		t.Errorf("the key of a call that was refused: %d %s", status, body)
	}
}

// TestTokenThatIsMissingTakesNoOtherWithIt: if each tool server has a header of its own, a tool server whose token is
// missing or refused is left out of the lists. A call of its tools is "not sent", with the reason, and the HTTP status of
// the tool server does not reach the client. The tool server is listed again once its token is valid.
func TestTokenThatIsMissingTakesNoOtherWithIt(t *testing.T) {
	y := ways[1]
	crm := fronttest.Guard(t)
	w := newWorld(t)
	_, url := w.door(y, w.gateTo(names.Lists{}, w.behind("near", names.Names{}), w.guarded("crm", crm, y)))
	call := `{"name":"crm__charge","arguments":{"a":1},"_meta":{"dev.tgad/idempotencyKey":"k"}}`
	for _, token := range []string{"", "tok-expired"} {
		session := fronttest.SessionAs(t, url, "", y.with(token)...)
		in := append(y.with(token), "Mcp-Session-Id", session)
		if session == "" {
			t.Fatal("no session without a token")
		}
		fronttest.Post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, in...)
		list := func() string {
			_, body := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, in...)
			return body
		}
		fronttest.Has(t, list(), "near__charge")
		fronttest.Lacks(t, list(), "crm__", "error")
		for _, method := range []string{"tools/call", "prompts/get"} {
			status, body, h := fronttest.Exchange(t, url, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+call+`}`, in...)
			fronttest.Has(t, body, "401 Unauthorized", y.header)
			if method == "tools/call" {
				fronttest.Has(t, body, "not sent", `"isError":true`)
			}
			if status != 200 || h.Get("WWW-Authenticate") != "" {
				t.Errorf("%s, token %q: %d %v", method, token, status, h)
			}
		}
		_, body := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"near__charge","arguments":{"a":"`+token+`"}}}`, in...)
		fronttest.Has(t, body, `"text":"ok"`)
		if token == "" {
			continue
		}
		// A tool server that has refused a token is not asked again and again, but only when a request needs it.
		before := crm.Sightings()
		time.Sleep(350 * time.Millisecond)
		if n := crm.Sightings() - before; n > 1 {
			t.Errorf("the tool server was asked %d times for nobody", n)
		}
		before = crm.Sightings()
		crm.Set(func() { crm.Good = map[string]bool{"Bearer tok-expired": true} })
		fronttest.Eventually(t, "the tool server to be there again", func() bool { return strings.Contains(list(), "crm__charge") })
		if n := crm.Sightings() - before; n > 12 {
			t.Errorf("the tool server was asked %d times", n)
		}
		_, body = fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+call+`}`, in...)
		fronttest.Has(t, body, "paid by ired")
	}
	crm.Set(func() { crm.Good = map[string]bool{} })
	for _, token := range []string{"", "tok-expired"} {
		status, body, h := y.ask(t, url, token, "tools/list", "")
		if status != 200 || !strings.Contains(body, "near__charge") || strings.Contains(body, "crm__") || h.Get("WWW-Authenticate") != "" {
			t.Errorf("the list of a client without a handshake: %d %v %s", status, h, body)
		}
		status, body, h = y.ask(t, url, token, "tools/call", `"name":"crm__charge","arguments":{"a":1}`, "Mcp-Name", "crm__charge")
		if status != 200 || !strings.Contains(body, "not sent") || !strings.Contains(body, y.header) || h.Get("WWW-Authenticate") != "" {
			t.Errorf("its call: %d %v %s", status, h, body)
		}
	}
}

// TestStreamWithoutAToken: a client without a token for one tool server gets the notifications of the others, if that
// token is not in the client's Authorization. The acknowledgement promises only what the others have granted.
func TestStreamWithoutAToken(t *testing.T) {
	y := ways[1]
	w := newWorld(t)
	_, url := w.door(y, w.gateTo(names.Lists{}, w.behind("near", names.Names{}), w.guarded("crm", fronttest.Guard(t), y)))
	body, h := fronttest.Modern(`"s"`, say.Listen, `"notifications":{"toolsListChanged":true}`)
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i, h := 0, append(h, y.with("")...); i < len(h); i += 2 {
		req.Header.Set(h[i], h[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for line := ""; !strings.Contains(line, say.Ack); {
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatalf("%d %s %v", resp.StatusCode, line, err)
		}
	}
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestRefusedCallIsOfTheQuota: a call that a tool server refuses for its token counts in the quota.
func TestRefusedCallIsOfTheQuota(t *testing.T) {
	for _, y := range ways {
		w := newWorld(t)
		g, err := NewGate([]Behind{w.guarded("crm", fronttest.Guard(t, "tok-alic"), y)}, GateOptions{Quotas: []Quota{{Calls: 1, Per: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
		_, url := w.door(y, g)
		_, body, _ := fronttest.CallAs(t, url, "crm__charge", "", `{"a":1}`, "", y.with("")...)
		fronttest.Has(t, body, "401 Unauthorized")
		_, body, _ = fronttest.CallAs(t, url, "crm__charge", "", `{"a":1}`, "", y.with("tok-alic")...)
		fronttest.Has(t, body, "RATE_LIMITED")
	}
}

// TestAuthorizationDocumentsOfAGateway: such documents pass if only one tool server has them.
func TestAuthorizationDocumentsOfAGateway(t *testing.T) {
	w := newWorld(t)
	crm, other := fronttest.Guard(t), fronttest.Guard(t)
	twin := &fronttest.Guarded{URL: strings.Replace(crm.URL, "/v1/mcp", "/v2/mcp", 1)}
	const place = "/.well-known/oauth-protected-resource"
	for _, c := range []struct {
		name             string
		y                way
		all              []Behind
		host, path, none string
	}{
		{"one", ways[0], []Behind{w.guarded("crm", crm, ways[0]), w.plain("far", other), w.guarded("hrm", other, way{header: subject.HeaderOf(subject.InHeader, "hrm")})}, place, place + "/v1/mcp", ""},
		{"two of one origin", ways[0], []Behind{w.guarded("crm", crm, ways[0]), w.guarded("twin", twin, ways[0])}, place, "", ""},
		{"a header", ways[1], []Behind{w.guarded("crm", crm, ways[1])}, "", "", ""},
		{"nobody", ways[0], []Behind{w.plain("far", other)}, "", "", ""},
	} {
		_, url := w.door(c.y, w.gateTo(names.Lists{}, c.all...))
		for asked, want := range map[string]string{place: c.host, place + "/mcp": c.path, "/.well-known/other": c.none} {
			status, body := fronttest.Fetch(t, strings.TrimSuffix(url, "/mcp")+asked, c.y.with("tok-alic")...)
			if (status == 200) != (want != "") || want != "" && body != fmt.Sprintf(`{"at":%q,"auth":""}`, want) {
				t.Errorf("%s, %s: %d %s, want %q", c.name, asked, status, body, want)
			}
		}
	}
}
