package mcpfront

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/ledger"
)

func TestBatchIsTakenApartAndAnsweredWhole(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	h.Write(`[{"jsonrpc":"2.0","id":1,"method":"echo","params":{"n":9007199254740993}},` +
		`{"jsonrpc":"2.0","method":"notifications/x"},` +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{}}},` +
		`{"jsonrpc":"2.0","id":3,"method":"ping","Method":"tools/call"}, 7,` +
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"charge","arguments":{"a":1,"a":2}}}]`)
	var all []json.RawMessage
	line := h.ReadLine()
	if err := json.Unmarshal([]byte(line), &all); err != nil || len(all) != 5 {
		t.Fatalf("got %s, %v", line, err)
	}
	fronttest.Has(t, line, `"n":9007199254740993`, `"text":"ok"`, `"id":3,"error"`, `"id":null,"error"`, "/params/arguments/a")
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
	for _, bad := range []string{`[]`, `[`, `[` + strings.Repeat(`{},`, frames.MaxBatch) + `{}]`} {
		h.Write(bad)
		fronttest.Has(t, h.ReadLine(), `"id":null,"error"`)
	}
}

// TestBatchIsDeliveredWhole: a call counts as delivered when the array with its answer was delivered,
// not before. Until then a repeat is served.
func TestBatchIsDeliveredWhole(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"charge","arguments":{"a":1}}}`
	h.Write(`[` + fmt.Sprintf(call, 1) + `,{"jsonrpc":"2.0","id":2,"method":"ask","params":{}}]`)
	fronttest.Has(t, h.ReadLine(), "sampling/createMessage")
	fronttest.Eventually(t, "the call to be recorded", func() bool {
		e := w.Effects()
		if len(e) == 0 {
			return false
		}
		r := w.Record("charge", e[0].Key)
		return r != nil && r.Status == ledger.Settled
	})
	h.Write(fmt.Sprintf(call, 3))
	fronttest.Has(t, h.Answer("3"), "replayed")
	// That answer was delivered, so the same call is a new call.
	h.Write(fmt.Sprintf(call, 4))
	fronttest.Lacks(t, h.Answer("4"), "replayed")
	h.Write(`{"jsonrpc":"2.0","id":"q1","result":{}}`)
	fronttest.Has(t, h.ReadLine(), `"id":1`, `"id":2`, `"heard"`)
	if n := len(w.Effects()); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// TestNamesInBatches: the same call twice in an array is one call, and so are the same calls in two
// arrays at the same time. After delivery the same calls are new calls.
func TestNamesInBatches(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	array := func(ids int, args ...int) string {
		var all []string
		for i, a := range args {
			all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"charge","arguments":{"a":%d}}}`, ids+i, a))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for round := range 3 {
		h.Write(array(100*round, 1, 2, 1, 3))
		h.Write(array(100*round+50, 3, 2, 1))
		for range 2 {
			fronttest.Lacks(t, h.ReadLine(), "error")
		}
		// A call that comes after both was not sent before both deliveries were noted.
		fronttest.Has(t, h.Call(fmt.Sprint(1000+round), "charge", fmt.Sprintf(`{"a":%d}`, 10+round)), `"ok"`)
	}
	if n := len(w.Effects()); n < 12 || n > 3*(6+1) {
		t.Errorf("%d effects", n)
	}
}

// TestBatchWithARequestThatIsGivenUp: the other requests of the batch are answered.
func TestBatchWithARequestThatIsGivenUp(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	file := filepath.Join(w.Dir, "go on")
	h.Write(`[{"jsonrpc":"2.0","id":1,"method":"ask","params":{}},{"jsonrpc":"2.0","id":2,"method":"echo","params":{}}]`)
	fronttest.Has(t, h.ReadLine(), "sampling/createMessage")
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if got := h.ReadLine(); got != `[{"result":{},"jsonrpc":"2.0","id":2}]` {
		t.Errorf("got %s", got)
	}
	h.Write(`[{"jsonrpc":"2.0","id":3,"method":"echo","params":{}},{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"` + file + `"}}}]`)
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 1 })
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
	if got := h.ReadLine(); got != `[{"result":{},"jsonrpc":"2.0","id":3}]` {
		t.Errorf("got %s", got)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Ask("5", "echo", `{"n":1}`), `"n":1`)
}

// TestBatchesOverHTTP: several batches at once, a batch of notifications alone, batches beside a tool
// server that writes malformed lines, and a batch without a session.
func TestBatchesOverHTTP(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	h := fronttest.Session2025(t, url)
	file := filepath.Join(w.Dir, "go on")
	first := make(chan string)
	go func() {
		_, got, err := fronttest.TryPost(url, `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"`+file+`"}}}]`, h...)
		first <- fmt.Sprint(got, err)
	}()
	fronttest.Eventually(t, "the first call", func() bool { return len(w.Effects()) == 1 })
	second := make(chan string)
	go func() {
		_, got, err := fronttest.TryPost(url, `[{"jsonrpc":"2.0","id":2,"method":"babble"},{"jsonrpc":"2.0","id":3,"method":"echo","params":{}}]`, h...)
		second <- fmt.Sprint(got, err)
	}()
	if status, got := fronttest.Post(t, url, `[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":9,"result":{}}]`, h...); status != http.StatusAccepted || got != "" {
		t.Errorf("%d %s", status, got)
	}
	if status, got := fronttest.Post(t, url, `[]`, h...); status != 200 || !strings.Contains(got, `"id":null,"error"`) {
		t.Errorf("%d %s", status, got)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, <-first, `[{"jsonrpc":"2.0","id":1,"result"`, `"ok"`)
	got := <-second
	fronttest.Has(t, got, `"id":2`, `"id":3`)
	fronttest.Lacks(t, got, "no message")
	if status, got := fronttest.Post(t, url, `[{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}]`); status != 400 || !strings.Contains(got, "begin with initialize") {
		t.Errorf("%d %s", status, got)
	}
}

// TestCancelledArrayEndsItsPost: the POST of an array ends once each of its requests is given up, and the POST of a request
// ends also if an array gives it up.
func TestCancelledArrayEndsItsPost(t *testing.T) {
	w := newWorld(t)
	w.opts.CancelGrace = time.Millisecond
	url := w.listening()
	h := fronttest.Session2025(t, url)
	call := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"mute","arguments":{"n":%d}}}`, id, id)
	}
	cancel := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
	}
	const hold = `{"jsonrpc":"2.0","id":%d,"method":"hold"}`
	for name, c := range map[string]struct {
		post  string
		waits bool // the tool server gets a call of it
		then  string
	}{
		"a call of an array":                {"[" + call(1) + "]", true, cancel(1)},
		"a passed request of an array":      {"[" + fmt.Sprintf(hold, 10) + "]", false, cancel(10)},
		"all of an array, by an array":      {"[" + call(2) + "," + fmt.Sprintf(hold, 11) + "]", true, "[" + cancel(2) + "," + cancel(11) + "]"},
		"a request, by an array":            {call(3), true, "[" + cancel(3) + "]"},
		"a passed request, by an array":     {fmt.Sprintf(hold, 12), false, "[" + cancel(12) + "]"},
		"by an array with a request":        {call(4), true, "[" + cancel(4) + `,{"jsonrpc":"2.0","id":13,"method":"echo","params":{}}]`},
		"by the array that has the request": {"[" + call(5) + "," + cancel(5) + "]", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.Effects())
			ended := make(chan string, 1)
			go func() {
				status, got, _, err := fronttest.ExchangeBy(&http.Client{Timeout: 20 * time.Second}, url, c.post, h...)
				ended <- fmt.Sprint(status, " ", got, err)
			}()
			if c.waits {
				fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) > before })
			}
			end := ""
			fronttest.Eventually(t, "the end of the POST", func() bool {
				if c.then != "" {
					fronttest.Post(t, url, c.then, h...)
				}
				select {
				case end = <-ended:
				case <-time.After(20 * time.Millisecond):
				}
				return end != ""
			})
			if end != "200 <nil>" {
				t.Errorf("it ended with %s", end)
			}
		})
	}
}
