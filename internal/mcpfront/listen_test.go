package mcpfront

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// TestClientsShareOneToolServer: however many come first at once.
func TestClientsShareOneToolServer(t *testing.T) {
	w := newWorld(t)
	f, url := w.fronted()
	one, err := f.open("", "")
	if err != nil {
		t.Fatal(err)
	}
	// Who has seen that there is none opens one, and so has another in the meantime.
	if two, err := f.open("", ""); err != nil || two != one {
		t.Errorf("%p is not %p, %v", two, one, err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	for range 16 {
		wg.Go(func() {
			_, got, err := tryPost(url, `{"jsonrpc":"2.0","id":1,"method":"started"}`)
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

// TestSessionThatWasDeletedIsGone: what is asked of it from then on gets 404, also while it is
// being cleared away.
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
		h := session2025(t, url)
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

// TestClientsDoNotCancelEachOther: the ids of one are those of another too.
func TestClientsDoNotCancelEachOther(t *testing.T) {
	w := newWorld(t)
	url := w.listening()
	if err := os.WriteFile(w.journal+".order", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := w.dir + "/go on"
	got := make(chan string)
	go func() {
		_, answer, err := tryPost(url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"`+file+`"}}}`)
		got <- fmt.Sprint(answer, err)
	}()
	eventually(t, "the call", func() bool { return len(w.effects()) == 1 })
	for id := range 4 {
		if status, said := post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)); status != http.StatusAccepted {
			t.Errorf("%d %s", status, said)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, <-got, `"ok"`)
	post(t, url, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`) // after all that was written
	if raw, err := os.ReadFile(w.journal + ".order"); err != nil || string(raw) != "tools/call\n" {
		t.Errorf("the tool server got %q, %v", raw, err)
	}
}

// fronted is [world.listening] with the front at hand.
func (w *world) fronted() (*front, string) {
	w.t.Helper()
	s, err := New(w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	if w.tune != nil {
		w.tune(s)
	}
	life, end := context.WithCancel(context.Background())
	f := s.front(life, s.meet)
	srv := httptest.NewUnstartedServer(f)
	srv.Config = f.server() // which knows the sockets of its clients
	srv.Start()
	w.t.Cleanup(func() {
		end()
		srv.CloseClientConnections()
		srv.Close()
		f.wg.Wait()
		if err := s.Close(); err != nil {
			w.t.Error(err)
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

// TestClientThatStopsReading: others that share its tool server are served all the same, and
// the conversation goes on when it is cut off.
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
			w.opts.Tools = func(tool string) Tool { return Tool{Ungoverned: tool == "free"} }
			w.tune = func(s *Shim) { s.stall = c.stall }
			f, url := w.fronted()
			_, before := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"started"}`)
			entered := f.next.Load()
			conn := silent(t, url, c.body)
			eventually(t, "the request", func() bool { return f.next.Load() > entered })
			if strings.Contains(c.body, "tools/call") {
				eventually(t, "the call", func() bool { return len(w.effects()) == 1 })
			}
			if _, after := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"started"}`); after != before {
				t.Errorf("%s is not %s", after, before)
			}
			if c.stall < time.Hour {
				eventually(t, "it to be cut off", func() bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.shared[""].mu.Lock()
					defer f.shared[""].mu.Unlock()
					return len(f.shared[""].waits) == 0
				})
				if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, conn); n > 40<<20 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("it got %d bytes, %v", n, err)
				}
				if _, after := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"started"}`); after != before {
					t.Errorf("%s is not %s", after, before)
				}
			}
		})
	}
}

// TestConnectionThatBreaks: the conversation may be others' too, and goes on.
func TestConnectionThatBreaks(t *testing.T) {
	e := &exchange{events: make(chan event, 1), gone: t.Context().Done()}
	one := &session{f: newFront(FrontOptions{}, nil, t.Context()), waits: map[frames.Key]*exchange{frames.KeyOf([]byte("1")): e}}
	go func() { (<-e.events).done <- errors.New("broken") }()
	m := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	if err := one.send(&m.Envelope, m); !errors.Is(err, errNoTaker) {
		t.Errorf("error %v: it was not delivered", err)
	}
}

// TestCancellationComesAfterItsRequest: a client that is gone at once has given up what the
// tool server gets, and that hears so afterwards.
func TestCancellationComesAfterItsRequest(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.journal+".order", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asked, goOn := make(chan bool, 1), make(chan bool)
	w.opts.Tools = func(string) Tool {
		asked <- true
		<-goOn
		return Tool{Ungoverned: true}
	}
	f, _ := w.fronted()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"`+w.dir+`/never"}}}`))
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
	if err := os.WriteFile(w.dir+"/never", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cancellation", func() bool {
		raw, err := os.ReadFile(w.journal + ".order")
		return err == nil && string(raw) == "tools/call\nnotifications/cancelled\n"
	})
}

// deaf is a client whose connection takes nothing until it breaks.
type deaf struct {
	*httptest.ResponseRecorder
	begun chan bool
	once  sync.Once
	gone  <-chan struct{}
}

func (d *deaf) Write([]byte) (int, error) {
	d.once.Do(func() { close(d.begun) })
	<-d.gone
	return 0, errors.New("broken")
}

// TestStreamThatBreaks: what its client was not sent is in the next one.
func TestStreamThatBreaks(t *testing.T) {
	w := newWorld(t)
	f, _ := w.fronted()
	one := &session{f: f, c: &alone{conv: &conv{life: t.Context()}}, over: make(chan struct{}), waits: map[frames.Key]*exchange{}}
	f.sessions = map[string]*session{"x": one}
	open := func(ctx context.Context, to http.ResponseWriter) (over chan bool) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/mcp", nil)
		r.Header.Set(sessionHeader, "x")
		over = make(chan bool)
		go func() {
			defer close(over)
			f.ServeHTTP(to, r)
		}()
		return over
	}
	say := func(n int) {
		m := frames.NewFrame(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"n%d"}`, n))
		if err := one.hand(&m.Envelope, m); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &deaf{ResponseRecorder: httptest.NewRecorder(), begun: make(chan bool), gone: ctx.Done()}
	say(0)
	over := open(ctx, d)
	<-d.begun // 0 is on its way, and lost with the connection
	for n := 1; n <= 3; n++ {
		say(n)
	}
	cancel()
	<-over
	say(4)
	in, out := io.Pipe()
	ctx, cancel = context.WithCancel(t.Context())
	over = open(ctx, piped{httptest.NewRecorder(), out})
	lines := bufio.NewReader(in)
	for n := 1; n <= 4; {
		line, err := readWithin(lines, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data: ") {
			has(t, line, fmt.Sprintf(`"n%d"`, n))
			n++
		}
	}
	cancel()
	_ = in.Close()
	<-over
}

type piped struct {
	*httptest.ResponseRecorder
	to io.Writer
}

func (p piped) Write(b []byte) (int, error) { return p.to.Write(b) }
