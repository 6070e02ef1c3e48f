package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// behind makes a tool server of a gateway: a process with a journal of its own, unless change changes
// that.
func (w *world) behind(server string, n names.Names, change ...func(*mcpfront.Options)) Behind {
	w.T.Helper()
	o := w.options()
	o.Server, o.Env = server, []string{fronttest.EnvFake + "=" + w.JournalOf(server)}
	for _, f := range change {
		f(&o)
	}
	s, err := mcpfront.New(o)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = s.Close() }) // a gate may have closed it already
	if n.Prefix == "" {
		n.Prefix = names.Default(server)
	}
	return Behind{Shim: s, Names: n, Resources: names.Resources{"*"}}
}

func (w *world) gateTo(lists names.Lists, all ...Behind) *Gate {
	w.T.Helper()
	g, err := NewGate(all, GateOptions{Lists: lists, Logger: w.opts.Logger})
	if err != nil {
		w.T.Fatal(err)
	}
	return g
}

func (w *world) gated(all ...Behind) *shim {
	w.T.Helper()
	return w.wire(w.gateTo(names.Lists{}, all...).Stdio)
}

// TestGatewayLeadsToItsServers: one server is a process, the other is reached over HTTP. Each call
// is in the log with its server's own name for the tool, runs only there, and its answer comes byte
// for byte.
func TestGatewayLeadsToItsServers(t *testing.T) {
	far := newWorld(t)
	far.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Ungoverned: true} }
	url := far.listening()
	w := newWorld(t)
	h := w.gated(
		w.behind("near", names.Names{Rename: map[string]string{"charge": "pay"}}),
		w.behind("far", names.Names{Lists: names.Lists{Deny: []string{"lo*"}}}, func(o *mcpfront.Options) { o.Command, o.URL = nil, url }),
	)
	fronttest.Has(t, h.Greet(), `"protocolVersion":"2025-11-25"`, `"listChanged":true`)
	list := h.Ask("1", "tools/list", "{}")
	var seen []string
	for i := range 9 {
		if name := mcpraw.ScalarText(mcpraw.At([]byte(list), fmt.Sprintf("/result/tools/%d/name", i))); name != "" {
			seen = append(seen, name)
		}
	}
	if got := strings.Join(seen, " "); got != "pay near__look far__charge" {
		t.Errorf("listed: %s\n%s", got, list)
	}
	got := h.Call("2", "pay", `{"n":1}`, `{"dev.tgad/idempotencyKey":"k"}`)
	if want := `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"ok"}],"structuredContent":{"args":{"n":1},"big":9007199254740993,"one":1.0}}}`; got != want {
		t.Errorf("answer %s\nwant   %s", got, want)
	}
	fronttest.Has(t, h.Call("3", "pay", `{"n":1}`, `{"dev.tgad/idempotencyKey":"k"}`), `"dev.tgad/replayed":true`)
	fronttest.Lacks(t, h.Call("4", "far__charge", `{"n":1}`, `{"dev.tgad/idempotencyKey":"k"}`), "replayed", "error")
	near := fronttest.JournalOf(t, w.JournalOf("near"))
	if len(near) != 1 || near[0].Tool != "charge" || near[0].Key != "k" || len(far.Effects()) != 1 {
		t.Errorf("near %+v, far %+v", near, far.Effects())
	}
	// A denied, renamed or unknown name is refused before anything is written.
	before := w.DB.Stats().Entries
	for tool, code := range map[string]tga.Code{"far__look": tga.PolicyViolation, "near__charge": tga.NotFound, "charge": tga.NotFound, "other__x": tga.NotFound, "near__": tga.NotFound} {
		fronttest.Has(t, h.Call("5", tool, "{}"), `"code":-32602`, string(code))
	}
	if after := w.DB.Stats().Entries; after != before {
		t.Errorf("%d entries of refused calls", after-before)
	}
	for _, ask := range []struct{ method, params, want string }{
		{"ping", "{}", `"result":{}`},
		{"tasks/get", `{"taskId":"x"}`, `"code":-32602`},
		{"tasks/list", `{}`, `"result":{"tasks":[]}`},
		{"tasks/other", `{"taskId":"x"}`, `"code":-32601`},
		{"resources/read", `{"uri":"x:y"}`, "none lists it"},
		{"subscriptions/listen", `{}`, `"code":-32602`},
		{"subscriptions/listen", `{"notifications":[]}`, `"code":-32602`},
		{"tools/list", `{"cursor":"2"}`, `"code":-32602`},
		{"prompts/list", `{}`, `"result":{"prompts":[]}`},
		{"prompts/get", `{"name":"near__p"}`, `"code":-32601`}, // the server refuses it
		{"initialize", `{}`, "has begun already"},
	} {
		fronttest.Has(t, h.Ask("6", ask.method, ask.params), ask.want)
	}
	h.Write(`[{"jsonrpc":"2.0","id":7,"method":"ping"}]`)
	fronttest.Has(t, h.ReadLine(), `"id":null`, "no arrays")
}

// TestCallWithoutAName: the refusal says that the name is missing, not that the tool is unknown.
func TestCallWithoutAName(t *testing.T) {
	w := newWorld(t)
	h := w.gated(w.behind("a", names.Names{}))
	h.Greet()
	for i, c := range [][3]string{
		{"tools/call", "", "/name"}, {"tools/call", `,"params":{}`, "/name"}, {"tools/call", `,"params":[1]`, "/name"}, {"tools/call", `,"params":{"name":7}`, "/name"},
		{"tools/call", `,"params":{"name":"a__charge","name":"a__look","arguments":{}}`, "/name"}, {"prompts/get", `,"params":{"name":7}`, "/name"},
		{"completion/complete", `,"params":{"ref":{"type":"ref/prompt","name":7}}`, "/name"},
		{"completion/complete", `,"params":{"ref":{"type":"ref/resource","uri":7}}`, "/ref/uri"}, {"resources/read", `,"params":{"uri":7}`, "/uri"}, {"resources/read", `,"params":{}`, "/uri"},
	} {
		id := strconv.Itoa(i + 1)
		h.Write(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + c[0] + `"` + c[1] + `}`)
		fronttest.Has(t, h.Answer(id), string(tga.NotFound), "/params"+c[2], "or none that can be read")
	}
}

// TestServerThatIsDownTakesNoOtherWithIt: the other server works, and when the first one has started
// the client is told.
func TestServerThatIsDownTakesNoOtherWithIt(t *testing.T) {
	w := newWorld(t)
	late := filepath.Join(w.Dir, "late")
	h := w.gated(
		w.behind("down", names.Names{}, func(o *mcpfront.Options) { o.Command = []string{late} }),
		w.behind("up", names.Names{}),
	)
	h.Greet()
	fronttest.Has(t, h.Ask("1", "tools/list", "{}"), `"up__charge"`)
	fronttest.Lacks(t, h.Ask("2", "tools/list", "{}"), "down__")
	fronttest.Has(t, h.Call("3", "down__charge", `{"n":1}`), "not sent")
	fronttest.Has(t, h.Call("4", "up__charge", `{"n":1}`), `"text":"ok"`)
	if err := os.Symlink(fronttest.FakeProgram(), late); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(h.ReadLine(), say.ToolsChanged) {
	}
	fronttest.Has(t, h.Ask("5", "tools/list", "{}"), `"down__charge"`, `"up__charge"`)
	fronttest.Has(t, h.Call("6", "down__charge", `{"n":1}`), `"text":"ok"`)
	if n := len(fronttest.JournalOf(t, w.JournalOf("down"))); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestServerThatDiesTakesNoOtherWithIt: the call of the server that dies is in doubt, the call of
// the other is not.
func TestServerThatDiesTakesNoOtherWithIt(t *testing.T) {
	w := newWorld(t)
	h := w.gated(w.behind("a", names.Names{}), w.behind("b", names.Names{}))
	h.Greet()
	gate := filepath.Join(w.Dir, "gate")
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__charge","arguments":{"wait":%q}}}`, gate))
	fronttest.Eventually(t, "the call to run", func() bool { return len(fronttest.JournalOf(t, w.JournalOf("b"))) == 1 })
	fronttest.Has(t, h.Call("2", "a__charge", `{"die":"answer"}`), "OUTCOME UNKNOWN")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Answer("1"), `"text":"ok"`)
	fronttest.Has(t, h.Call("3", "a__charge", `{"n":2}`), `"text":"ok"`)
}

// TestQuestionsOfSeveralServers: two servers ask with the same id, and each gets its own answer.
func TestQuestionsOfSeveralServers(t *testing.T) {
	w := newWorld(t)
	h := w.gated(w.behind("a", names.Names{}), w.behind("b", names.Names{}))
	h.Greet()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"a__ask"}}`)
	first := h.ReadLine()
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"b__ask"}}`)
	second := h.ReadLine()
	fronttest.Has(t, first, "sampling/createMessage", `"n":9007199254740993`)
	ids := [2]string{string(mcpraw.At([]byte(first), "/id")), string(mcpraw.At([]byte(second), "/id"))}
	if ids[0] == ids[1] || ids[0] == `"q1"` {
		t.Fatalf("ids %v", ids)
	}
	h.Write(`{"jsonrpc":"2.0","id":` + ids[1] + `,"result":{"for":"b"}}`)
	h.Write(`{"jsonrpc":"2.0","id":` + ids[1] + `,"result":{"for":"nobody"}}`)
	fronttest.Has(t, h.Answer("2"), `"heard":{"for":"b"}`)
	h.Write(`{"jsonrpc":"2.0","id":` + ids[0] + `,"result":{"for":"a"}}`)
	fronttest.Has(t, h.Answer("1"), `"heard":{"for":"a"}`)
}

// TestNextCallOfAnotherServerWaitsForTheNote: a client has the answer of one tool server and calls
// another. That call is not sent before the log has noted the delivery of the answer.
func TestNextCallOfAnotherServerWaitsForTheNote(t *testing.T) {
	w := newWorld(t)
	log := &fronttest.SlowNotes{Log: w.Local(), Asked: make(chan struct{}, 1), Take: make(chan struct{})}
	w.log = log
	h := w.gated(w.behind("a", names.Names{}), w.behind("b", names.Names{}))
	h.Greet()
	fronttest.Lacks(t, h.Call("1", "a__charge", `{"n":1}`), "error")
	<-log.Asked
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b__charge","arguments":{"n":2}}}`)
	fronttest.Eventually(t, "the second call's permit", func() bool { return log.Permits.Load() >= 2 })
	time.Sleep(20 * time.Millisecond) // a call that has its permit would be sent in this time
	if e := fronttest.JournalOf(t, w.JournalOf("b")); len(e) != 0 {
		t.Error("the call was sent before the earlier answer was noted")
	}
	close(log.Take)
	fronttest.Lacks(t, h.Answer("2"), "error")
}

// TestGatewayOverHTTP: clients with a session, and clients of the newest revision, which share one.
func TestGatewayOverHTTP(t *testing.T) {
	w := newWorld(t)
	url := w.Door(w.gateTo(names.Lists{Deny: []string{"b__look"}}, w.behind("a", names.Names{}), w.behind("b", names.Names{})).lobby)
	session := fronttest.Session2025(t, url)
	call := func(id, tool string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"n":%s}}}`, id, tool, id)
	}
	_, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, session...)
	fronttest.Has(t, got, "a__charge", "a__look", "b__charge")
	fronttest.Lacks(t, got, "b__look")
	_, got = fronttest.Post(t, url, call("2", "b__charge"), session...)
	fronttest.Has(t, got, `"text":"ok"`)
	_, got = fronttest.Post(t, url, call("2", "b__look"), session...)
	fronttest.Has(t, got, string(tga.PolicyViolation))
	body, header := fronttest.Modern("3", "tools/list", "")
	_, got = fronttest.Post(t, url, body, header...)
	fronttest.Has(t, got, "a__charge", "b__charge", `"resultType":"complete"`, `"id":3`)
	body, header = fronttest.Modern("3", "tools/call", `"name":"a__charge","arguments":{"n":3}`, "Mcp-Name", "a__charge")
	_, got = fronttest.Post(t, url, body, header...)
	fronttest.Has(t, got, `"text":"ok"`, `"id":3`)
	body, header = fronttest.Modern("3", "tools/call", `"name":"a__charge","arguments":{"n":3}`, "Mcp-Name", "charge")
	if status, got := fronttest.Post(t, url, body, header...); status != 400 {
		t.Errorf("a header that is another name: %d %s", status, got)
	}
	if a, b := len(fronttest.JournalOf(t, w.JournalOf("a"))), len(fronttest.JournalOf(t, w.JournalOf("b"))); a != 1 || b != 1 {
		t.Errorf("%d effects of a, %d of b", a, b)
	}
}

// runGate is a gateway with two tool servers: the command, and one over HTTP.
func runGate(ctx context.Context, dir string) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := os.WriteFile(filepath.Join(dir, "gate.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	c, stop, err := fronttest.ProcessLog(ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	k := fronttest.NewKiller(dir)
	var all []Behind
	for _, o := range []mcpfront.Options{{Server: "fake", Command: os.Args[1:]}, {Server: "far", URL: os.Getenv(fronttest.EnvFar)}} {
		o.Log, o.State, o.Env, o.Stderr, o.Logger = k.Log(c), filepath.Join(dir, "state"), []string{fronttest.EnvProcess + "="}, os.Stderr, log
		s, err := mcpfront.New(o)
		if err != nil {
			return err
		}
		defer s.Close()
		all = append(all, Behind{Shim: s, Names: names.Names{Prefix: names.Default(o.Server)}})
	}
	secret, err := subject.ReadSecret(filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	g, err := NewGate(all, GateOptions{Logger: log, Tasks: names.Tasks{Seal: func(text string) string { return secret.Seal(SealOfTasks, text) }}})
	if err != nil {
		return err
	}
	return g.Stdio(ctx, k.Reader(os.Stdin), k.Writer(os.Stdout))
}

// TestKilledGatewaySendsNothingTwice kills a gateway with SIGKILL at every point of a call, to a
// tool server that is a process and to one over HTTP. The client starts the gateway again and
// repeats the call. The journals of the tool servers show the number of effects.
func TestKilledGatewaySendsNothingTwice(t *testing.T) {
	for i, point := range fronttest.KillPoints {
		servers := []string{"fake", "far"}
		if !fronttest.EveryKill() {
			servers = servers[i%2:][:1]
		}
		for _, server := range servers {
			far := newWorld(t)
			far.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Ungoverned: true} }
			r := fronttest.NewRig(t, true)
			r.Verb, r.Far, r.Victim = "gate", far.listening(), point+": gate"
			r.Call("fake__charge", `{"warm":1}`)
			r.Call("far__charge", `{"warm":2}`)
			const args = `{"killed":true}`
			answer, tries := r.Call(server+"__kill", args)
			fronttest.Eventually(t, "the kill: "+point, func() bool {
				_, err := os.Stat(filepath.Join(r.Dir, "killed"))
				return err == nil
			})
			if tries < 2 && point != "delivered" {
				t.Errorf("%s, %s: the client has its answer of a gateway that was killed", point, server)
			}
			effects := map[string]int{}
			for _, e := range append(fronttest.JournalOf(t, r.Journal), far.Effects()...) {
				effects[e.Args]++
			}
			if n := effects[args]; n > 1 || n == 0 && !strings.Contains(answer, "OUTCOME UNKNOWN") {
				t.Errorf("%s, %s: %d effects: %s", point, server, n, answer)
			}
			if len(effects) != 2+effects[args] || effects[`{"warm":1}`] != 1 || effects[`{"warm":2}`] != 1 {
				t.Errorf("%s, %s: effects %v", point, server, effects)
			}
			r.Drop()
		}
	}
}

// TestIdentitiesAreApart: the same key of two identities is two calls, a client reaches only sessions
// of its own identity, and a client without an identity is not let in.
func TestIdentitiesAreApart(t *testing.T) {
	w := newWorld(t)
	d := &Door{Gates: map[string]*Gate{}, Who: func(said string, _ *x509.Certificate) string { return strings.TrimPrefix(said, "Bearer ") }}
	for _, name := range []string{"ann", "bob"} {
		d.Gates[name] = w.gateTo(names.Lists{}, w.behind("a", names.Names{}, func(o *mcpfront.Options) { o.Namespace, o.KeySpace = name, name }))
	}
	var strangers atomic.Int32
	d.Watch.Refused = func(why Refusal) {
		if why == RefusedIdentity {
			strangers.Add(1)
		}
	}
	url := w.Door(d.lobby)
	as := func(name string) []string { return []string{"Authorization", "Bearer " + name} }
	call := func(name string, more ...string) (int, string) {
		body, header := fronttest.Modern("1", "tools/call", `"name":"a__charge","arguments":{"n":1}`, "Mcp-Name", "a__charge")
		body = strings.Replace(body, `"_meta":{`, `"_meta":{"dev.tgad/idempotencyKey":"k",`, 1)
		return fronttest.Post(t, url, body, append(append(header, as(name)...), more...)...)
	}
	for _, name := range []string{"ann", "bob"} {
		_, got := call(name)
		fronttest.Has(t, got, `"text":"ok"`)
		fronttest.Lacks(t, got, "replayed")
	}
	_, got := call("ann")
	fronttest.Has(t, got, `"dev.tgad/replayed":true`)
	// The tool server gets two different keys, because it may itself deduplicate by the key.
	if e := fronttest.JournalOf(t, w.JournalOf("a")); len(e) != 2 || e[0].Key != "ann:k" || e[1].Key != "bob:k" {
		t.Errorf("effects of two identities' calls under one key: %+v", e)
	}
	before := w.DB.Stats().Entries
	for _, c := range [][]string{nil, as("eve"), as(""), append(as("ann"), as("bob")...)} {
		if status, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, c...); status != 401 {
			t.Errorf("%v: %d %s", c, status, got)
		}
	}
	if n := strangers.Load(); n != 4 {
		t.Errorf("%d are counted that were not let in", n)
	}
	if after := w.DB.Stats().Entries; after != before {
		t.Errorf("%d entries of who was not let in", after-before)
	}
	req := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	session := openSession(t, url, req, as("ann")...)
	if status, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, append(as("ann"), "Mcp-Session-Id", session)...); status != 200 {
		t.Errorf("its own session: %d %s", status, got)
	}
	if status, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, append(as("bob"), "Mcp-Session-Id", session)...); status != 404 {
		t.Errorf("another identity's session: %d %s", status, got)
	}
}

// TestArrayIsRefusedOverHTTP: the refusal of an array has no id, and still reaches its POST.
func TestArrayIsRefusedOverHTTP(t *testing.T) {
	w := newWorld(t)
	g := w.gateTo(names.Lists{}, w.behind("a", names.Names{}))
	url := w.Door((&Door{Gates: map[string]*Gate{"ann": g}, Who: func(string, *x509.Certificate) string { return "ann" }}).lobby)
	session := openSession(t, url, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	for _, array := range []string{`[]`, `[1]`, `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a__charge"}}]`} {
		_, got := fronttest.Post(t, url, array, "Mcp-Session-Id", session)
		fronttest.Has(t, got, `"id":null`, `"code":-32600`, "no arrays of messages")
	}
	if e := fronttest.JournalOf(t, w.JournalOf("a")); len(e) != 0 {
		t.Errorf("effects: %+v", e)
	}
}

// openSession makes a handshake over HTTP and returns the session's id.
func openSession(t *testing.T, url, body string, header ...string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatalf("no session: %s", resp.Status)
	}
	return id
}
