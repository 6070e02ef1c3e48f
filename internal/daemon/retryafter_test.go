package daemon

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRetryAfterTravels: how long a tool server asks not to be asked again goes from its answer, or
// from what a remote executor reports of it, into the effect and back to the client as a number; of
// a call in doubt it is in the refusal, and what is over a day is a day.
func TestRetryAfterTravels(t *testing.T) {
	b := start(t, "")
	ctx := t.Context()
	const day = 86400
	for seconds, want := range map[int]time.Duration{0: 0, 7: 7 * time.Second, day: tga.MaxRetryAfter, day + 1: tga.MaxRetryAfter} {
		b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Retry-After", fmt.Sprint(seconds))
			w.WriteHeader(http.StatusTooManyRequests)
		})
		req := charge(fmt.Sprint("k", seconds))
		req.Tool = "charge_opaque" // park: sent once
		_, err := b.client.Call(ctx, req)
		wantCode(t, err, tga.EffectInDoubt)
		if got := tga.RetryAfterOf(err); got != want {
			t.Errorf("%d seconds: in doubt, to wait %v, want %v", seconds, got, want)
		}
		begun, err := b.client.Begin(ctx, runtime.BeginRequest{
			Request: runtime.Request{Server: "remote", Tool: "put", Key: fmt.Sprint(seconds)}, BeginID: fmt.Sprint("begin ", seconds),
		})
		if err != nil || begun.Standing != runtime.BeginSend {
			t.Fatal(begun, err)
		}
		trace := begun.Result.TraceID
		res, err := b.client.Finish(ctx, trace, begun.Permit, runtime.Finished{Reply: runtime.Reply{
			Status: tga.StatusFailure, Class: ledger.ClassRetryable, RetryAfter: time.Duration(seconds) * time.Second,
		}})
		read, rerr := b.client.Recover(ctx, trace)
		if err != nil || rerr != nil || res.RetryAfter != want || read.RetryAfter != want {
			t.Errorf("%d seconds: %v, %v, %v, %v, want %v", seconds, res.RetryAfter, err, read.RetryAfter, rerr, want)
		}

		// Of an attempt that reached nobody, and of one that its executor gives up.
		begin := func(what, id string) runtime.Begun {
			t.Helper()
			begun, err := b.client.Begin(ctx, runtime.BeginRequest{
				Request: runtime.Request{Server: "remote", Tool: "put", Key: fmt.Sprint(what, seconds)}, BeginID: fmt.Sprint(id, seconds),
			})
			if err != nil {
				t.Fatal(err)
			}
			return begun
		}
		begun = begin("unsent", "unsent")
		res, err = b.client.NotSent(ctx, begun.Result.TraceID, begun.Permit, "HTTP status 503", time.Duration(seconds)*time.Second)
		read, rerr = b.client.Recover(ctx, begun.Result.TraceID)
		if err != nil || rerr != nil || res.RetryAfter != want || read.RetryAfter != want {
			t.Errorf("%d seconds, not sent: %v, %v, %v, %v, want %v", seconds, res.RetryAfter, err, read.RetryAfter, rerr, want)
		}
		begun = begin("given up", "given up")
		if err := b.client.GiveUp(ctx, begun.Result.TraceID, begun.Permit, "", time.Duration(seconds)*time.Second); err != nil {
			t.Fatal(err)
		}
		again := begin("given up", "again")
		// Of what is left of it, what has certainly passed is taken away.
		if got := tga.RetryAfterOf(again.Cause); again.Standing != runtime.BeginInDoubt || got > want || want > 0 && got < want-time.Minute {
			t.Errorf("%d seconds, given up: %v, to wait %v, want %v", seconds, again.Standing, got, want)
		}
	}
}
