package daemon

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestKilledRelicensing: SIGKILL when the word is in the log and the call is not sent yet, because its server
// asked to be left alone for a while. The next daemon sends it, once. Before the word nothing is sent.
func TestKilledRelicensing(t *testing.T) {
	b := start(t, "")
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusInternalServerError)
	})
	req := charge("order-1")
	req.Tool = "charge_opaque"
	res, err := b.client.Call(t.Context(), req)
	wantCode(t, err, tga.EffectInDoubt)
	b.tool.respond(nil)
	b.stop()
	b.config = strings.Replace(b.config, "name = \"charge_opaque\"\n", "name = \"charge_opaque\"\nlicence = \"dedupe_args\"\n", 1)
	b.killed(func(ctx context.Context) {
		for range 2 {
			done, err := b.client.Relicense(ctx, res.TraceID, wire.RelicenseRequest{Reason: "to see", DryRun: true})
			if err != nil || done.Was != "park" || done.Now != "dedupe_args" || done.Next != "resend" {
				t.Errorf("%+v, %v", done, err)
			}
		}
		_, err := b.client.Recover(b.patient(), res.TraceID)
		wantCode(t, err, tga.EffectInDoubt)
		go func() {
			if _, err := b.client.Relicense(context.Background(), res.TraceID, wire.RelicenseRequest{Reason: "the provider says so"}); err == nil {
				t.Error("a killed daemon answered")
			}
		}()
		for written := false; !written; time.Sleep(time.Millisecond) {
			m, err := b.client.Trace(ctx, res.TraceID)
			if err != nil {
				t.Fatal(err)
			}
			for _, raw := range m.Notes {
				n, err := tga.DecodeNote(raw)
				if err != nil {
					t.Fatal(err)
				}
				written = written || n.Kind == tga.NoteLicence && strings.Contains(string(n.Body), "the provider says so") && n.Who != "runtime"
			}
		}
		if n := b.tool.sends("order-1"); n != 1 {
			t.Fatalf("%d sends before the kill: it came too late to be seen", n)
		}
	})
	if end := b.end(res.TraceID); end.State != tga.Completed || b.tool.sends("order-1") != 2 {
		t.Errorf("%s, %d sends", end.State, b.tool.sends("order-1"))
	}
}
