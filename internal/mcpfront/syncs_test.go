package mcpfront

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// counting is a log that counts the syncs of the store's log during each request.
type counting struct {
	asklog.Log
	syncs func() uint64

	mu    sync.Mutex
	spent map[string]uint64
	asked map[string]int
}

func (w *world) counting() *counting {
	c := &counting{Log: w.Local(), syncs: func() uint64 { return w.DB.Stats().LogSyncs }}
	c.reset()
	return c
}

func (c *counting) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent, c.asked = map[string]uint64{}, map[string]int{}
}

// counted returns what was counted until now.
func (c *counting) counted() (spent map[string]uint64, asked map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.spent), maps.Clone(c.asked)
}

func (c *counting) during(what string, f func()) {
	before := c.syncs()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent[what] += c.syncs() - before
	c.asked[what]++
}

func (c *counting) Begin(ctx context.Context, req runtime.BeginRequest) (b runtime.Begun, err error) {
	c.during("begin", func() { b, err = c.Log.Begin(ctx, req) })
	return b, err
}

func (c *counting) Finish(ctx context.Context, trace tga.ID, p runtime.Permit, f runtime.Finished) (res runtime.Result, err error) {
	c.during("finish", func() { res, err = c.Log.Finish(ctx, trace, p, f) })
	return res, err
}

func (c *counting) Delivered(ctx context.Context, trace tga.ID) (err error) {
	c.during("delivered", func() { err = c.Log.Delivered(ctx, trace) })
	return err
}

// TestSyncsOfACall counts the syncs of sequential calls: one before a call is sent, one before it is
// answered. The begin of the client's next call notes the delivery, whatever tool and arguments that
// call has, even if it is a read call. The last delivery costs a sync of its own, for which nobody
// waits.
func TestSyncsOfACall(t *testing.T) {
	for _, way := range []struct {
		name string
		call func(i int) (tool, args string)
	}{
		{"other arguments", func(i int) (string, string) { return "charge", fmt.Sprintf(`{"n":%d}`, i) }},
		{"the same call", func(int) (string, string) { return "charge", `{}` }},
		{"writes and reads", func(i int) (string, string) { return []string{"charge", "look"}[i%2], fmt.Sprintf(`{"n":%d}`, i) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			w := newWorld(t)
			log := w.counting()
			w.log = log
			w.tune = func(s *Shim) { s.NoteDelay = time.Hour }
			h := w.start()
			h.Handshake()
			h.Call("1", "charge", `{"warm":1}`) // after it the shim knows the tool's class
			h.Call("2", "look", `{"warm":1}`)
			before := log.syncs()
			log.reset()
			const calls = 20
			for i := range calls {
				tool, args := way.call(i)
				got := h.Call(fmt.Sprint(10+i), tool, args)
				fronttest.Has(t, got, `"ok"`)
				fronttest.Lacks(t, got, "replayed")
			}
			all := log.syncs() - before
			spent, asked := log.counted()
			if all != 2*calls || spent["begin"] != calls || spent["finish"] != calls || asked["delivered"] != 0 {
				t.Errorf("%d syncs for %d calls, by request %v of %v, want 2 a call", all, calls, spent, asked)
			}
			if err := h.Stop(); err != nil { // the client closes its end, so no next call comes
				t.Error(err)
			}
			if spent, asked = log.counted(); asked["delivered"] > 1 || log.syncs()-before > 2*calls+1 {
				t.Errorf("%d syncs in all, by request %v of %v, want one more at the end", log.syncs()-before, spent, asked)
			}
		})
	}
}
