package turn_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/schemas/tga"
)

// TestDoubtGoesByLicenceAndTable: a tool behind HTTP answers late, with 429, or not at all. The
// tool's licence, its rules and OSSA's table determine how often it is called, the waits in
// between and the result of the turn. The tool's own count is the evidence.
func TestDoubtGoesByLicenceAndTable(t *testing.T) {
	serial.Test(t)
	const s = time.Second
	late := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	error500 := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	read, park, args := ledger.Licence{Kind: ledger.ReadOnly}, ledger.Licence{Kind: ledger.Park}, ledger.Licence{Kind: ledger.DedupeArgs}
	key := ledger.Licence{Kind: ledger.DedupeKey, Window: time.Hour}
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		works   int32 // number of the first call that works; 0 = none
		licence ledger.Licence
		rule    map[int]httpcall.Outcome
		sends   int32
		waits   []time.Duration
		waiting tga.Code // the code that the turn waits for
		code    tga.Code // the code of the failure that the model is told
	}{
		{name: "late, read_only", answer: late, licence: read, sends: 3, waits: []time.Duration{s, 2 * s}, code: tga.ToolTimeout},
		{name: "late once, read_only", answer: late, works: 2, licence: read, sends: 2, waits: []time.Duration{s}},
		{name: "late, dedupe_args", answer: late, licence: args, sends: 3, waits: []time.Duration{s, 2 * s}, code: tga.ToolTimeout},
		{name: "late, dedupe_key", answer: late, licence: key, sends: 3, waits: []time.Duration{s, 2 * s}, waiting: tga.EffectInDoubt},
		{name: "late once, dedupe_key", answer: late, works: 2, licence: key, sends: 2, waits: []time.Duration{s}},
		{name: "late, park", answer: late, licence: park, sends: 1, waiting: tga.EffectInDoubt},
		{name: "429, read_only", answer: busy, licence: read, sends: 4, waits: []time.Duration{7 * s, 7 * s, 7 * s}, code: tga.RateLimited},
		{name: "429 twice, dedupe_args", answer: busy, works: 3, licence: args, sends: 3, waits: []time.Duration{7 * s, 7 * s}},
		{name: "429, park", answer: busy, licence: park, sends: 1, waiting: tga.EffectInDoubt},
		{name: "429 is not executed, park", answer: busy, licence: park, rule: map[int]httpcall.Outcome{429: httpcall.NotExecuted}, sends: 4, waits: []time.Duration{7 * s, 7 * s, 7 * s}, code: tga.RateLimited},
		{name: "429 once is not executed, park", answer: busy, works: 2, licence: park, rule: map[int]httpcall.Outcome{429: httpcall.NotExecuted}, sends: 2, waits: []time.Duration{7 * s}},
		{name: "500, read_only", answer: error500, licence: read, sends: 4, waits: []time.Duration{s, 2 * s, 4 * s}, code: tga.ToolError},
		{name: "500, park", answer: error500, licence: park, sends: 1, waiting: tga.EffectInDoubt},
		{name: "reset, read_only", answer: broken, licence: read, sends: 4, waits: []time.Duration{s, 2 * s, 4 * s}, code: tga.ToolError},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sends atomic.Int32
			keys := make(chan string, 16)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				keys <- r.Header.Get("Idempotency-Key")
				if _, err := io.Copy(io.Discard, r.Body); err != nil { // otherwise the server does not notice that the client left
					t.Error(err)
				}
				if n := sends.Add(1); c.works == 0 || n < c.works {
					c.answer(w, r)
					return
				}
				if _, err := w.Write([]byte(`{"done":true}`)); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			over, err := httpcall.New(server.URL, httpcall.Options{Statuses: c.rule})
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, func(w *world) {
				w.defs = []turn.Tool{{Name: "remote", Server: "web", Remote: "remote", Timeout: 300 * time.Millisecond, InputSchema: []byte(`{"type":"object"}`)}}
				w.options = func(o *turn.Options) {
					o.Runtime.Policy = func(string, string) runtime.Policy {
						p := runtime.Policy{Licence: c.licence, LicenceSet: true}
						if c.licence.Kind == ledger.ReadOnly {
							p.Class = tga.ClassRead
						}
						return p
					}
				}
			})
			w.elsewhere = over
			res := w.run("call remote {}")
			if sends.Load() != c.sends || !slices.Equal(w.slept, c.waits) {
				t.Errorf("sent %d times, waited %v; want %d, %v", sends.Load(), w.slept, c.sends, c.waits)
			}
			close(keys)
			first := ""
			for k := range keys {
				if first == "" {
					first = k
				}
				if k == "" || k != first {
					t.Errorf("key %q after %q", k, first)
				}
			}
			switch {
			case c.waiting != "":
				if res.Status != turn.Waiting || res.Waiting.Code != c.waiting {
					t.Errorf("%+v", res)
				}
			case c.code != "":
				if res.Status != turn.Completed || len(res.Effects) != 1 || res.Effects[0].Failure == nil || res.Effects[0].Failure.Code != c.code || res.Effects[0].Retries != int(c.sends)-1 {
					t.Errorf("%+v", res)
				}
			default:
				if res.Status != turn.Completed || res.Effects[0].Status != turn.ToolSucceeded || res.Effects[0].Retries != int(c.sends)-1 {
					t.Errorf("%+v", res)
				}
			}
		})
	}
}

// TestRetryAfterBeyondTheTurnsTime: a turn does not wait longer than the time that it has; the
// model is told at once.
func TestRetryAfterBeyondTheTurnsTime(t *testing.T) {
	for limit, waits := range map[time.Duration]int{90 * time.Second: 0, 10 * time.Minute: 3} {
		w := newWorld(t, func(w *world) { w.agents[0].Constraints.Timeout = limit })
		w.fails["echo"] = func(int) (runtime.Reply, error) {
			e := tga.Errorf(tga.RateLimited, "too many: the call may have run")
			e.RetryAfter = 100 * time.Second
			return runtime.Reply{}, e
		}
		res := w.run("call echo {}")
		if res.Status != turn.Completed || len(w.slept) != waits || res.Effects[0].Failure.Code != tga.RateLimited {
			t.Errorf("%v: waited %v, %+v", limit, w.slept, res)
		}
	}
}
