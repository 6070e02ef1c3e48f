package daemon

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCallerWhoLeavesCutsNothingOff: a caller whose time is over is told that its call goes on.
// The tool is not cut off, its answer is recorded, and the same key gets it.
func TestCallerWhoLeavesCutsNothingOff(t *testing.T) {
	b := start(t, "")
	release, cutOff := make(chan struct{}), make(chan bool, 1)
	b.tool.respond(func(w http.ResponseWriter, r *http.Request, _ []byte) {
		<-release
		cutOff <- r.Context().Err() != nil
		io.WriteString(w, `"paid"`)
	})
	status, _, raw := b.raw("POST", "/v1/tool-calls", `{"tool_server":"pay","tool_name":"charge","idempotency_key":"slow","args":`+string(charge("slow").Args)+`}`, client.HeaderTimeout, "2s")
	var p client.Problem
	if err := json.Unmarshal(raw, &p); err != nil || status != http.StatusConflict || p.Code != tga.IdempotencyKeyInFlight || !p.Retryable {
		t.Errorf("%d %s", status, raw)
	}
	close(release)
	if <-cutOff {
		t.Error("the tool's request was cancelled when the caller's time was over")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := b.client.Call(ctx, charge("slow"))
	if err != nil || res.State != tga.Completed || string(res.Value) != `"paid"` {
		t.Errorf("%+v, %v", res, err)
	}
	if n := b.tool.sends("slow"); n != 1 {
		t.Errorf("%d sends", n)
	}
}
