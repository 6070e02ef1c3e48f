package gateway

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/schemas/tga"
)

// observing puts the world's shims into observe mode. seen returns what they reported.
func observing(w *world) (seen func() []mcpfront.Would) {
	var mu sync.Mutex
	var all []mcpfront.Would
	w.opts.Observe = func(x mcpfront.Would) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, x)
	}
	return func() []mcpfront.Would {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestObservedDefinitionsAndQuotas: in observe mode neither a changed definition nor a quota refuses a call.
func TestObservedDefinitionsAndQuotas(t *testing.T) {
	w := newWorld(t)
	seen := observing(w)
	w.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Block: true} }
	b := w.behind("a", names.Names{})
	g, err := NewGate([]Behind{b}, GateOptions{Quotas: []Quota{{Calls: 1, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	h := w.wire(g.Stdio)
	h.Greet()
	h.Ask("1", "tools/list", `{}`)
	fronttest.Has(t, h.Call("2", "a__charge", `{"n":1}`), `"text":"ok"`)
	list := `{"tools":[{"name":"charge","description":"another","inputSchema":{"type":"object"}}]}`
	if err := os.WriteFile(w.JournalOf("a")+".tools", []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Ask("3", "tools/list", `{}`), "another")
	fronttest.Has(t, h.Call("4", "a__charge", `{"n":2}`), `"text":"ok"`)
	if got := seen(); !slices.Equal(got, []mcpfront.Would{mcpfront.WouldSend, mcpfront.WouldLimit, mcpfront.WouldBlock}) {
		t.Errorf("would have been %v", got)
	}
	w.WantObserved("charge COMPLETED yes", "charge COMPLETED definition_changed")
}

// TestObservedToolServerIsDown: the client gets the same error as without a log, and the log is told
// that nothing was sent.
func TestObservedToolServerIsDown(t *testing.T) {
	w := newWorld(t)
	observing(w)
	h := w.gated(w.behind("a", names.Names{}), w.behind("b", names.Names{}, func(o *mcpfront.Options) { o.Command = []string{filepath.Join(w.Dir, "none")} }))
	h.Greet()
	got := h.Call("1", "b__charge", `{"n":1}`)
	fronttest.Has(t, got, `"error"`, "cannot be started")
	w.WantObserved("charge FAILED yes") // soon: the client is told first
	for l, err := range w.DB.Traces(t.Context(), tga.ID{}) {
		if err != nil {
			t.Fatal(err)
		}
		if res, err := w.RT.Result(t.Context(), l.TraceID); err != nil || res.Sent != 0 {
			t.Errorf("sent %d times, %v", res.Sent, err)
		}
	}
}
