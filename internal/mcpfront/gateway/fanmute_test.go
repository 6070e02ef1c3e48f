//go:build unix

package gateway

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/schemas/tga"
)

// TestMuteServerHoldsUpOneList: a list waits the whole time for a running tool server that does not answer. Later lists
// wait only briefly for it, until it answers again.
func TestMuteServerHoldsUpOneList(t *testing.T) {
	w := newWorld(t)
	w.give("a", `{"uri":"a:1"}`, "")
	w.give("b", `{"uri":"b:1"}`, "")
	g := w.gateTo(names.Lists{}, with(w.behind("a", names.Names{}), "a:*"), with(w.behind("b", names.Names{}), "b:*"))
	h := w.wire(g.Stdio)
	h.Greet()
	fronttest.Has(t, h.Ask("1", "resources/list", `{}`), `"a:1"`, `"b:1"`)
	g.wait = time.Second
	file := w.JournalOf("b") + "resources"
	if err := os.Rename(file, file+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil { // a reader of a FIFO waits for a writer
		t.Fatal(err)
	}
	var took [2]time.Duration
	for i, id := range []string{"2", "3"} {
		began := time.Now()
		got := h.Ask(id, "resources/list", `{}`)
		took[i] = time.Since(began)
		fronttest.Has(t, got, `"a:1"`)
		fronttest.Lacks(t, got, `"b:1"`)
	}
	if took[0] < g.wait || took[1] > took[0]/2 {
		t.Errorf("the lists took %v", took)
	}
	if err := os.Rename(file, file+".pipe"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".kept", file); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(file+".pipe", os.O_WRONLY, 0)
	if err == nil {
		err = pipe.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	fronttest.Eventually(t, "the list to be whole", func() bool { return strings.Contains(h.Ask("4", "resources/list", `{}`), `"b:1"`) })
	// After an answer lists wait the whole time again, so a slow answer is in the list.
	g.wait = 4 * time.Second
	whole, err := os.ReadFile(file)
	if err == nil {
		err = os.Remove(file)
	}
	if err == nil {
		err = syscall.Mkfifo(file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	time.AfterFunc(3*g.wait/mutePart, func() { wrote <- os.WriteFile(file, whole, 0o600) })
	fronttest.Has(t, h.Ask("5", "resources/list", `{}`), `"a:1"`, `"b:1"`)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// TestServerThatReadsNothingHoldsUpNoOther: a tool server has stopped reading, and its stdin is full. What the client wants of it, or
// gives up, waits for it; what the client wants of another one does not.
func TestServerThatReadsNothingHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	stops := []string{"/bin/sh", "-c", `read l
printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"n","version":"1"}}}\n' "$(printf %s "$l" | sed 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/')"
read l; exec sleep 1000`}
	g := w.gateTo(names.Lists{}, w.behind("a", names.Names{}), w.behind("b", names.Names{}, func(o *mcpfront.Options) { o.Command = stops }))
	g.wait = time.Second
	h := w.wire(g.Stdio)
	h.Greet()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__x","arguments":{"x":"` + strings.Repeat("x", 300<<10) + `"}}}`)
	fronttest.Eventually(t, "the permit", func() bool {
		for l, err := range w.DB.Traces(t.Context(), tga.ID{}) {
			if err != nil {
				t.Fatal(err)
			}
			if tr, err := w.DB.Load(t.Context(), l.TraceID); err == nil && tr.Head.State == tga.Executing {
				return true
			}
		}
		return false
	})
	time.Sleep(100 * time.Millisecond) // now it is being written
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"b__y"}}`)
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	for id := 3; id < 6; id++ {
		fronttest.Has(t, h.Ask(fmt.Sprint(id), "tools/list", `{}`), "a__charge")
		fronttest.Has(t, h.Call(fmt.Sprint(10+id), "a__charge", `{}`), `"ok"`)
	}
}
