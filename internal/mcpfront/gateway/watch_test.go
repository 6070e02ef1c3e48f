//go:build unix

package gateway

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
)

// TestEveryEndIsWatchedOnce: Passed is called once for a request that was led to a tool server, with how
// it ended, even if its answer comes after it was given up. Then its id can be used again.
func TestEveryEndIsWatchedOnce(t *testing.T) {
	w := newWorld(t)
	g := w.gateTo(names.Lists{}, w.behind("a", names.Names{}, func(o *mcpfront.Options) { o.CancelGrace = time.Millisecond }))
	var mu sync.Mutex
	got := map[string]int{}
	g.watch.Passed = func(server, method string, end End, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		got[fmt.Sprintf("%s %s %s %t", server, method, end, took > 0)]++
	}
	seen := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(got)
	}
	h := w.wire(g.Stdio)
	h.Greet()
	fronttest.Has(t, h.Call("1", "a__charge", `{"n":1}`), `"text":"ok"`)
	fronttest.Has(t, h.Call("2", "a__fault", `{"n":2}`), `"error"`)
	fronttest.Has(t, h.Ask("1", "prompts/get", `{"name":"a__none"}`), `"error"`)
	late := filepath.Join(w.Dir, "late")
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a__charge","arguments":{"n":4,"wait":%q}}}`, late))
	fronttest.Eventually(t, "the call", func() bool { return len(fronttest.JournalOf(t, w.JournalOf("a"))) == 3 })
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
	fronttest.Eventually(t, "its end", func() bool { return len(seen()) == 4 })
	if err := os.WriteFile(late, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Eventually(t, "the record of the call", func() bool {
		doubts, err := w.RT.InDoubt(t.Context())
		return err == nil && len(doubts) == 0
	})
	_ = h.Stop()
	want := map[string]int{"a tools/call result true": 1, "a tools/call error true": 1, "a prompts/get error true": 1, "a tools/call given_up true": 1}
	if got := seen(); !maps.Equal(got, want) {
		t.Errorf("watched %v\nwant    %v", got, want)
	}
}
