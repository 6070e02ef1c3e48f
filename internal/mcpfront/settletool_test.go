package mcpfront

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// doubtful is a world with a daemon, so that calls in doubt can be listed.
func (w *world) doubtful(toml string) *client.Client {
	w.T.Helper()
	conf, err := assemble.Parse("", []byte(fronttest.ProcessConfig+toml))
	if err != nil {
		w.T.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tgad-settle-") // t.TempDir may be too long for a socket
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = os.RemoveAll(dir) })
	e, err := embed.Start(w.T.Context(), filepath.Join(dir, "data"), conf, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(e.Close)
	c := client.New(e.Socket, client.Options{Name: "test"})
	w.T.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.T.Error(err)
		}
	})
	w.log, w.opts.Look = c, c
	return c
}

const listChanging = `"capabilities":{"tools":{"listChanged":true}}`

func settle(trace tga.ID, outcome, more string) string {
	return fmt.Sprintf(`{"trace_id":%q,"outcome":%q,"evidence":"I read the ledger of payments"%s}`, trace, outcome, more)
}

// TestModelSettlesADoubt: with the flag a model can end a doubt. The record says that a model decided,
// and the same call does not run after that: not at once, not when the answer was delivered, and not
// in another conversation, with a key or without.
func TestModelSettlesADoubt(t *testing.T) {
	for _, row := range []struct {
		name, outcome, more, meta string
		want                      []string
	}{
		{"ran", "ran", `,"result":"card charged once"`, `{}`, []string{"NOT run again", "a model has settled", "card charged once"}},
		{"ran, with a key", "ran", "", `{"dev.tgad/idempotencyKey":"k"}`, []string{"NOT run again", "a model has settled"}},
		{"abandon", "abandon", "", `{}`, []string{"OUTCOME UNKNOWN"}},
		{"abandon, with a key", "abandon", "", `{"dev.tgad/idempotencyKey":"k"}`, []string{"OUTCOME UNKNOWN"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.doubtful("")
			w.opts.SettleTool = true
			h := w.start()
			h.Handshake()
			const args = `{"die":"answer"}`
			doubt := h.Call("1", "charge", args, row.meta)
			fronttest.Has(t, doubt, "OUTCOME UNKNOWN", say.SettleTool)
			trace := w.traceOf(doubt)
			list := h.Ask("2", "tools/list", `{}`)
			fronttest.Has(t, list, `"name":"`+say.SettleTool+`"`, `"name":"`+say.DoubtTool+`"`)
			fronttest.Has(t, h.Call("3", say.SettleTool, settle(trace, row.outcome, row.more)), "recorded as decided by a model")
			effect := ""
			for e, err := range c.Entries(t.Context(), trace, 0, false) {
				if err != nil {
					t.Fatal(err)
				}
				effect = string(e.Artifact)
			}
			fronttest.Has(t, effect, `"resolved_via":"model"`, `"resolved_by":"person"`, `"resolver":"uid:`)
			again := func(id string) {
				t.Helper()
				fronttest.Has(t, h.Call(id, "charge", args, row.meta), row.want...)
			}
			for i := range 3 { // each answer is delivered
				again(fmt.Sprint(10 + i))
			}
			_ = h.Stop()
			h = w.start() // another conversation
			h.Handshake()
			again("20")
			again("21")
			if n := len(w.Effects()); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
			fronttest.Has(t, h.Call("30", say.SettleTool, settle(trace, row.outcome, row.more)), `"isError":true`, "no call of this server's tools is in doubt")
			// A call with other arguments is another call.
			fronttest.Has(t, h.Call("31", "charge", `{"n":2}`), `"ok"`)
		})
	}
}

// TestWhatAModelMayNotSay: a model may not state an outcome that licenses a send, settle a call of
// another server, or settle without evidence. The call stays in doubt.
func TestWhatAModelMayNotSay(t *testing.T) {
	w := newWorld(t)
	c := w.doubtful("")
	w.opts.SettleTool = true
	h := w.start()
	h.Handshake()
	trace := w.traceOf(h.Call("1", "charge", `{"die":"answer"}`))
	long := func(name string, n int) string { return fmt.Sprintf(`,%q:%q`, name, strings.Repeat("ä", n)) }
	evidence := func(n int) string {
		return fmt.Sprintf(`{"trace_id":%q,"outcome":"abandon","evidence":%q}`, trace, strings.Repeat("ä", n))
	}
	for i, args := range []string{
		settle(trace, "not-run", ""), settle(trace, "failed", ""), settle(trace, "", ""), settle(trace, "RAN", ""),
		settle(attempt.NewID(), "ran", ""), settle(trace, "ran", `,"class":"retryable_failure"`), settle(trace, "ran", `,"status":"FAILURE"`),
		settle(trace, "ran", long("result", 501)), settle(trace, "abandon", `,"result":"x"`),
		evidence(0), evidence(4001), `{}`, `{"trace_id":"x","outcome":"ran","evidence":"y"}`,
	} {
		fronttest.Has(t, h.Call(fmt.Sprint(10+i), say.SettleTool, args), `"isError":true`)
	}
	if all, err := c.InDoubt(t.Context()); err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	fronttest.Has(t, h.Call("50", say.SettleTool, evidence(4000)), "Settled as abandon")
	fronttest.Has(t, h.Call("51", "charge", `{"die":"answer"}`), "OUTCOME UNKNOWN")
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestNoSettleToolUnasked: without the flag the tool does not exist, and a tool server's own tool with
// that name is called.
func TestNoSettleToolUnasked(t *testing.T) {
	w := newWorld(t)
	w.doubtful("")
	h := w.start()
	h.Handshake()
	fronttest.Lacks(t, h.Call("1", "charge", `{"die":"answer"}`), say.SettleTool)
	fronttest.Lacks(t, h.Ask("2", "tools/list", `{}`), say.SettleTool)
	fronttest.Has(t, h.Call("3", say.SettleTool, `{"mine":true}`), `"ok"`, `"mine":true`)
}

// TestSettleToolNeedsTheRight: the shim's peer needs the verb admin, as every other peer does.
func TestSettleToolNeedsTheRight(t *testing.T) {
	w := newWorld(t)
	c := w.doubtful(fmt.Sprintf("\n[[role]]\nuid = [%d]\nnamespace = \"default\"\nverbs = [\"append\", \"read\"]\n", os.Getuid()))
	w.opts.SettleTool = true
	h := w.start()
	h.Handshake()
	trace := w.traceOf(h.Call("1", "charge", `{"die":"answer"}`))
	fronttest.Has(t, h.Call("2", say.SettleTool, settle(trace, "ran", "")), `"isError":true`, "PERMISSION_DENIED")
	if all, err := c.InDoubt(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v %v", all, err)
	}
}

// TestPersonRunsAgainWhatAModelSettled: only the person at the client can have such a call run again.
func TestPersonRunsAgainWhatAModelSettled(t *testing.T) {
	w := newWorld(t)
	w.doubtful("")
	w.opts.SettleTool = true
	h := w.start()
	h.elicits()
	const args = `{"die":"answer"}`
	no := `{"jsonrpc":"2.0","id":%s,"result":{"action":"decline"}}`
	yes := `{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"run_again":true}}}`
	call := func(id, word string) string {
		h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"charge","arguments":%s}}`, id, args))
		q := h.ReadLine()
		fronttest.Has(t, q, `"method":"elicitation/create"`, `"run_again"`)
		h.Write(fmt.Sprintf(word, mcpraw.At([]byte(q), "/id")))
		return h.Answer(id)
	}
	doubt := call("1", no)
	fronttest.Has(t, doubt, "OUTCOME UNKNOWN")
	fronttest.Has(t, h.Call("2", say.SettleTool, settle(w.traceOf(doubt), "ran", "")), "Settled as ran")
	fronttest.Has(t, call("3", no), "NOT run again")
	if n := len(w.Effects()); n != 1 {
		t.Fatalf("%d effects before the person said yes", n)
	}
	fronttest.Has(t, call("4", yes), `"ok"`)
	fronttest.Has(t, h.Call("5", "charge", args), `"ok"`) // the settled call affects no later call any more
	if n := len(w.Effects()); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
}

// TestClientHearsOfDoubts: a client that was promised notifications of changes of the list of tools
// gets one when the shim's own tool enters the list and when it leaves, and no others.
func TestClientHearsOfDoubts(t *testing.T) {
	for _, says := range []bool{true, false} {
		t.Run(fmt.Sprint("the tool server says so: ", says), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.doubtful("")
			if says {
				if err := os.WriteFile(w.Journal+".capabilities", []byte(listChanging), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			h := w.start()
			h.Handshake()
			heard := func() (n int) {
				h.Ask(fmt.Sprint(time.Now().UnixNano()), "echo", `{}`)
				for _, line := range h.Said {
					if strings.Contains(line, say.ToolsChanged) {
						n++
					}
				}
				return n
			}
			h.Call("1", "charge", `{"warm":1}`)
			if heard() != 0 {
				t.Errorf("heard of a change with nothing in doubt")
			}
			want := func(n int, what string) {
				t.Helper()
				if !says {
					n = 0
				}
				fronttest.Eventually(t, what, func() bool { return heard() == n })
			}
			trace := w.traceOf(h.Call("2", "charge", `{"die":"answer"}`))
			want(1, "the word that a call is in doubt")
			fronttest.Has(t, h.Ask("3", "tools/list", `{}`), say.DoubtTool)
			h.Call("4", "charge", `{"die":"answer"}`) // still in doubt, so no change
			want(1, "no word where nothing has changed")
			if _, err := c.Abandon(context.Background(), trace, "nobody knows"); err != nil {
				t.Fatal(err)
			}
			h.Call("5", "charge", `{"warm":2}`)
			want(2, "the word that none is in doubt any more")
			fronttest.Lacks(t, h.Ask("6", "tools/list", `{}`), say.DoubtTool)
		})
	}
}
