package mcpfront

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// withKey is the `_meta` of a request of revision 2026-07-28 with a key.
func withKey(key string) string {
	return strings.Replace(fronttest.ModernMeta, "{", `{"dev.tgad/idempotencyKey":"`+key+`",`, 1)
}

// TestInputThatIsNotSentKeepsTheCallOpen: the tool server has one message of a call, and the message with the requested input does not
// reach it. That says nothing of the first message: the call stays open, and the input can be sent again.
func TestInputThatIsNotSentKeepsTheCallOpen(t *testing.T) {
	srv := newStrict(t)
	srv.tools, srv.want = "["+marked("charge", "Old")+"]", "Mcp-Param-Old: v"
	srv.handle["tools/call"] = func(e *exchanged) {
		switch {
		case e.n == 1:
			e.result(`"resultType":"input_required","requestState":"s","inputRequests":{}`)
		case e.n == 2:
			e.w.WriteHeader(http.StatusTooManyRequests)
		default:
			e.result(`"resultType":"complete","content":[{"type":"text","text":"ok"}]`)
		}
	}
	w := newWorld(t)
	h := w.at(srv.URL)
	first := func(id string) string { return h.Call(id, "charge", `{"x":"v"}`, withKey("k")) }
	more := func(id string) string {
		return h.Ask(id, "tools/call", `{"name":"charge","arguments":{"x":"v"},"requestState":"s","inputResponses":{"a":1},"_meta":`+withKey("k")+`}`)
	}
	fronttest.Has(t, first("1"), "input_required")
	fronttest.Has(t, more("2"), "input was not sent", "may be repeated", "IDEMPOTENCY_KEY_IN_FLIGHT")
	if !w.noSettled("charge", "k") {
		t.Fatalf("the call has ended: %+v", w.Record("charge", "k"))
	}
	fronttest.Has(t, first("3"), "input_required", "replayed")
	// The tool server refuses the input for its headers: it is sent again under the same permit.
	srv.change(func() { srv.tools, srv.want = "["+marked("charge", "New")+"]", "Mcp-Param-New: v" })
	fronttest.Has(t, more("4"), `"ok"`)
	if r := w.Record("charge", "k"); r.Status != ledger.Settled || r.Attempts.Count != 1 || r.Attempts.Unsent != 0 {
		t.Errorf("record %+v", r)
	}
	if n := srv.count("tools/call"); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
}

// leaving is a log that goes away once a permit was returned.
type leaving struct{ *flaky }

func (l leaving) NotSent(ctx context.Context, trace tga.ID, permit runtime.Permit, reason string, wait time.Duration) (runtime.Result, error) {
	r, err := l.flaky.NotSent(ctx, trace, permit, reason, wait)
	l.set(true, false)
	return r, err
}

// TestUnsentRepeatLeavesDoubt: a send has no answer, and its licensed repeat certainly did not run. The client must not be told that the
// call was not sent.
func TestUnsentRepeatLeavesDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		has    string
	}{
		"the repeat is refused":                           {http.StatusTooManyRequests, "may be repeated"},
		"it is refused for its headers, and the log goes": {0, "tgad resolve"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newStrict(t)
			srv.tools, srv.want = "["+marked("again", "Old")+"]", "Mcp-Param-Old: v"
			srv.handle["tools/call"] = func(e *exchanged) {
				switch e.n {
				case 1:
					srv.change(func() {
						if c.status == 0 {
							srv.tools, srv.want = "["+marked("again", "New")+"]", "Mcp-Param-New: v"
						}
					})
					e.w.WriteHeader(http.StatusBadGateway)
				case 2:
					e.w.WriteHeader(c.status)
				}
			}
			w := newWorld(t)
			w.opts.LogTimeout = 100 * time.Millisecond
			if c.status == 0 {
				w.log = leaving{&flaky{Log: w.Local()}}
			}
			h := w.at(srv.URL)
			got := h.Call("1", "again", `{"x":"v"}`, withKey("k"))
			fronttest.Has(t, got, "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT", c.has)
			fronttest.Has(t, got, w.Record("again", "k").TraceID.String()) // not a trace that the log does not have
			fronttest.Lacks(t, got, "Nothing has happened", "The call was not sent")
			if n := srv.count("tools/call"); n != 2 {
				t.Errorf("%d messages, want 2", n)
			}
		})
	}
}
