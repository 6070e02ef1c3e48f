package gateway

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// notes is a log that counts the notes of deliveries.
type notes struct {
	asklog.Log
	noted atomic.Int32
}

func (l *notes) Begin(ctx context.Context, r runtime.BeginRequest) (runtime.Begun, error) {
	b, err := l.Log.Begin(ctx, r)
	if err == nil {
		l.noted.Add(int32(len(r.Delivered)))
	}
	return b, err
}

func (l *notes) Delivered(ctx context.Context, trace tga.ID) error {
	err := l.Log.Delivered(ctx, trace)
	if err == nil {
		l.noted.Add(1)
	}
	return err
}

// TestQuotaIsForBeforeTheSend: a call over its quota is answered, and nothing is written or sent.
func TestQuotaIsForBeforeTheSend(t *testing.T) {
	w := newWorld(t)
	log := &notes{Log: w.Local()}
	w.log = log
	g := w.gateTo(names.Lists{}, w.behind("a", names.Names{}), w.behind("b", names.Names{}))
	g.now.Load().quotas = quotasOf([]Quota{{Tool: "a__*", Calls: 2, Per: time.Hour}})
	h := w.wire(g.Stdio)
	h.Greet()
	for i := range 2 {
		fronttest.Has(t, h.Call(strconv.Itoa(i+1), "a__charge", fmt.Sprintf(`{"n":%d}`, i)), `"text":"ok"`)
	}
	fronttest.Eventually(t, "the notes", func() bool { return log.noted.Load() == 2 })
	before := w.DB.Stats()
	fronttest.Has(t, h.Call("3", "a__look", `{"n":3}`), string(tga.RateLimited), "was not sent", "a__*", `"isError":true`)
	if after := w.DB.Stats(); after.Entries != before.Entries || after.Notes != before.Notes {
		t.Errorf("the log has more of a call over the quota: %+v, %+v", before, after)
	}
	fronttest.Has(t, h.Call("4", "b__charge", `{"n":4}`), `"text":"ok"`)
	if n := len(fronttest.JournalOf(t, w.JournalOf("a"))); n != 2 {
		t.Errorf("%d calls were sent", n)
	}
}

// TestQuotasCount: a quota allows its calls at once, and then one in each part of its time. If one
// quota has no room for a call, no quota counts it.
func TestQuotasCount(t *testing.T) {
	g := &rules{quotas: quotasOf([]Quota{{Calls: 3, Per: time.Minute}, {Tool: "pay", Calls: 1, Per: time.Hour}})}
	now := time.Now()
	over := func(tool string, at, want time.Duration) {
		t.Helper()
		if got, _ := g.over(tool, now.Add(at)); got.Round(time.Second) != want {
			t.Errorf("%s at %v: %v, want %v", tool, at, got, want)
		}
	}
	over("pay", 0, 0)
	over("pay", 0, time.Hour)
	over("look", 0, 0)
	over("look", 0, 0)
	over("look", 0, 20*time.Second)
	over("look", 19*time.Second, time.Second)
	over("look", 20*time.Second, 0)
	over("look", 20*time.Second, 20*time.Second)
	over("pay", time.Hour-time.Second, time.Second)
	over("pay", time.Hour, 0)
}

// TestRefusedCallsTakeNoQuota: refused callers, however many at once, do not delay the time when there is room again. A
// reservation that is cancelled while another one exists would not be returned in full.
func TestRefusedCallsTakeNoQuota(t *testing.T) {
	r := &rules{quotas: quotasOf([]Quota{{Calls: 1, Per: time.Second}, {Tool: "pay", Calls: 1, Per: time.Second}})}
	begin := time.Now()
	if after, _ := r.over("pay", begin); after != 0 {
		t.Fatalf("the first call has to wait for %v", after)
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 20_000 {
				if after, _ := r.over("pay", begin); after != time.Second {
					t.Errorf("a refused call has to wait for %v, want 1s", after)
					return
				}
			}
		})
	}
	callers.Wait()
	if after, _ := r.over("pay", begin.Add(time.Second)); after != 0 {
		t.Errorf("a second later a call has to wait for %v", after)
	}
}
