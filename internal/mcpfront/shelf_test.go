package mcpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// busy is a log in which somebody else briefly holds every trace: it refuses each request that tells
// it something the first time.
type busy struct {
	asklog.Log
	mu   sync.Mutex
	seen map[string]int
}

func (l *busy) held(what string, trace tga.ID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[what]++
	name := what + trace.String()
	if l.seen[name]++; l.seen[name] == 1 {
		return tga.Errorf(tga.StateLockAcquireFailed, "another holds its lease")
	}
	return nil
}

func (l *busy) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	if err := l.held("finish", trace); err != nil {
		return runtime.Result{}, err
	}
	return l.Log.Finish(ctx, trace, permit, f)
}

func (l *busy) GiveUp(ctx context.Context, trace tga.ID, permit runtime.Permit, cause string, wait time.Duration) error {
	if err := l.held("give up", trace); err != nil {
		return err
	}
	return l.Log.GiveUp(ctx, trace, permit, cause, wait)
}

func (l *busy) Delivered(ctx context.Context, trace tga.ID) error {
	if err := l.held("delivered", trace); err != nil {
		return err
	}
	return l.Log.Delivered(ctx, trace)
}

// TestTraceThatIsHeldForAMoment: another client that polls for the same call holds the trace briefly.
// The shim repeats its requests to the log, and the call does not come into doubt.
func TestTraceThatIsHeldForAMoment(t *testing.T) {
	w := newWorld(t)
	log := &busy{Log: w.Local(), seen: map[string]int{}}
	w.log = log
	w.tune = func(s *Shim) { s.NoteDelay = 0 }
	h := w.start()
	h.Handshake()
	for id := range 2 {
		fronttest.Lacks(t, h.Call(fmt.Sprint(1+id), "charge", `{}`), "replayed", "isError")
		fronttest.Eventually(t, "the note that it was delivered", func() bool { return !h.s.Occupied() })
	}
	fronttest.Has(t, h.Call("3", "held", `{"die":"answer"}`), "OUTCOME UNKNOWN")
	_ = h.Stop()
	e := w.Effects()
	if len(e) != 3 || e[0].Key == e[1].Key {
		t.Fatalf("effects %+v", e)
	}
	for _, one := range e[:2] {
		if r := w.Record("charge", one.Key); r == nil || r.Status != ledger.Settled {
			t.Errorf("record %+v", r)
		}
	}
	// Finish and delivered of two calls, give up of one, each asked for twice.
	for what, want := range map[string]int{"finish": 4, "delivered": 4, "give up": 2} {
		if got := log.seen[what]; got != want {
			t.Errorf("%s was asked for %d times, want %d", what, got, want)
		}
	}
}

// TestRecordThatACrashHasLeft: the record of an unfinished call that a crash left behind is not taken
// for a later call with the same name.
func TestRecordThatACrashHasLeft(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	keep := func(args string) {
		t.Helper()
		name, err := ledger.DeriveKey("test", "fake", "held", []byte(args), 0)
		if err != nil {
			t.Fatal(err)
		}
		leg := tga.Sum(nil) // digest of a message without input
		stale, err := json.Marshal(map[string]any{
			"tool": "held", "key": name, "trace": attempt.NewID().String(), "permit": strings.Repeat("0", 32), "attempt": 1,
			"legs": map[string]string{leg.String(): `{"resultType":"input_required","stale":true}`},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, changed, err := w.RT.Keep(t.Context(), runtime.KeepRequest{Server: "fake", Name: "open " + tga.Sum([]byte("held\x00"+name)).String(), Value: stale})
		if err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	h.Call("1", "charge", `{"warm":1}`)
	const fine, dies = `{"n":1}`, `{"die":"answer"}`
	keep(fine)
	keep(dies)
	got := h.Call("2", "held", fine)
	fronttest.Lacks(t, got, "stale")
	fronttest.Has(t, got, `"ok"`)
	fronttest.Has(t, h.Call("3", "held", dies), "OUTCOME UNKNOWN")
	// Now an attempt of the call is in use whose trace differs from the record's.
	got = h.Call("4", "held", dies)
	fronttest.Lacks(t, got, "stale")
	fronttest.Has(t, got, "OUTCOME UNKNOWN")
	if n := len(w.Effects()); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
}
