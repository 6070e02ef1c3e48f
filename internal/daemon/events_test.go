package daemon

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCauseOfADoubtIsShown: in the answer, in the list, in the trace, and counted by tool and
// code; with as many attempts in the answer as in the list.
func TestCauseOfADoubtIsShown(t *testing.T) {
	b := start(t, "")
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusInternalServerError) })
	opaque := charge("o")
	opaque.Tool = "charge_opaque"
	res, err := b.client.Call(t.Context(), opaque)
	wantCode(t, err, tga.EffectInDoubt)
	if !strings.Contains(err.Error(), "500") || res.Attempts != 1 || res.Sent != 1 {
		t.Errorf("answer %+v, %v", res, err)
	}
	list, err := b.client.InDoubt(t.Context())
	if err != nil || len(list) != 1 || list[0].Doubt == nil || !strings.Contains(list[0].Doubt.Cause, "500") || list[0].Attempts != res.Attempts {
		t.Errorf("list %+v, %v", list, err)
	}
	trace, err := b.client.Trace(t.Context(), res.TraceID)
	if err != nil || len(trace.Notes) != 1 || !strings.Contains(string(trace.Notes[0]), `"kind":"doubt"`) {
		t.Errorf("notes %s, %v", trace.Notes, err)
	}
	opaque.Args = []byte(`{"amount":77}`)
	_, err = b.client.Call(t.Context(), opaque)
	wantCode(t, err, tga.IdempotencyKeyConflict)
	for _, label := range []string{`event="doubt",server="pay",tool="charge_opaque"`, `event="refused",server="pay",tool="charge_opaque"`} {
		code := map[bool]string{true: "TOOL_ERROR", false: "IDEMPOTENCY_KEY_CONFLICT"}[strings.Contains(label, "doubt")]
		event, rest, _ := strings.Cut(label, ",")
		if n := b.scrape(`tgad_call_events_total{code="` + code + `",` + event + "," + rest + "}"); n != 1 {
			raw, _ := b.client.Metrics(t.Context())
			t.Errorf("%s %s is counted %v times:\n%s", label, code, n, grep(string(raw), "tgad_call_events"))
		}
	}
}

func grep(text, what string) (found string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, what) {
			found += line
		}
	}
	return found
}

// TestEventsAreCountedForSoManyTools: at the limit each tool has its own count, one past it
// shares that of the rest.
func TestEventsAreCountedForSoManyTools(t *testing.T) {
	v := newEvents()
	for i := range maxEventTools {
		if _, tool := v.named("s", fmt.Sprint(i)); tool != fmt.Sprint(i) {
			t.Fatalf("tool %d is counted as %q", i, tool)
		}
	}
	if server, tool := v.named("s", "one more"); server != "" || tool != "" {
		t.Errorf("one more is counted as %q of %q", tool, server)
	}
	if _, tool := v.named("s", "7"); tool != "7" {
		t.Errorf("a known tool is counted as %q", tool)
	}
	v.count(runtime.Event{Kind: runtime.EventDoubt, Server: "s", Tool: "another", Code: tga.ToolError})
}
