package mcpfront

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/ledger"
)

func TestPassThroughIsExact(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	for _, params := range []string{
		`{"n":9007199254740993,"f":1.0,"e":1E400,"s":"\u00e9é\/","o":{"b":1,"a":2, "b2" : [ ] }}`,
		`[1 , 2]`,
		`{"deep":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
	} {
		if got, want := h.Ask("1", "echo", params), `{"result":`+params+`,"jsonrpc":"2.0","id":1}`; got != want {
			t.Errorf("got %.300s\nwant %.300s", got, want)
		}
	}
	// Ids pass in their own spelling, and so do requests of the tool server.
	if got := h.Ask(`"a\u0062"`, "echo", `{}`); got != `{"result":{},"jsonrpc":"2.0","id":"a\u0062"}` {
		t.Errorf("got %s", got)
	}
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"ask","params":{}}`)
	if got := h.ReadLine(); got != `{"jsonrpc":"2.0","id":"q1","method":"sampling/createMessage","params":{"n":9007199254740993}}` {
		t.Errorf("asked %s", got)
	}
	h.Write(`{"jsonrpc":"2.0","id":"q1","result":{"v":12345678901234567890}}`)
	if got := h.ReadLine(); got != `{"jsonrpc":"2.0","id":2,"result":{"heard":{"v":12345678901234567890}}}` {
		t.Errorf("heard %s", got)
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
}

// TestMessagesBeforeTheToolServerIsUp: messages that a client sends before the tool server has started
// are handled in their order.
func TestMessagesBeforeTheToolServerIsUp(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Write(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`)
	fronttest.Has(t, h.Answer("0"), `"name":"fake"`)
	fronttest.Has(t, h.Answer("1"), `"ok"`)
	if len(h.Said) != 0 {
		t.Errorf("also said %q", h.Said)
	}
}

func TestGovernedCallIsBegunSentAndRecorded(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	got := h.Call("7", "charge", `{"amount":1.0,"note":"a\u0062"}`, `{"progressToken":"p","x":9007199254740993}`)
	want := `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"ok"}],"structuredContent":{"args":{"amount":1,"note":"ab"},"big":9007199254740993,"one":1.0}}}`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	e := w.Effects()
	if len(e) != 1 || e[0].Key == "" || e[0].Args != `{"amount":1,"note":"ab"}` {
		t.Fatalf("effects %+v", e)
	}
	fronttest.Has(t, e[0].Line, `"progressToken":"p","x":9007199254740993`, `"dev.tgad/attempt":1`, `"dev.tgad/traceId":"`)
	if r := w.Record("charge", e[0].Key); r == nil || r.Status != ledger.Settled || r.Attempts.Count != 1 {
		t.Errorf("record %+v of key %s", r, e[0].Key)
	}
}

func TestOccurrences(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	// Two intended calls are two calls: the first was answered before the second was made.
	fronttest.Lacks(t, h.Call("1", "charge", `{"amount":1}`), "replayed")
	fronttest.Lacks(t, h.Call("2", "charge", `{"amount":1}`), "replayed")
	if e := w.Effects(); len(e) != 2 || e[0].Key == e[1].Key {
		t.Fatalf("effects %+v", e)
	}
	_ = h.Stop()
	// So it is in a later shim of the same conversation, because the answers were delivered.
	h = w.start()
	h.Handshake()
	fronttest.Lacks(t, h.Call("1", "charge", `{"amount":1}`), "replayed")
	if e := w.Effects(); len(e) != 3 {
		t.Fatalf("effects %+v", e)
	}
	// Another conversation has keys of its own.
	_ = h.Stop()
	w.opts.Scope = "another"
	h = w.start()
	h.Handshake()
	fronttest.Lacks(t, h.Call("1", "charge", `{"amount":1}`), "replayed")
	if e := w.Effects(); len(e) != 4 || e[3].Key == e[0].Key {
		t.Fatalf("effects %+v", e)
	}
}

// TestNextCallWaitsForTheNote: once the tool server has a client's next call, the deliveries of the
// client's earlier answers are durable. So even if the shim is killed then, the same call again is a
// new call.
func TestNextCallWaitsForTheNote(t *testing.T) {
	w := newWorld(t)
	log := &fronttest.SlowNotes{Log: w.Local(), Asked: make(chan struct{}, 1), Take: make(chan struct{})}
	w.log = log
	h := w.start()
	h.Handshake()
	fronttest.Lacks(t, h.Call("1", "charge", `{"amount":1}`), "replayed")
	<-log.Asked
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"amount":2}}}`)
	// The call has its permit, so without the wait it would be sent now.
	for at := time.Now(); log.Permits.Load() < 2; time.Sleep(time.Millisecond) {
		if time.Since(at) > 10*time.Second {
			t.Fatal("the second call has no permit")
		}
	}
	time.Sleep(20 * time.Millisecond)
	if e := w.Effects(); len(e) != 1 {
		t.Errorf("%d calls were sent before the first one's answer was noted", len(e)-1)
	}
	close(log.Take)
	fronttest.Lacks(t, h.Answer("2"), "replayed")
	fronttest.Lacks(t, h.Call("3", "charge", `{"amount":1}`), "replayed")
	if e := w.Effects(); len(e) != 3 {
		t.Errorf("effects %+v", e)
	}
}

// TestProposedKey: the member idempotencyKey of SEP-3182 is the key of a call. The tool server gets the
// member in its place: unchanged, or with the key space before it.
func TestProposedKey(t *testing.T) {
	for space, key := range map[string]string{"": "k", "ann": "ann:k"} {
		w := newWorld(t)
		w.opts.KeySpace = space
		h := w.start()
		h.Handshake()
		ask := func(id, member string) string {
			return h.Ask(id, "tools/call", `{"name":"charge",`+member+`,"arguments":{"n":1}}`)
		}
		fronttest.Lacks(t, ask("1", `"idempotencyKey" : "k"`), "replayed", "error")
		fronttest.Has(t, ask("2", `"idempotencyKey":"k"`), "replayed")
		fronttest.Has(t, ask("3", `"_meta":{"dev.tgad/idempotencyKey":"k"},"idempotencyKey":"other"`), "replayed")
		for _, bad := range []string{`"idempotencyKey":""`, `"idempotencyKey":{}`, `"idempotencyKey":"a","idempotencyKey":"b"`} {
			fronttest.Has(t, ask("4", bad), `"code":-32602`, "idempotencyKey")
		}
		e := w.Effects()
		if len(e) != 1 || e[0].Key != key || w.Record("charge", key) == nil {
			t.Fatalf("effects %+v", e)
		}
		fronttest.Has(t, e[0].Line, `"idempotencyKey" : "`+key+`"`)
	}
}

func TestKeysByTheFirstRuleThatFits(t *testing.T) {
	w := newWorld(t)
	w.opts.CallIDs = []string{"claudecode/toolUseId"}
	w.opts.Tools = func(tool string) toolcall.Tool {
		switch tool {
		case "order":
			return toolcall.Tool{KeyPointer: "/order/id", KeyArgument: "/idempotency_key", KeyMeta: "x/key"}
		case "free":
			return toolcall.Tool{Ungoverned: true}
		}
		return toolcall.Tool{}
	}
	h := w.start()
	h.Handshake()
	for _, c := range []struct{ tool, args, meta, key string }{
		{"order", `{"order":{"id":"o/1"}}`, `{"dev.tgad/idempotencyKey":"mine","claudecode/toolUseId":"t"}`, "mine"},
		{"order", `{"order":{"id":"o/1"}}`, `{"claudecode/toolUseId":"t"}`, "o/1"},
		{"order", `{"order":{"id":42}}`, `{}`, "42"},
		{"order", `{"order":{}}`, `{"claudecode/toolUseId":"toolu_1"}`, "claudecode/toolUseId=toolu_1"},
		{"charge", `{}`, `{"claudecode/toolUseId":"` + strings.Repeat("x", 300) + `"}`, fit("claudecode/toolUseId=" + strings.Repeat("x", 300))},
	} {
		h.Call("1", c.tool, c.args, c.meta)
		e := w.Effects()
		if got := e[len(e)-1]; got.Key != c.key {
			t.Errorf("%s %s %s: key %q, want %q", c.tool, c.args, c.meta, got.Key, c.key)
		}
		if e := e[len(e)-1]; c.tool == "order" {
			fronttest.Has(t, e.Args, `"idempotency_key":"`+c.key+`"`)
			fronttest.Has(t, e.Line, `"x/key":"`+c.key+`"`)
		}
	}
	// A repeat of the key is served and marked as replayed. With other arguments it is an error.
	fronttest.Has(t, h.Call("2", "charge", `{}`, `{"claudecode/toolUseId":"toolu_2"}`), `"ok"`)
	n := len(w.Effects())
	fronttest.Has(t, h.Call("3", "charge", `{}`, `{"claudecode/toolUseId":"toolu_2"}`), `"dev.tgad/replayed":true`, `"dev.tgad/traceId":"`, `"dev.tgad/entryDigest":"`, `"big":9007199254740993,"one":1.0`)
	fronttest.Has(t, h.Call("4", "charge", `{"amount":2}`, `{"claudecode/toolUseId":"toolu_2"}`), `"error":{"code":-32602`, "IDEMPOTENCY_KEY_CONFLICT")
	if got := len(w.Effects()); got != n {
		t.Errorf("%d effects, want %d", got, n)
	}
	// A step that has several calls is no key by itself.
	fronttest.Has(t, h.Call("5", "charge", `{"a":1}`, `{"vscode.requestId":"r"}`), `"ok"`)
	fronttest.Has(t, h.Call("6", "charge", `{"a":2}`, `{"vscode.requestId":"r"}`), `"ok"`)
	// Ungoverned calls leave no trace in the log and reach the tool server unchanged.
	before := w.RT.Stats().Reserved
	fronttest.Has(t, h.Call("7", "free", `{"n":9007199254740993}`), `"args":{"n":9007199254740993}`)
	e := w.Effects()
	fronttest.Lacks(t, e[len(e)-1].Line, "dev.tgad")
	if got := w.RT.Stats().Reserved; got != before {
		t.Errorf("%d keys reserved, want %d", got, before)
	}
}

func TestReadCallsAreNeverServedToAnother(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	for _, id := range []string{"1", "2", "3"} {
		fronttest.Lacks(t, h.Call(id, "look", `{}`), "replayed")
	}
	if e := w.Effects(); len(e) != 3 || e[0].Key == e[1].Key {
		t.Errorf("effects %+v", e)
	}
	// Not even if they are under way at the same time.
	h.Write(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"look","arguments":{}}}` + "\n" +
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"look","arguments":{}}}`)
	fronttest.Lacks(t, h.Answer("4"), "replayed")
	fronttest.Lacks(t, h.Answer("5"), "replayed")
	if n := len(w.Effects()); n != 5 {
		t.Errorf("%d effects, want 5", n)
	}
}

func TestFailuresAreRecordedAndServed(t *testing.T) {
	w := newWorld(t)
	w.opts.CallIDs = []string{"claudecode/toolUseId"}
	h := w.start()
	h.Handshake()
	for tool, wants := range map[string][]string{
		"fail":  {`"result":{"content":[{"type":"text","text":"no money"}],"isError":true`},
		"fault": {`"error":{"code":-32050,"message":"broken"}`},
	} {
		first := h.Call("1", tool, `{}`, `{"claudecode/toolUseId":"`+tool+`"}`)
		fronttest.Has(t, first, wants...)
		fronttest.Has(t, h.Call("2", tool, `{}`, `{"claudecode/toolUseId":"`+tool+`"}`), wants...)
	}
	if e := w.Effects(); len(e) != 2 {
		t.Errorf("effects %+v", e)
	}
}

// TestCallThatWantsAURLRunsOnceItIsOpened: the tool server wants a person to open a URL before it runs the call (revision 2025-11-25). Its
// client gets the URL, is asked nothing else, and makes the call again, which runs.
func TestCallThatWantsAURLRunsOnceItIsOpened(t *testing.T) {
	for _, meta := range []string{"{}", `{"dev.tgad/idempotencyKey":"k"}`} {
		w := newWorld(t)
		h := w.start()
		h.elicits()
		for _, id := range []string{"1", "2"} {
			want := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32042,"message":"sign in","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x/","message":"go"}]}}}`
			if got := h.Call(id, "url", `{}`, meta); got != want {
				t.Errorf("with %s: %s", meta, got)
			}
		}
		if err := os.WriteFile(w.Journal+".opened", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got := h.Call("3", "url", `{}`, meta)
		fronttest.Has(t, got, `"text":"ok"`)
		fronttest.Lacks(t, got, "replayed")
		if n := len(w.Effects()); n != 1 {
			t.Errorf("with %s: %d effects of one call", meta, n)
		}
	}
}

func TestWhatCannotBeGovernedIsRefused(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	for args, wants := range map[string][]string{
		`{"a":{"n":9007199254740993}}`: {`-32602`, `/params/arguments/a/n`, "VALIDATION_ERROR"},
		`{"a":1,"a":2}`:                {`-32602`, `/params/arguments/a`},
		`[]`:                           {`-32602`, `/params/arguments`},
		`{"s":"\ud800"}`:               {`-32602`, `/params/arguments`},
	} {
		fronttest.Has(t, h.Call("1", "charge", args), wants...)
	}
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}`:                                         "/params/name",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","Name":"free"}}`:                          "/params/Name",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","name":"free"}}`:                          "/params/name",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`:                                                                   "want an object",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","_meta":{"dev.tgad/idempotencyKey":{}}}}`: "idempotencyKey",
	} {
		h.Write(line)
		fronttest.Has(t, h.Answer("1"), `"error"`, want)
	}
	if e := w.Effects(); len(e) != 0 {
		t.Errorf("effects %+v", e)
	}
}

// TestKeySpacesAreApart: keys of two key spaces never collide, however long they are.
func TestKeySpacesAreApart(t *testing.T) {
	seen := map[string]string{}
	for _, space := range []string{"", "a", "a:", "a%3A", "a/b", "A"} {
		for _, key := range []string{"k", ":k", "b:k", strings.Repeat("k", maxLedgerKey), strings.Repeat("k", maxLedgerKey+1)} {
			q := &call{conv: &conv{s: &Shim{opts: Options{KeySpace: space}}}}
			got, of := q.named(key), fmt.Sprintf("%q %.10q", space, key)
			if len(got) > maxLedgerKey || space != "" && seen[got] != "" {
				t.Errorf("%s is %.40s, as is %s", of, got, seen[got])
			}
			seen[got] = of
		}
	}
}
