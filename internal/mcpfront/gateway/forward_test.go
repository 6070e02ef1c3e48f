package gateway

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/testlog"
	"github.com/tgad/tgad/schemas/tga"
)

// doorKey is the API key of a test's client, for a gateway that identifies clients by Authorization.
const doorKey = "Bearer key-of-the-door"

// way is how a client sends its credentials for the tool server "crm".
type way struct {
	name, header string
}

// ways are the two ways: in Authorization, and in a header for the tool server beside the gateway's key.
var ways = []way{{subject.InAuthorization, subject.Authorization}, {subject.InHeader, subject.HeaderOf(subject.InHeader, "crm")}}

func (y way) passes() bool { return y.header == subject.Authorization }

// with returns the headers of a request with a token, "" for none.
func (y way) with(token string) (h []string) {
	if !y.passes() {
		h = append(h, "Authorization", doorKey)
	}
	if token != "" {
		h = append(h, y.header, "Bearer "+token)
	}
	return h
}

// door serves the clients of a gate, which send their credentials by way y.
func (w *world) door(y way, g *Gate) (d *Door, url string) {
	w.T.Helper()
	d = &Door{Gates: map[string]*Gate{"": g, "ann": g}, Passes: y.passes(), Who: func(said string, _ *x509.Certificate) string {
		if said == doorKey {
			return "ann"
		}
		return ""
	}}
	if !y.passes() {
		delete(d.Gates, "")
	}
	return d, w.Door(d.lobby)
}

// guarded is a tool server that gets its clients' credentials.
func (w *world) guarded(server string, g *fronttest.Guarded, y way) Behind {
	w.T.Helper()
	return w.behind(server, names.Names{}, func(o *mcpfront.Options) { o.Command, o.URL, o.ForwardAuth = nil, g.URL, y.header })
}

// plain is a tool server over HTTP that gets no credentials.
func (w *world) plain(server string, g *fronttest.Guarded) Behind {
	w.T.Helper()
	return w.behind(server, names.Names{}, func(o *mcpfront.Options) { o.Command, o.URL = nil, g.URL })
}

// open is a tool server over HTTP that accepts every client.
func open(t *testing.T) *fronttest.Guarded {
	g := fronttest.Guard(t)
	g.Good[""] = true
	return g
}

// ask posts a request of the newest revision with a token.
func (y way) ask(t *testing.T, url, token, method, members string, header ...string) (int, string, http.Header) {
	t.Helper()
	body, h := fronttest.Modern("1", method, members, header...)
	return fronttest.Exchange(t, url, body, append(h, y.with(token)...)...)
}

// TestTokensGoToTheirToolServerAlone takes every path to an error. The other tool servers saw no token, and nothing that
// was written anywhere contains a token.
func TestTokensGoToTheirToolServerAlone(t *testing.T) {
	const alice, mallory = "tok-1f6e0c-alice", "tok-93ab77-mallory"
	for _, y := range ways {
		crm, far := fronttest.Guard(t, alice), open(t)
		w := newWorld(t)
		var said testlog.Buffer
		w.opts.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
		_, url := w.door(y, w.gateTo(names.Lists{}, w.behind("near", names.Names{}), w.plain("far", far), w.guarded("crm", crm, y)))
		var answers strings.Builder
		call := func(tool, token, args, meta string, header ...string) int {
			status, body, _ := fronttest.CallAs(t, url, tool, "", args, meta, append(header, y.with(token)...)...)
			answers.WriteString(body)
			return status
		}
		for _, tool := range []string{"near__charge", "far__charge", "crm__charge"} {
			if status := call(tool, alice, `{"a":1}`, ""); status != 200 {
				t.Fatalf("%s %d %s", tool, status, &answers)
			}
			call(tool, alice, `{"a":2}`, `{"dev.tgad/idempotencyKey":"k"}`)
			call(tool, mallory, `{"a":3}`, "")
			call(tool, mallory, `{"a":4}`, `{"dev.tgad/idempotencyKey":"k"}`)
			call(tool, "", `{"a":4}`, "")
			call(tool, alice, `{"a":1}`, "", "Mcp-Session-Id", "none")
			call(tool, alice, `[`, "")
		}
		for _, bad := range []int{400, 403, 404, 429, 500} { // with a body that has the token in it
			crm.Set(func() { crm.Bad = bad })
			call("crm__charge", alice, fmt.Sprintf(`{"bad":%d}`, bad), "")
		}
		crm.Set(func() { crm.Bad = 0 })
		session := fronttest.SessionAs(t, url, "", y.with(alice)...)
		for _, method := range []string{"notifications/initialized", "tools/list", "logging/setLevel", "resources/list", "prompts/list", "tools/call"} {
			_, body := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"name":"crm__charge"}}`, append(y.with(alice), "Mcp-Session-Id", session)...)
			answers.WriteString(body)
		}
		crm.Set(func() { crm.Good = map[string]bool{} })
		call("crm__charge", alice, `{"a":5}`, "", "Mcp-Session-Id", session)
		call("crm__charge", alice, `{"a":5}`, "")
		for _, token := range []string{alice, mallory, ""} {
			_, body, _ := y.ask(t, url, token, "tools/list", "")
			answers.WriteString(body)
		}
		if n := crm.Runs(); n != 3 { // two calls, and the one in the session
			t.Errorf("%s: %d runs, want 3", y.name, n)
		}
		for auth := range crm.Seen {
			if auth != "Bearer "+alice && auth != "Bearer "+mallory && auth != "" {
				t.Errorf("%s: the tool server saw %q", y.name, auth)
			}
		}
		if crm.Seen["Bearer "+alice] == 0 || far.Seen[""] == 0 || len(far.Seen) != 1 {
			t.Errorf("%s: one saw %v, the one that gets no credentials %v", y.name, crm.Seen, far.Seen)
		}
		if err := w.DB.Close(); err != nil {
			t.Fatal(err)
		}
		search := fronttest.SearchFor(t, w.Dir, alice, mallory, doorKey)
		search("what was logged", said.String())
		search("an answer", answers.String())
		if !strings.Contains(said.String(), "level=") {
			t.Error("nothing was logged: the search of it says nothing")
		}
	}
}

// TestUsersOfAGatewayAreKeptApart: identical calls of two users are two calls, and a key belongs to one user.
func TestUsersOfAGatewayAreKeptApart(t *testing.T) {
	for _, y := range ways {
		crm := fronttest.Guard(t, "tok-alic", "tok-bobb")
		w := newWorld(t)
		_, url := w.door(y, w.gateTo(names.Lists{}, w.behind("near", names.Names{}), w.guarded("crm", crm, y)))
		as := func(token, args, meta string) string {
			_, body, _ := fronttest.CallAs(t, url, "crm__charge", "", args, meta, y.with(token)...)
			return body
		}
		// Nobody takes alice's answer, so it is undelivered, and her repeat is served it.
		hold := make(chan struct{})
		crm.Set(func() { crm.Hold = hold })
		gone := fronttest.LostCall(t, url, "crm__charge", "", `{"a":1}`, "", y.with("tok-alic")...)
		fronttest.Eventually(t, "the call is at the tool server", func() bool { return crm.Runs() == 1 })
		gone()
		crm.Set(func() { crm.Hold = nil })
		close(hold)
		body := as("tok-bobb", `{"a":1}`, "")
		fronttest.Has(t, body, "paid by bobb")
		fronttest.Lacks(t, body, "dev.tgad/replayed", "alic")
		fronttest.Has(t, as("tok-alic", `{"a":1}`, ""), "paid by alic", "dev.tgad/replayed")
		key := `{"dev.tgad/idempotencyKey":"order-7"}`
		fronttest.Has(t, as("tok-alic", `{"a":2}`, key), "paid by alic")
		body = as("tok-bobb", `{"a":2}`, key)
		fronttest.Has(t, body, string(tga.IdempotencyKeyConflict), "another user")
		fronttest.Lacks(t, body, "paid by")
		fronttest.Has(t, as("tok-alic", `{"a":2}`, key), "paid by alic", "dev.tgad/replayed")
		if n := crm.Runs(); n != 3 {
			t.Errorf("%s: %d runs, want alice's two and bob's", y.name, n)
		}
		// What everybody's tool server may show of its calls in doubt, this one's may not.
		_, body, _ = fronttest.CallAs(t, url, "crm__tgad_in_doubt", "", `{}`, "", y.with("tok-bobb")...)
		fronttest.Lacks(t, body, "alic")
	}
}

// TestSessionIsOfItsTokens: a session's id does not work with other credentials, or without credentials.
func TestSessionIsOfItsTokens(t *testing.T) {
	for _, y := range ways {
		crm := fronttest.Guard(t, "tok-alic", "tok-bobb")
		w := newWorld(t)
		_, url := w.door(y, w.gateTo(names.Lists{}, w.guarded("crm", crm, y)))
		id := fronttest.SessionAs(t, url, "", y.with("tok-alic")...)
		for token, want := range map[string]int{"tok-alic": 200, "tok-bobb": 404, "": 404} {
			if status, body, _ := fronttest.CallAs(t, url, "crm__charge", "", `{"a":1}`, "", append(y.with(token), "Mcp-Session-Id", id)...); status != want {
				t.Errorf("%s, token %q: %d %s, want %d", y.name, token, status, body, want)
			}
		}
		if status, body := fronttest.Post(t, url, `{}`, append(y.with("tok-alic"), y.header, "Bearer tok-bobb")...); status != 400 || !strings.Contains(body, "twice") {
			t.Errorf("%s: two of them: %d %s", y.name, status, body)
		}
		if n := crm.Runs(); n != 1 {
			t.Errorf("%s: %d runs", y.name, n)
		}
	}
}

// TestTwoServersDoNotGetOneToken: two servers do not get the same token, unless they have the same origin.
func TestTwoServersDoNotGetOneToken(t *testing.T) {
	w := newWorld(t)
	crm, other := fronttest.Guard(t, "tok-alic"), fronttest.Guard(t, "tok-alic")
	y := ways[0]
	if _, err := NewGate([]Behind{w.guarded("crm", crm, y), w.guarded("hrm", other, y)}, GateOptions{}); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a gate with both: %v", err)
	}
	g := w.gateTo(names.Lists{}, w.guarded("crm", crm, y))
	if _, err := g.Prepare([]Behind{w.guarded("crm", crm, y), w.guarded("hrm", other, y)}, GateOptions{}); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("a change to both: %v", err)
	}
	_, url := w.door(y, w.gateTo(names.Lists{}, w.guarded("crm", crm, y), w.guarded("twin", crm, y)))
	for _, tool := range []string{"crm__charge", "twin__charge"} {
		_, body, _ := fronttest.CallAs(t, url, tool, "", `{"a":1}`, "", y.with("tok-alic")...)
		fronttest.Has(t, body, "paid by alic")
	}
}

// TestKeyOfTheGatewayIsNoToken: a key that identifies a client to the gateway goes to no tool server, in whatever header
// it is and whatever headers the gate uses.
func TestKeyOfTheGatewayIsNoToken(t *testing.T) {
	w := newWorld(t)
	crm := fronttest.Guard(t, "tok-alic")
	y := ways[1]
	_, url := w.door(y, w.gateTo(names.Lists{}, w.guarded("crm", crm, y)))
	status, body, _ := fronttest.CallAs(t, url, "crm__charge", "", `{"a":1}`, "", "Authorization", doorKey, y.header, doorKey)
	if status != 400 || !strings.Contains(body, y.header) || strings.Contains(body, doorKey) {
		t.Errorf("%d %s", status, body)
	}
	// The gate uses Authorization for a tool server while the door still reads it: this happens while both change.
	d, url := w.door(y, w.gateTo(names.Lists{}, w.guarded("crm2", crm, ways[0])))
	fronttest.CallAs(t, url, "crm2__charge", "", `{"a":1}`, "", "Authorization", doorKey)
	d.Take(d.Who, true, map[string]*Gate{"": d.Gates["ann"]})
	_, body, _ = fronttest.CallAs(t, url, "crm2__charge", "tok-alic", `{"a":1}`, "")
	fronttest.Has(t, body, "paid by alic")
	for auth := range crm.Seen {
		if auth != "" && auth != "Bearer tok-alic" {
			t.Errorf("the tool server saw %q", auth)
		}
	}
}

// TestTokenStaysWithItsParty: if a new configuration uses the same header for another party, that party does not get the
// credentials that clients sent before. Their sessions end.
func TestTokenStaysWithItsParty(t *testing.T) {
	for _, y := range ways {
		w := newWorld(t)
		crm, other := fronttest.Guard(t, "tok-alic"), fronttest.Guard(t, "tok-alic")
		g := w.gateTo(names.Lists{}, w.behind("near", names.Names{}), w.guarded("crm", crm, y))
		_, url := w.door(y, g)
		session := fronttest.SessionAs(t, url, "", y.with("tok-alic")...)
		in := append(y.with("tok-alic"), "Mcp-Session-Id", session)
		call := func() (int, string) {
			return fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm__charge","arguments":{"a":1}}}`, in...)
		}
		if _, body := call(); !strings.Contains(body, "paid by alic") {
			t.Fatal(body)
		}
		w.turn(g, GateOptions{}, w.behind("near", names.Names{}), w.guarded("crm", other, y))
		fronttest.Eventually(t, "the other one to be asked", func() bool { return other.Sightings() > 0 })
		if status, body := call(); status != 404 {
			t.Errorf("%s: the session goes on: %d %s", y.name, status, body)
		}
		other.Set(func() {
			if auths := slices.Collect(maps.Keys(other.Seen)); len(auths) != 1 || auths[0] != "" {
				t.Errorf("%s: the other one saw %q", y.name, auths)
			}
		})
		session = fronttest.SessionAs(t, url, "", y.with("tok-alic")...)
		in = append(y.with("tok-alic"), "Mcp-Session-Id", session)
		if _, body := call(); other.Runs() != 1 || !strings.Contains(body, "paid by alic") {
			t.Errorf("%s: a new session: %s", y.name, body)
		}
		// And back to none, of which the session has no need.
		w.turn(g, GateOptions{}, w.behind("near", names.Names{}))
		if status, body := call(); status != 404 {
			t.Errorf("%s: a session with a token that nobody takes: %d %s", y.name, status, body)
		}
	}
}

// TestObservedCallWithAToken: the token passes and is written nowhere, users are kept apart, and a call that was refused
// for its token counts as not sent.
func TestObservedCallWithAToken(t *testing.T) {
	const alice = "tok-1f6e0c-alice"
	for _, y := range ways {
		crm := fronttest.Guard(t, alice)
		w := newWorld(t)
		w.opts.Observe = func(mcpfront.Would) {}
		_, url := w.door(y, w.gateTo(names.Lists{}, w.guarded("crm", crm, y)))
		_, body, _ := fronttest.CallAs(t, url, "crm__charge", "", `{"a":1}`, "", y.with(alice)...)
		fronttest.Has(t, body, "paid by lice")
		status, body, _ := fronttest.CallAs(t, url, "crm__charge", "", `{"a":2}`, "", y.with("tok-expired")...)
		if want := map[bool]int{true: 401, false: 200}[y.passes()]; status != want {
			t.Errorf("%s: %d %s", y.name, status, body)
		}
		w.WantObserved("charge COMPLETED yes", "charge FAILED yes")
		if err := w.DB.Close(); err != nil {
			t.Fatal(err)
		}
		fronttest.SearchFor(t, w.Dir, alice, "tok-expired")
	}
}
