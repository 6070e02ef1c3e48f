package gateway

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/wait"
)

// turn changes the tool servers of a gate.
func (w *world) turn(g *Gate, o GateOptions, all ...Behind) {
	w.T.Helper()
	c, err := g.Prepare(all, o)
	if err != nil {
		w.T.Fatal(err)
	}
	c.Stricter()
	c.Make()
}

// pid is the process of a tool server, 0 if it has none yet.
func (w *world) pid(server string) (pid int) {
	if raw, err := os.ReadFile(filepath.Join(filepath.Dir(w.JournalOf(server)), "server.pid")); err == nil {
		_, _ = fmt.Sscan(string(raw), &pid)
	}
	return pid
}

// hears reads the client's messages until one has the words. It keeps answers for later.
func (h *shim) hears(words string) {
	h.T.Helper()
	for i, line := range h.Said {
		if strings.Contains(line, words) {
			h.Said = append(h.Said[:i:i], h.Said[i+1:]...)
			return
		}
	}
	for {
		line := h.ReadLine()
		if strings.Contains(line, words) {
			return
		}
		h.Said = append(h.Said, line)
	}
}

// TestCallEndsWhereItIs: if a tool server is removed while it has a call, the call ends there, and then the tool server
// ends. It gets no new request meanwhile. A tool server that stays keeps its process, and the client hears of the change.
func TestCallEndsWhereItIs(t *testing.T) {
	w := newWorld(t)
	a, b := w.behind("a", names.Names{}), w.behind("b", names.Names{})
	g := w.gateTo(names.Lists{}, a, b)
	h := w.wire(g.Stdio)
	h.Greet()
	fronttest.Has(t, h.Ask("1", "tools/list", `{}`), "a__charge", "b__charge")
	pids := [2]int{w.pid("a"), w.pid("b")}
	over := filepath.Join(w.Dir, "over")
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a__charge","arguments":{"wait":%q}}}`, over))
	fronttest.Eventually(t, "the call to be there", func() bool { return len(fronttest.JournalOf(t, w.JournalOf("a"))) == 1 })
	w.turn(g, GateOptions{}, b, w.behind("c", names.Names{}))
	h.hears(say.ToolsChanged)
	list := h.Ask("3", "tools/list", `{}`)
	fronttest.Has(t, list, "b__charge", "c__charge")
	fronttest.Lacks(t, list, "a__")
	fronttest.Has(t, h.Call("4", "a__charge", `{"n":1}`), "NOT_FOUND")
	fronttest.Has(t, h.Call("5", "b__charge", `{"n":2}`), `"text":"ok"`)
	fronttest.Has(t, h.Call("6", "c__charge", `{"n":3}`), `"text":"ok"`)
	if w.pid("b") != pids[1] || syscall.Kill(pids[0], 0) != nil {
		t.Error("the tool server that stays is another process, or the one with the call is gone")
	}
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Answer("2"), `"text":"ok"`)
	fronttest.Eventually(t, "the tool server to end", func() bool { return syscall.Kill(pids[0], 0) != nil })
	if err := a.Shim.Retire(t.Context()); err != nil {
		t.Error(err)
	}
	for server, want := range map[string]int{"a": 1, "b": 1, "c": 1} {
		if n := len(fronttest.JournalOf(t, w.JournalOf(server))); n != want {
			t.Errorf("%s has %d effects, want %d", server, n, want)
		}
	}
	if a.Shim.Conversations() != 0 || b.Shim.Conversations() != 1 {
		t.Errorf("%d and %d conversations", a.Shim.Conversations(), b.Shim.Conversations())
	}
}

// TestNothingIsBegunWhereNobodyStays: a request whose tool server is removed just then goes where its name leads now. A
// list that was requested before does not make the removed tool server the owner of a resource.
func TestNothingIsBegunWhereNobodyStays(t *testing.T) {
	w := newWorld(t)
	w.give("a", `{"uri":"a:1"}`, "")
	first := w.behind("a", names.Names{})
	g := w.gateTo(names.Lists{}, first)
	h := w.wire(g.Stdio)
	h.Greet()
	fronttest.Has(t, h.Ask("1", "resources/list", `{}`), `"a:1"`)
	var f *fan
	for f = range g.fans {
	}
	was := f.now().with(first.Shim)
	next := w.behind("a", names.Names{})
	w.turn(g, GateOptions{}, next)
	now := f.now().with(next.Shim)
	if got := f.enter(frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":9,"method":"tools/call"}`)), was.member); got != isMoved || len(f.asked) != 0 {
		t.Errorf("a request is begun there: %v", got)
	}
	if of := f.first("a:1"); of != now.member {
		t.Error("a resource is not the next one's")
	}
	f.claim("a:2", was.member)
	if of := f.first("a:2"); of != now.member {
		t.Error("a resource is of a tool server that is no more")
	}
	fronttest.Has(t, h.Ask("2", "resources/read", `{"uri":"a:2"}`), `"by":"a"`)
}

// TestRetiredShimWaits: a retired shim is not closed while a conversation has a call or a delivery is not noted.
func TestRetiredShimWaits(t *testing.T) {
	w := newWorld(t)
	a := w.behind("a", names.Names{})
	c, err := a.Shim.Sit(seat{}, entry.Whose{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	bounded, cancel := context.WithTimeout(t.Context(), 3*wait.Look)
	defer cancel()
	began := time.Now()
	if err := a.Shim.Retire(bounded); err != nil || time.Since(began) < 2*wait.Look {
		t.Errorf("it was closed after %v: %v", time.Since(began), err)
	}
}

// TestChangesUnderLoadLoseNoCall: clients call while the tool servers of their gate are changed again and again. Each
// call has its answer and one effect, and at the end no process of a removed tool server is left.
func TestChangesUnderLoadLoseNoCall(t *testing.T) {
	w := newWorld(t)
	stays := w.behind("b", names.Names{})
	a := w.behind("a", names.Names{})
	g := w.gateTo(names.Lists{}, a, stays)
	const clients, calls, changes = 2, 12, 4
	var all sync.WaitGroup
	for c := range clients {
		h := w.wire(g.Stdio)
		h.Greet()
		all.Go(func() {
			for i := range calls {
				for _, server := range []string{"a", "b"} {
					id := fmt.Sprintf(`"%d-%d-%s"`, c, i, server)
					if got := h.Call(id, server+"__charge", fmt.Sprintf(`{"n":%d}`, 100*c+i)); !strings.Contains(got, `"text":"ok"`) {
						t.Errorf("%s: %s", id, got)
					}
				}
			}
		})
	}
	gone := map[*mcpfront.Shim]bool{}
	for range changes {
		time.Sleep(10 * time.Millisecond)
		gone[a.Shim] = true
		a = w.behind("a", names.Names{})
		w.turn(g, GateOptions{}, stays, a)
	}
	all.Wait()
	for _, server := range []string{"a", "b"} {
		seen := map[string]int{}
		for _, e := range fronttest.JournalOf(t, w.JournalOf(server)) {
			seen[e.Args]++
		}
		if len(seen) != clients*calls {
			t.Errorf("%s has %d calls, want %d", server, len(seen), clients*calls)
		}
		for args, n := range seen {
			if n != 1 {
				t.Errorf("%s: %s ran %d times", server, args, n)
			}
		}
	}
	for s := range gone {
		fronttest.Eventually(t, "the conversations of a tool server that is no more to end", func() bool { return s.Conversations() == 0 })
	}
}

// TestStricterOfBothHolds: while a change is being made, a call that the new rules refuse is refused, and a call that
// only the new rules allow is not allowed yet. After a dropped change all old rules hold.
func TestStricterOfBothHolds(t *testing.T) {
	w := newWorld(t)
	before := names.Lists{Deny: []string{"a__look"}}
	after := names.Lists{Deny: []string{"a__charge"}}
	b := w.behind("a", names.Names{})
	g := w.gateTo(before, b)
	h := w.wire(g.Stdio)
	h.Greet()
	n := 0
	is := func(when string, want map[string]string) {
		t.Helper()
		for tool, answer := range want {
			n++
			if got := h.Call(fmt.Sprint(n), "a__"+tool, fmt.Sprintf(`{"n":%d}`, n)); !strings.Contains(got, answer) {
				t.Errorf("%s, %s: %s", when, tool, got)
			}
		}
	}
	const yes, no = `"text":"ok"`, "POLICY_VIOLATION"
	old, both, new := map[string]string{"charge": yes, "look": no}, map[string]string{"charge": no, "look": no}, map[string]string{"charge": no, "look": yes}
	is("before", old)
	c, err := g.Prepare([]Behind{b}, GateOptions{Lists: after})
	if err != nil {
		t.Fatal(err)
	}
	is("prepared", old)
	c.Stricter()
	is("half-way", both)
	c.Drop()
	is("dropped", old)
	if _, err := g.Prepare([]Behind{b, w.behind("b", names.Names{Prefix: b.Names.Prefix})}, GateOptions{Lists: after}); err == nil {
		t.Error("two servers with the same names were taken")
	}
	is("refused", old)
	w.turn(g, GateOptions{Lists: after}, b)
	h.hears(say.ToolsChanged)
	is("changed", new)
	w.turn(g, GateOptions{Lists: after, Quotas: []Quota{{Calls: 1000, Per: time.Hour}}}, b)
	fronttest.Has(t, h.Ask("0", "tools/list", `{}`), "a__look")
	for _, line := range h.Said {
		if strings.Contains(line, say.ToolsChanged) {
			t.Error("the list is said to be another one, where only a quota is")
		}
	}
}

// TestDroppedChangeLeavesNothing: a change for which there is no slot, or that is dropped, leaves no conversation and no
// process.
func TestDroppedChangeLeavesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.behind("a", names.Names{})
	g := w.gateTo(names.Lists{}, a)
	h := w.wire(g.Stdio)
	h.Greet()
	nowhere := filepath.Join(w.Dir, "nowhere")
	b, bad := w.behind("b", names.Names{}), w.behind("c", names.Names{}, func(o *mcpfront.Options) { o.State = nowhere })
	if err := os.RemoveAll(nowhere); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Prepare([]Behind{a, b, bad}, GateOptions{}); err == nil {
		t.Fatal("there was a place")
	}
	c, err := g.Prepare([]Behind{b}, GateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Drop()
	if b.Shim.Conversations() != 0 || w.pid("b") != 0 || a.Shim.Conversations() != 1 {
		t.Errorf("conversations %d and %d, process %d", b.Shim.Conversations(), a.Shim.Conversations(), w.pid("b"))
	}
	fronttest.Has(t, h.Call("1", "a__charge", `{"n":1}`), `"text":"ok"`)
}

// TestQuotaIsNotGivenOnceMore: a client that has used up its quota does not get it again by a reload. With a higher quota
// it gets the difference, in time.
func TestQuotaIsNotGivenOnceMore(t *testing.T) {
	w := newWorld(t)
	b := w.behind("a", names.Names{})
	g, err := NewGate([]Behind{b}, GateOptions{Quotas: []Quota{{Calls: 2, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	over := func(at time.Duration) bool {
		after, _ := g.now.Load().over("a__charge", now.Add(at))
		return after > 0
	}
	for i := range 3 {
		if over(0) != (i == 2) {
			t.Fatal("the quota is none")
		}
	}
	w.turn(g, GateOptions{Quotas: []Quota{{Calls: 2, Per: time.Hour}}}, b)
	if !over(0) {
		t.Error("the same quota is given again")
	}
	w.turn(g, GateOptions{Quotas: []Quota{{Tool: "x", Calls: 1, Per: time.Hour}, {Calls: 60, Per: time.Hour}}}, b)
	if !over(time.Second) || over(2*time.Minute) {
		t.Error("a higher quota is given at once, or never")
	}
	w.turn(g, GateOptions{}, b)
	if over(2 * time.Minute) {
		t.Error("no quota is one")
	}
}

// TestStreamGoesOverToTheNext: a client's stream continues with the new tool server, is told that the lists may have
// changed, and does not end in between.
func TestStreamGoesOverToTheNext(t *testing.T) {
	w := newWorld(t)
	first := w.behind("a", names.Names{})
	g := w.gateTo(names.Lists{}, first)
	h := w.wire(g.Stdio)
	h.Write(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":` + fronttest.ModernMeta + `}}`)
	h.hears("acknowledged")
	next := w.behind("a", names.Names{})
	w.turn(g, GateOptions{}, next)
	h.hears(say.ToolsChanged)
	fronttest.Eventually(t, "the first to be over", func() bool { return first.Shim.Conversations() == 0 })
	h.Said = nil
	fronttest.Has(t, h.Ask("1", "tools/call", `{"name":"a__grow","arguments":{},"_meta":`+fronttest.ModernMeta+`}`), `"text":"ok"`)
	told := strings.Join(h.Said, "\n")
	fronttest.Has(t, told, say.ToolsChanged, `"io.modelcontextprotocol/subscriptionId":"s"`)
	fronttest.Lacks(t, told, `"id":"s"`, `"resultType":"complete"`)
}

// TestResourceThatIsNotTheClientsAnyMore: such a resource is not read and not listed, and a client that subscribed to it
// gets no notification of it.
func TestResourceThatIsNotTheClientsAnyMore(t *testing.T) {
	w := newWorld(t)
	w.give("a", `{"uri":"a:1"},{"uri":"b:1"}`, "")
	b := w.behind("a", names.Names{})
	g := w.gateTo(names.Lists{}, with(b, "a:*", "b:*"))
	h := w.wire(g.Stdio)
	modernly := func(id, method, members string) string {
		body, _ := fronttest.Modern(id, method, members)
		h.Write(body)
		return h.Answer(id)
	}
	fronttest.Has(t, modernly("1", "resources/list", ""), `"a:1"`, `"b:1"`)
	body, _ := fronttest.Modern(`"s"`, "subscriptions/listen", `"notifications":{"resourcesListChanged":true,"resourceSubscriptions":["a:1","b:1"]}`)
	h.Write(body)
	h.hears("acknowledged")
	grows := func(id, uri string) { modernly(id, "tools/call", `"name":"a__grow","arguments":{"uri":"`+uri+`"}`) }
	grows("2", "b:1")
	fronttest.Has(t, strings.Join(h.Said, "\n"), `"uri":"b:1"`)
	w.turn(g, GateOptions{}, with(b, "a:*"))
	h.hears(resourcesChanged)
	list := modernly("3", "resources/list", "")
	fronttest.Has(t, list, `"a:1"`)
	fronttest.Lacks(t, list, `"b:1"`)
	fronttest.Has(t, modernly("4", "resources/read", `"uri":"b:1"`), "NOT_FOUND")
	h.Said = nil
	grows("5", "b:1")
	grows("6", "a:1")
	told := strings.Join(h.Said, "\n")
	fronttest.Has(t, told, `"uri":"a:1"`)
	fronttest.Lacks(t, told, `"uri":"b:1"`)
}

// TestChangesOverHTTP: the calls of several sessions go on while a tool server comes and goes, and each has one effect.
func TestChangesOverHTTP(t *testing.T) {
	w := newWorld(t)
	a, b := w.behind("a", names.Names{}), w.behind("b", names.Names{})
	g := w.gateTo(names.Lists{}, a)
	url := w.Door((&Door{Gates: map[string]*Gate{"": g}, Who: func(string, *x509.Certificate) string { return "" }}).lobby)
	const sessions, calls = 2, 8
	var all sync.WaitGroup
	for s := range sessions {
		session := openSession(t, url, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		all.Go(func() {
			for i := range calls {
				_, got, err := fronttest.TryPost(url, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a__charge","arguments":{"n":%d}}}`, i+1, 100*s+i), "Mcp-Session-Id", session)
				if err != nil || !strings.Contains(got, `"text":"ok"`) {
					t.Errorf("%d of %d: %s %v", i, s, got, err)
				}
			}
		})
	}
	for i := range 6 {
		time.Sleep(5 * time.Millisecond)
		if i%2 == 0 {
			w.turn(g, GateOptions{}, a, b)
		} else {
			w.turn(g, GateOptions{}, a)
			b = w.behind("b", names.Names{})
		}
	}
	all.Wait()
	if n := len(fronttest.JournalOf(t, w.JournalOf("a"))); n != sessions*calls {
		t.Errorf("%d effects of %d calls", n, sessions*calls)
	}
}

// TestDoorIsForOthers: a client whose identity is removed is not let in any more, its stream ends at once, and its call
// under way ends with its answer. A client with another key of an identity that stays goes on in its session.
func TestDoorIsForOthers(t *testing.T) {
	w := newWorld(t)
	gate := func(name string) *Gate {
		return w.gateTo(names.Lists{}, w.behind(name, names.Names{}, func(o *mcpfront.Options) { o.Namespace, o.KeySpace = name, name }))
	}
	keys := func(all map[string]string) func(string, *x509.Certificate) string {
		return func(said string, _ *x509.Certificate) string { return all[strings.TrimPrefix(said, "Bearer ")] }
	}
	ann, bob := gate("ann"), gate("bob")
	d := &Door{Gates: map[string]*Gate{"ann": ann, "bob": bob}, Who: keys(map[string]string{"k1": "ann", "k2": "bob"})}
	url := w.Door(d.lobby)
	as := func(key string, more ...string) []string { return append(more, "Authorization", "Bearer "+key) }
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	sessions := map[string]string{"k1": openSession(t, url, hello, as("k1")...), "k2": openSession(t, url, hello, as("k2")...)}
	call := func(key, session, tool, args string) (int, string) {
		return fronttest.Post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args), as(key, "Mcp-Session-Id", session)...)
	}
	for key, tool := range map[string]string{"k1": "ann__charge", "k2": "bob__charge"} {
		if _, got := call(key, sessions[key], tool, `{"n":0}`); !strings.Contains(got, `"text":"ok"`) {
			t.Fatal(got)
		}
	}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req = req.WithContext(bounded)
	req.Header.Set("Authorization", "Bearer k2")
	req.Header.Set("Mcp-Session-Id", sessions["k2"])
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	over := filepath.Join(w.Dir, "over")
	under := make(chan string, 1)
	go func() {
		_, got, err := fronttest.TryPost(url, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bob__charge","arguments":{"wait":%q}}}`, over), as("k2", "Mcp-Session-Id", sessions["k2"])...)
		under <- fmt.Sprint(got, err)
	}()
	fronttest.Eventually(t, "the call to be there", func() bool { return len(fronttest.JournalOf(t, w.JournalOf("bob"))) == 2 })
	d.Take(keys(map[string]string{"k3": "ann", "k4": "eve"}), false, map[string]*Gate{"ann": ann, "eve": gate("eve")})
	if _, err := bufio.NewReader(stream.Body).ReadString(0); err == nil || time.Since(began) > 9*time.Second {
		t.Errorf("the stream goes on after %v: %v", time.Since(began), err)
	}
	for _, key := range []string{"k1", "k2"} {
		if status, got := call(key, sessions[key], "x", `{}`); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", key, status, got)
		}
	}
	if _, got := call("k3", sessions["k1"], "ann__charge", `{"n":1}`); !strings.Contains(got, `"text":"ok"`) {
		t.Errorf("another key of the same identity: %s", got)
	}
	if session := openSession(t, url, hello, as("k4")...); session == "" {
		t.Error("a new identity is not let in")
	}
	pid := w.pid("bob")
	if syscall.Kill(pid, 0) != nil {
		t.Error("the tool server with the call is gone")
	}
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-under; !strings.Contains(got, `"text":"ok"`) {
		t.Errorf("the call that was under way: %s", got)
	}
	fronttest.Eventually(t, "the tool server to end", func() bool { return syscall.Kill(pid, 0) != nil })
}
