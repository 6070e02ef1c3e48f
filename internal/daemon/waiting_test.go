package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
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
	status, header, raw := b.raw("POST", "/v1/tool-calls", `{"tool_server":"pay","tool_name":"charge","idempotency_key":"slow","args":`+string(charge("slow").Args)+`}`, wire.HeaderTimeout, "2s")
	var p wire.Problem
	if err := json.Unmarshal(raw, &p); err != nil || status != http.StatusConflict || p.Code != tga.IdempotencyKeyInFlight || !p.Retryable {
		t.Errorf("%d %s", status, raw)
	}
	for _, name := range []string{"Server", "Date", "Content-Length", "Content-Type", "Retry-After"} {
		if header.Get(name) == "" {
			t.Errorf("the answer has no %s: %v", name, header)
		}
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

// TestLongestWaitIsWaited: a caller may give the longest time that there is.
func TestLongestWaitIsWaited(t *testing.T) {
	b := start(t, "")
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		time.Sleep(100 * time.Millisecond) // only a daemon that does not wait answers before
		io.WriteString(w, `"paid"`)
	})
	for _, longest := range []time.Duration{math.MaxInt64, math.MaxInt64 - lastWords/2} {
		status, _, raw := b.raw("POST", "/v1/tool-calls", `{"tool_server":"pay","tool_name":"charge","idempotency_key":"`+longest.String()+`"}`, wire.HeaderTimeout, longest.String())
		if status != http.StatusOK {
			t.Errorf("%v: %d %s", longest, status, raw)
		}
	}
}

// TestCallHoldsNoConnectionOfWhoLeft: a caller that waits no longer, because its time is over
// or because it went away, gives its connection's place back at once; the calls go on. Each is
// counted when it is let go.
func TestCallHoldsNoConnectionOfWhoLeft(t *testing.T) {
	b := start(t, "[limits]\nuid_connections = 5\n")
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		arrived <- struct{}{}
		<-release
		io.WriteString(w, `"paid"`)
	})
	const each = 4 // of either kind
	var late sync.WaitGroup
	for i := range each {
		late.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if _, err := b.client.Call(ctx, charge(fmt.Sprint("late-", i))); err == nil {
				t.Error("a call whose tool does not answer succeeds")
			}
		})
		<-arrived
	}
	late.Wait()
	for i := range each {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := b.client.Call(ctx, charge(fmt.Sprint("gone-", i)))
			gone <- err
		}()
		select {
		case <-arrived:
		case err := <-gone:
			t.Fatal(err)
		}
		cancel()
		wantCode(t, <-gone, tga.StoreUnavailable)
		for b.scrape(`tgad_http_requests_total{method="POST",route="/v1/tool-calls",status="499"}`) != float64(i+1) {
			if t.Failed() {
				return // nobody is answered any more
			}
			time.Sleep(time.Millisecond)
		}
	}
	if n := b.scrape("tgad_calls_in_flight"); n != 2*each {
		t.Errorf("%v calls are under way, want %d", n, 2*each)
	}
	close(release)
	b.stop() // the calls come to their ends first
	for i := range each {
		if late, gone := b.tool.sends(fmt.Sprint("late-", i)), b.tool.sends(fmt.Sprint("gone-", i)); late != 1 || gone != 1 {
			t.Errorf("%d and %d sends of calls whose callers waited no longer", late, gone)
		}
	}
}

// childPanic serves one request whose call panics, as net/http serves the daemon's.
func childPanic() int {
	d := &Daemon{tools: noTools(), log: slog.New(slog.DiscardHandler), inFlight: newPlaces(1), life: context.Background()}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := run(&request{d: d, w: w, r: r}, "n", func(context.Context) (int, error) { panic("in a call") })
		fmt.Fprintln(os.Stderr, err)
	}))
	defer srv.Close()
	_, err := http.Get(srv.URL)
	fmt.Println("the process goes on:", err)
	return 0
}

// TestPanicInACallEndsTheProcess: what the call held, nobody else can let go.
func TestPanicInACallEndsTheProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"=panic")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || len(out) > 0 {
		t.Errorf("%v; it says %s", err, out)
	}
	if s := stderr.Bytes(); !bytes.Contains(s, []byte("panic: in a call")) || !bytes.Contains(s, []byte("childPanic.func")) {
		t.Errorf("standard error does not say where:\n%s", s)
	}
}
