package entry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
)

// TestClientsShareOneToolServer: clients share one tool server even if many come first at once.
func TestClientsShareOneToolServer(t *testing.T) {
	w := newWorld(t)
	f, url := w.fronted()
	one, err := f.Open("")
	if err != nil {
		t.Fatal(err)
	}
	// Who has seen that there is none opens one, and so has another in the meantime.
	if two, err := f.Open(""); err != nil || two != one {
		t.Errorf("%v is not %v, %v", two, one, err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	for range 16 {
		wg.Go(func() {
			_, got, err := fronttest.TryPost(url, `{"jsonrpc":"2.0","id":1,"method":"started"}`)
			mu.Lock()
			defer mu.Unlock()
			seen[fmt.Sprint(got, err)]++
		})
	}
	wg.Wait()
	if len(seen) != 1 {
		t.Errorf("%v", seen)
	}
}

// TestSessionThatWasDeletedIsGone: a request to a deleted session gets 404, even while the session
// is still being removed.
func TestSessionThatWasDeletedIsGone(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	ask := func(method string, h []string) int {
		req, err := http.NewRequest(method, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		if h != nil {
			req.Header.Set(h[0], h[1])
		}
		resp, err := (&http.Client{Timeout: 20 * time.Second}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for range 3 {
		h := fronttest.Session2025(t, url)
		if got := ask(http.MethodDelete, h); got != http.StatusNoContent {
			t.Fatalf("DELETE: %d", got)
		}
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			if got := ask(method, h); got != http.StatusNotFound {
				t.Errorf("%s of a session that was deleted: %d", method, got)
			}
		}
	}
	if got := ask(http.MethodGet, nil); got != http.StatusMethodNotAllowed {
		t.Errorf("GET without a session: %d", got)
	}
}

// TestClientsDoNotCancelEachOther: clients of a shared conversation use the same ids, and none
// cancels another's request.
func TestClientsDoNotCancelEachOther(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	if err := os.WriteFile(w.Journal+".order", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := w.Dir + "/go on"
	got := make(chan string)
	go func() {
		_, answer, err := fronttest.TryPost(url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"`+file+`"}}}`)
		got <- fmt.Sprint(answer, err)
	}()
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 1 })
	for id := range 4 {
		if status, said := fronttest.Post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)); status != http.StatusAccepted {
			t.Errorf("%d %s", status, said)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, <-got, `"ok"`)
	fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`) // its answer comes after all earlier writes
	if raw, err := os.ReadFile(w.Journal + ".order"); err != nil || string(raw) != "tools/call\n" {
		t.Errorf("the tool server got %q, %v", raw, err)
	}
}

// fronted is [world.listening] and also returns the front.
func (w *world) fronted() (*entry.Front, string) {
	w.T.Helper()
	s, err := mcpfront.New(w.options())
	if err != nil {
		w.T.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	f := s.Front(life, nil, nil)
	srv := httptest.NewUnstartedServer(f)
	srv.Config = f.Server() // notes the socket of each request
	srv.Start()
	w.T.Cleanup(func() {
		end()
		srv.CloseClientConnections()
		srv.Close()
		f.Wait()
		if err := s.Close(); err != nil {
			w.T.Error(err)
		}
	})
	return f, srv.URL + "/mcp"
}

// silent sends a request and reads nothing of its answer.
func silent(t *testing.T, url, body string) net.Conn {
	t.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", address, len(body), body); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestClientThatStopsReading: clients that share its tool server are served all the same, and the
// conversation goes on after the client is cut off.
func TestClientThatStopsReading(t *testing.T) {
	const long, flood = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"free","arguments":{"mib":48}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"flood","params":{"n":400,"_meta":{"progressToken":1}}}`
	for name, c := range map[string]struct {
		stall time.Duration
		body  string
	}{
		"one long answer":    {time.Hour, long}, // nobody waits for it
		"more than it takes": {2 * time.Second, flood},
		"cut off":            {2 * time.Second, strings.Replace(long, "free", "charge", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.opts.Tools = func(tool string) toolcall.Tool { return toolcall.Tool{Ungoverned: tool == "free"} }
			f, url := w.fronted()
			f.SetStall(c.stall)
			_, before := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"started"}`)
			entered := f.Entered()
			conn := silent(t, url, c.body)
			fronttest.Eventually(t, "the request", func() bool { return f.Entered() > entered })
			if strings.Contains(c.body, "tools/call") {
				fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 1 })
			}
			if _, after := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"started"}`); after != before {
				t.Errorf("%s is not %s", after, before)
			}
			if c.stall < time.Hour {
				fronttest.Eventually(t, "it to be cut off", func() bool { return f.Waiting() == 0 })
				if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, conn); n > 40<<20 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("it got %d bytes, %v", n, err)
				}
				if _, after := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"started"}`); after != before {
					t.Errorf("%s is not %s", after, before)
				}
			}
		})
	}
}

// TestCancellationComesAfterItsRequest: a client that goes away at once gives up its request. The
// tool server gets the request first and the cancellation after it.
func TestCancellationComesAfterItsRequest(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.Journal+".order", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asked, goOn := make(chan bool, 1), make(chan bool)
	w.opts.Tools = func(string) toolcall.Tool {
		asked <- true
		<-goOn
		return toolcall.Tool{Ungoverned: true}
	}
	f, _ := w.fronted()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"`+w.Dir+`/never"}}}`))
	over := make(chan bool)
	go func() {
		defer close(over)
		f.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-asked
	cancel()
	select {
	case <-over:
		t.Error("it was given up before it was known")
	case <-time.After(100 * time.Millisecond):
	}
	close(goOn)
	<-over
	if err := os.WriteFile(w.Dir+"/never", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Eventually(t, "the cancellation", func() bool {
		raw, err := os.ReadFile(w.Journal + ".order")
		return err == nil && string(raw) == "tools/call\nnotifications/cancelled\n"
	})
}

// TestRepeatOverHTTP: once a client has closed its stream, the same call is a repeat of its call. A
// call whose stream is open belongs to another client, who may want the same.
func TestRepeatOverHTTP(t *testing.T) {
	w := newWorld(t)
	_, url := w.fronted()
	gate := filepath.Join(w.Dir, "gate")
	args := fmt.Sprintf(`{"wait":%q}`, gate)
	body, header := fronttest.Modern("1", "tools/call", `"name":"charge","arguments":`+args, "Mcp-Name", "charge")

	// The call is given up and made again at once, ten times.
	for i := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k := 0; k < len(header); k += 2 {
			req.Header.Set(header[k], header[k+1])
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		if i == 0 {
			fronttest.Eventually(t, "the effect", func() bool { return len(w.Effects()) == 1 })
		} else {
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		<-done
	}
	if n := len(w.Effects()); n != 1 {
		t.Fatalf("%d effects of one call that was made ten times", n)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, got := fronttest.Post(t, url, body, header...)
	if n := len(w.Effects()); n != 1 || !strings.Contains(got, "replayed") && !strings.Contains(got, "OUTCOME UNKNOWN") {
		t.Fatalf("%d effects, answer %s", n, got)
	}

	// The same call of two clients at the same time is two calls.
	gate = filepath.Join(w.Dir, "gate2")
	args = fmt.Sprintf(`{"wait":%q}`, gate)
	body, header = fronttest.Modern("1", "tools/call", `"name":"charge","arguments":`+args, "Mcp-Name", "charge")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, got, err := fronttest.TryPost(url, body, header...)
			if err != nil || !strings.Contains(got, `"ok"`) || strings.Contains(got, "replayed") {
				t.Errorf("%v %s", err, got)
			}
		})
	}
	fronttest.Eventually(t, "the first effect", func() bool { return len(w.Effects()) >= 2 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := len(w.Effects()); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
}

// TestClosedStreamIsSeenBeforeTheServerIsTold: the next call looks at the streams itself, because
// the goroutine that serves the closed stream may not have run yet.
func TestClosedStreamIsSeenBeforeTheServerIsTold(t *testing.T) {
	w := newWorld(t)
	f, url := w.fronted()
	body, header := fronttest.Modern("1", "echo", "")
	fronttest.Post(t, url, body, header...) // opens the shared session
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "ours")
	defer ours.Close()
	raw, _ := fronttest.Modern("2", "tools/call", fmt.Sprintf(`"name":"charge","arguments":{"wait":%q}`, filepath.Join(w.Dir, "gate")))
	s, err := f.Enter(raw, ours, t.Context().Done(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Leave()
	s.Ask()
	fronttest.Eventually(t, "the effect", func() bool { return len(w.Effects()) == 1 })
	locks, err := filepath.Glob(filepath.Join(w.Dir, "state", "live", "*.lock"))
	if err != nil || len(locks) != 2 { // the lock of the shim and the lock of the stream
		t.Fatalf("%v %v", locks, err)
	}
	held := func() (n int) {
		for _, path := range locks {
			if is, _ := filelock.Held(path); is {
				n++
			}
		}
		return n
	}
	f.Reap()
	if n := held(); n != 2 {
		t.Fatalf("%d locks are held while the client is there", n)
	}
	if err := syscall.Close(pair[1]); err != nil {
		t.Fatal(err)
	}
	f.Reap()
	if n := held(); n != 1 {
		t.Errorf("%d locks are held after the client has closed its stream, want the shim's alone", n)
	}
}

// watched is a log that notes at each Begin whether the client's lock is held.
type watched struct {
	asklog.Log
	held chan bool
}

func (l *watched) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	is, _ := filelock.Held(req.Connection.Lock)
	l.held <- is
	return l.Log.Begin(ctx, req)
}

// TestGoneClientIsNotThereForTheLog: if a client has left its request, alone or in an array, before
// the request reaches the log, the log sees that the client is gone, even if Reap ran too early.
func TestGoneClientIsNotThereForTheLog(t *testing.T) {
	for _, array := range []bool{false, true} {
		for _, left := range []bool{false, true} {
			t.Run(fmt.Sprintf("array=%v/left=%v", array, left), func(t *testing.T) {
				w := newWorld(t)
				log := &watched{Log: w.Local(), held: make(chan bool, 8)}
				w.log = log
				f, url := w.fronted()
				body, header := fronttest.Modern("1", "echo", "")
				fronttest.Post(t, url, body, header...) // opens the shared session
				pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
				if err != nil {
					t.Fatal(err)
				}
				ours := os.NewFile(uintptr(pair[0]), "ours")
				defer ours.Close()
				raw, _ := fronttest.Modern("2", "tools/call", `"name":"charge","arguments":{}`)
				if array {
					raw = "[" + raw + "]"
				}
				gone := make(chan struct{})
				f.Reap() // too early to see it
				s, err := f.Enter(raw, ours, gone, !array)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Leave()
				if left {
					err = syscall.Close(pair[1])
				} else {
					defer syscall.Close(pair[1])
				}
				if err != nil {
					t.Fatal(err)
				}
				s.Ask()
				if held := <-log.held; held == left {
					t.Errorf("the log saw held = %v of a client that left = %v", held, left)
				}
				close(gone) // nobody takes the answer
				fronttest.Eventually(t, "the end of the call", func() bool { return !s.Busy() })
				if left {
					if n := len(w.Effects()); n != 0 {
						t.Errorf("%d effects of a call whose client was gone before it was sent", n)
					}
				}
			})
		}
	}
}

// TestLineEndInATextDoesNotPass: JSON has no line ends in its texts, so such a message is malformed, in an array too. Between
// the tokens line ends are white space.
func TestLineEndInATextDoesNotPass(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	h := fronttest.Session2025(t, url)
	const call = `{"jsonrpc":"2.0",LF"id":1,"method":"tools/call",LF"params":{"name":"charge","arguments":{"a":"xHEREy","b":"\\"LF}}}`
	for _, end := range []string{"\n", "\r", "\r\n"} {
		good := strings.ReplaceAll(strings.ReplaceAll(call, "LF", end), "HERE", `\"`)
		bad := strings.ReplaceAll(strings.ReplaceAll(call, "LF", end), "HERE", end)
		for _, body := range []string{bad, "[" + bad + "]"} {
			n := len(w.Effects())
			_, got := fronttest.Post(t, url, body, h...)
			fronttest.Has(t, got, `"error"`, `"code":-32`)
			if len(w.Effects()) != n {
				t.Errorf("it ran: %q", body)
			}
		}
		_, got := fronttest.Post(t, url, good, h...)
		fronttest.Has(t, got, `"ok"`)
	}
}
