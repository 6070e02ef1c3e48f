//go:build unix

package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
)

// give sets the resources, the templates and the capabilities that a server of a gateway lists.
func (w *world) give(server, resources, templates string) {
	w.T.Helper()
	journal := w.JournalOf(server)
	for name, text := range map[string]string{
		"resources": `{"resources":[` + resources + `]}`, "resources.templates": `{"resourceTemplates":[` + templates + `]}`,
		".capabilities": `"capabilities":{"tools":{},"resources":{"subscribe":true}}`,
	} {
		if err := os.WriteFile(journal+name, []byte(text), 0o600); err != nil {
			w.T.Fatal(err)
		}
	}
}

// with returns a server whose resources match patterns.
func with(b Behind, resources ...string) Behind {
	b.Resources = resources
	return b
}

// TestResourcesHaveTheirServers: a URI leads to the server whose patterns match it, and of several to the
// first that lists it or a template of it. A URI that matches no pattern is neither listed nor reachable.
func TestResourcesHaveTheirServers(t *testing.T) {
	w := newWorld(t)
	w.give("a", `{"uri":"x:1","n":1.0},{"uri":"both:1"},{"uri":"hidden:a"}`, `{"uriTemplate":"t:{name}"}`)
	w.give("b", `{"uri":"x:2"},{"uri":"both:1"},{"uri":"y:1"}`, `{"uriTemplate":"u:{name}/end"},{"uriTemplate":"hidden:{name}"}`)
	w.give("c", `{"uri":"x:3"}`, "")
	h := w.gated(
		with(w.behind("a", names.Names{}), "x:*", "both:*", "t:*", "u:*"),
		with(w.behind("b", names.Names{}), "x:*", "both:*", "y:*", "t:*", "u:*"),
		with(w.behind("c", names.Names{})),
	)
	fronttest.Has(t, h.Greet(), `"resources":{"listChanged":true,"subscribe":true}`)
	if got, want := h.Ask("1", "resources/list", `{}`), `{"jsonrpc":"2.0","id":1,"result":{"resources":[{"uri":"x:1","n":1.0},{"uri":"both:1"},{"uri":"x:2"},{"uri":"y:1"}]}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := h.Ask("2", "resources/templates/list", `{}`), `{"jsonrpc":"2.0","id":2,"result":{"resourceTemplates":[{"uriTemplate":"t:{name}"},{"uriTemplate":"u:{name}/end"}]}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for i, c := range []struct{ method, params, by string }{
		{"resources/read", `{"uri":"x:1"}`, "a"},
		{"resources/read", `{"uri":"x:2"}`, "b"},
		{"resources/read", `{"uri":"both:1"}`, "a"},
		{"resources/subscribe", `{"uri":"x:2"}`, "b"},
		{"resources/read", `{"uri":"y:1"}`, "b"},
		{"resources/read", `{"uri":"y:unlisted"}`, "b"}, // only b matches it
		{"resources/read", `{"uri":"t:x"}`, "a"},
		{"resources/read", `{"uri":"u:x/end"}`, "b"},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"u:{name}/end"},"argument":{"name":"name","value":""}}`, "b"},
		{"resources/read", `{"uri":"u:x"}`, ""},
		{"resources/read", `{"uri":"x:3"}`, ""},
		{"resources/read", `{"uri":"hidden:a"}`, ""},
		{"resources/read", `{"uri":"x:a/../b"}`, ""},
		{"resources/read", `{}`, ""},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"hidden:{name}"},"argument":{}}`, ""},
	} {
		got := h.Ask(fmt.Sprint(10+i), c.method, c.params)
		if c.by == "" {
			fronttest.Has(t, got, `"error"`, "NOT_FOUND")
		} else {
			fronttest.Has(t, got, fmt.Sprintf(`"result":{"by":%q,"params":%s}`, c.by, c.params))
		}
	}
}

// TestResourceStaysItsServers: a resource keeps its server, even if another server lists its URI later.
func TestResourceStaysItsServers(t *testing.T) {
	w := newWorld(t)
	w.give("a", "", "")
	w.give("b", `{"uri":"x:1"}`, "")
	h := w.gated(with(w.behind("a", names.Names{}), "*"), with(w.behind("b", names.Names{}), "*"))
	h.Greet()
	fronttest.Has(t, h.Ask("1", "resources/read", `{"uri":"x:1"}`), `"by":"b"`)
	w.give("a", `{"uri":"x:1","evil":true}`, "")
	fronttest.Lacks(t, h.Ask("2", "resources/list", `{}`), "evil")
	fronttest.Has(t, h.Ask("3", "resources/read", `{"uri":"x:1"}`), `"by":"b"`)
}

// TestResourcesOfAnIdentity: a client gets only the servers' resources that its identity may have.
func TestResourcesOfAnIdentity(t *testing.T) {
	w := newWorld(t)
	w.give("a", `{"uri":"x:ann/1"},{"uri":"x:bob/1"}`, `{"uriTemplate":"x:bob/{n}"},{"uriTemplate":"x:{who}/{n}"}`)
	b := with(w.behind("a", names.Names{}), "x:*")
	for _, c := range []struct {
		of   names.Resources
		list string
	}{
		{nil, `{"uri":"x:ann/1"},{"uri":"x:bob/1"}`}, {names.Resources{"x:ann/*"}, `{"uri":"x:ann/1"}`}, {names.Resources{}, ""},
	} {
		g, err := NewGate([]Behind{b}, GateOptions{Resources: c.of})
		if err != nil {
			t.Fatal(err)
		}
		h := w.wire(g.Stdio)
		h.Greet()
		if got := h.Ask("1", "resources/list", `{}`); !strings.Contains(got, `{"resources":[`+c.list+`]}`) {
			t.Errorf("%v: %s", c.of, got)
		}
		want, templates := `"error"`, `[{"uriTemplate":"x:{who}/{n}"}]`
		if c.of == nil {
			want, templates = `"result"`, `[{"uriTemplate":"x:bob/{n}"},{"uriTemplate":"x:{who}/{n}"}]`
		} else if len(c.of) == 0 {
			templates = "[]"
		}
		fronttest.Has(t, h.Ask("2", "resources/read", `{"uri":"x:bob/1"}`), want)
		fronttest.Has(t, h.Ask("3", "resources/templates/list", `{}`), templates)
		_ = h.Stop()
	}
}

const modernList = `{"notifications":{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["x:1","x:2","z:3"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`

// TestStreamOfSeveralServers: a client has one subscription, which is acknowledged once and first, and each
// server has a branch of it. A notification that the client did not ask for does not pass.
func TestStreamOfSeveralServers(t *testing.T) {
	w := newWorld(t)
	start := filepath.Join(w.Dir, "start")
	late := []string{"/bin/sh", "-c", `[ -e "$0" ] || exit 1; exec "$1"`, start, fronttest.FakeProgram()}
	h := w.gated(
		with(w.behind("a", names.Names{}), "x:1"),
		with(w.behind("b", names.Names{}), "x:2"),
		with(w.behind("c", names.Names{}, func(o *mcpfront.Options) { o.Command = late })),
	)
	h.Greet()
	h.Write(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":` + modernList + `}`)
	ack := h.ReadLine()
	fronttest.Has(t, ack, `"method":"notifications/subscriptions/acknowledged"`, `"io.modelcontextprotocol/subscriptionId":"s"`, `"toolsListChanged":true`, `"resourcesListChanged":true`, `"x:1"`, `"x:2"`)
	fronttest.Lacks(t, ack, "z:3", "prompts")
	fronttest.Has(t, h.Ask(`"s"`, "tools/list", `{}`), "a request of this id is under way")
	heard := func(id, tool, uri string) []string {
		t.Helper()
		h.Said = nil
		fronttest.Has(t, h.Call(id, tool, fmt.Sprintf(`{"uri":%q,"id":%s}`, uri, id)), `"text":"ok"`)
		for _, line := range h.Said {
			fronttest.Has(t, line, `"io.modelcontextprotocol/subscriptionId":"s"`)
		}
		return h.Said
	}
	if got := heard("1", "a__grow", "x:1"); len(got) != 3 || !strings.Contains(got[2], `"uri":"x:1"`) {
		t.Errorf("heard of a: %q", got)
	}
	if got := heard("2", "b__grow", "x:2"); len(got) != 3 {
		t.Errorf("heard of b: %q", got)
	}
	// A server that starts later is asked then. It gives no resources.
	h.Said = nil
	if err := os.WriteFile(start, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Eventually(t, "the third server", func() bool { return strings.Contains(h.Ask("3", "tools/list", `{}`), "c__charge") })
	all := h.Said
	fronttest.Eventually(t, "its part", func() bool { got := heard("4", "c__grow", "x:1"); all = append(all, got...); return len(got) == 1 })
	fronttest.Lacks(t, strings.Join(all, "\n"), "acknowledged") // the client was told once
	// After the client gave it up, no notification of it passes, and its id can be used again.
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`)
	h.Said = nil
	fronttest.Has(t, h.Call("5", "a__charge", `{"n":1}`), `"text":"ok"`)
	fronttest.Has(t, h.Ask("6", "tools/list", `{}`), "c__charge") // each server has answered something since
	if len(h.Said) != 0 {
		t.Errorf("heard after the end: %q", h.Said)
	}
	fronttest.Has(t, h.Ask(`"s"`, "ping", `{}`), `"result":{}`)
}

// TestStreamThatNobodyTakes: if all servers refuse a subscription, the client gets their error.
func TestStreamThatNobodyTakes(t *testing.T) {
	w := newWorld(t)
	refuses := []string{"/bin/sh", "-c", `while read l; do case "$l" in
*'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"n","version":"1"}}}\n' "$(printf %s "$l" | sed 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/')";;
*subscriptions/listen*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32099,"message":"full"}}\n' "$(printf %s "$l" | sed 's/.*"id":\("[^"]*"\|[0-9]*\),"method.*/\1/')";;
esac; done`}
	h := w.gated(w.behind("a", names.Names{}, func(o *mcpfront.Options) { o.Command = refuses }))
	h.Greet()
	fronttest.Has(t, h.Ask(`"s"`, "subscriptions/listen", modernList), `"error":{"code":-32099,"message":"full"}`)
	fronttest.Has(t, h.Ask(`"s"`, "ping", `{}`), `"result":{}`)
}

// TestStreamPromisesWhatWasAskedFor: if a server grants other resources, they are not promised to the client.
func TestStreamPromisesWhatWasAskedFor(t *testing.T) {
	w := newWorld(t)
	more := []string{"/bin/sh", "-c", `while read l; do id=$(printf %s "$l" | sed 's/.*"id":\("[^"]*"\|[0-9]*\),"method.*/\1/'); case "$l" in
*'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"n","version":"1"}}}\n' "$(printf %s "$l" | sed 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/')";;
*subscriptions/listen*) printf '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"resourceSubscriptions":["x:1","x:9"]}}}\n' "$id"
 printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id";;
esac; done`}
	h := w.gated(with(w.behind("a", names.Names{}, func(o *mcpfront.Options) { o.Command = more }), "x:*"))
	h.Greet()
	h.Write(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":` + modernList + `}`)
	ack := h.ReadLine()
	fronttest.Has(t, ack, `"resourceSubscriptions":["x:1"]`)
	fronttest.Has(t, h.ReadLine(), `"id":"s","result":{"resultType":"complete"`) // it ends with its last branch
}

// TestMethodsOfAHandshake: a revision without a handshake does not have these methods.
func TestMethodsOfAHandshake(t *testing.T) {
	w := newWorld(t)
	h := w.gated(w.behind("a", names.Names{}))
	const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	for method := range handshaken {
		fronttest.Has(t, h.Ask("1", method, `{"uri":"x:1",`+modern+`}`), `"code":-32601`)
	}
}
