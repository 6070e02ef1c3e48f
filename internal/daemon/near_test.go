package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// said is an answer without what differs from one moment to the next.
type said struct {
	Status int
	Header http.Header
	Body   string
}

func readSaid(t *testing.T, resp *http.Response) said {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	h := resp.Header.Clone()
	for _, name := range []string{"Date", "Connection"} {
		h.Del(name) // of the connection
	}
	if h.Get("Content-Type") == wire.NDJSONType {
		h.Del("Content-Length") // of a stream that is short enough
	}
	return said{resp.StatusCode, h, string(raw)}
}

// bySocket and byNear make one request by either way. A server that refuses a request before it has read
// its body closes half a second later: where a busy machine kept us from reading that long, the answer
// is gone, and we ask again.
func (b *bench) bySocket(text string) said {
	b.t.Helper()
	for range 10 {
		if s, ok := b.onceBySocket(text); ok {
			return s
		}
	}
	b.t.Fatalf("%.100s: ten times reset", text)
	return said{}
}

func (b *bench) onceBySocket(text string) (s said, ok bool) {
	b.t.Helper()
	c, err := net.Dial("unix", b.socket)
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil && !reset(err) {
		b.t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if reset(err) {
		return s, false
	}
	if err != nil {
		b.t.Fatalf("%.100s: %v", text, err)
	}
	return readSaid(b.t, resp), true
}

func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (b *bench) byNear(text string) said {
	b.t.Helper()
	resp, ok, err := b.near.Exchange(b.t.Context(), []byte(text))
	if !ok || err != nil {
		b.t.Fatalf("%.100s: %v, %v", text, ok, err)
	}
	return readSaid(b.t, resp)
}

func wireText(method, path, header, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s", method, path, header, len(body), body)
}

// TestNearSaysWhatASocketSays: every route has the same status, headers and body by either way, for good
// and bad requests, from peers that may and peers that may not make them.
func TestNearSaysWhatASocketSays(t *testing.T) {
	const (
		host = "Host: " + wire.Host + "\r\n"
		who  = wire.HeaderClient + ": t\r\n"
	)
	for _, role := range []struct{ name, config string }{
		{"may do all", ""},
		{"may read", fmt.Sprintf("[[role]]\nuid = [%d]\nverbs = [\"read\"]\n", os.Geteuid())},
		{"has no verb", fmt.Sprintf("[[role]]\nuid = [%d]\nverbs = [\"read\"]\n", os.Geteuid()+1)},
	} {
		t.Run(role.name, func(t *testing.T) {
			b := start(t, "[limits]\nrequest_bytes = \"64KiB\"\n"+role.config)
			requests := []string{
				wireText("GET", "/nowhere", host+who, ""), wireText("GET", "/v1//traces", host+who, ""),
				wireText("PATCH", "/v1/begin", host+who, "{}"), wireText("POST", "/v1/begin", "Host: else\r\n"+who, "{}"),
				wireText("POST", "/v1/begin", host, "{}"), wireText("HEAD", "/v1/traces", host+who, ""),
			}
			for _, r := range routes {
				path := strings.NewReplacer("{id}", "019a0000-0000-7000-8000-000000000001", "{digest}", tga.Sum(nil).String()).Replace(r.path)
				if r.path == "/metrics" {
					continue // each request is counted in it
				}
				for _, body := range []string{"", "{}", "{", `{"a":1,"a":2}`, `{"no such member":1}`, strings.Repeat(" ", 64<<10), strings.Repeat(" ", 64<<10+1)} {
					if r.method == http.MethodGet && body != "" || strings.HasSuffix(r.path, "/lease") && len(body) != 1 {
						continue // the second to ask for a lease finds that it is taken
					}
					requests = append(requests, wireText(r.method, path, host+who, body))
				}
			}
			for _, text := range requests {
				if diff := cmp.Diff(b.bySocket(text), b.byNear(text)); diff != "" {
					t.Errorf("%.200s\n%s", text, diff)
				}
			}
			if _, ok, err := b.near.Exchange(t.Context(), []byte("not HTTP")); !ok || tga.CodeOf(err) != tga.ValidationError {
				t.Errorf("what is no request: %v, %v", ok, err)
			}
		})
	}
}

// nearClient is a client in the daemon's process. Nothing of it may reach a socket.
func (b *bench) nearClient() *client.Client {
	return client.New(b.socket, client.Options{Name: "near", Exchange: b.near.Exchange, Dial: func(context.Context) (net.Conn, error) {
		b.t.Error("a socket was dialled")
		return nil, net.ErrClosed
	}})
}

// TestNearCallOutlivesItsCaller: a caller whose time is over, or that stops waiting, gets its answer at
// once. The call continues and is counted, and the end of the daemon waits for it.
func TestNearCallOutlivesItsCaller(t *testing.T) {
	b := start(t, "")
	arrived, release := make(chan struct{}), make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		arrived <- struct{}{}
		<-release
		io.WriteString(w, `"paid"`)
	})
	c := b.nearClient()
	text := wireText("POST", "/v1/tool-calls", "Host: tgad\r\nTgad-Client: t\r\nTgad-Timeout: 1s\r\n",
		`{"tool_server":"pay","tool_name":"charge","idempotency_key":"late","args":{"amount":5}}`)
	late := make(chan said, 1)
	go func() { late <- b.byNear(text) }()
	<-arrived
	if got := <-late; got.Status != http.StatusConflict || !strings.Contains(got.Body, string(tga.IdempotencyKeyInFlight)) || got.Header.Get("Retry-After") == "" {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, charge("gone"))
		gone <- err
	}()
	<-arrived
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Error(err)
	}
	for b.scrape(`tgad_http_requests_total{method="POST",route="/v1/tool-calls",status="499"}`) != 1 && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	if n := b.scrape("tgad_calls_in_flight"); n != 2 {
		t.Errorf("%v calls are under way, want 2", n)
	}
	var served sync.WaitGroup
	served.Go(b.stop)
	for {
		if _, ok, _ := b.near.Exchange(t.Context(), []byte(text)); !ok {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	served.Wait()
	if late, gone := b.tool.sends("late"), b.tool.sends("gone"); late != 1 || gone != 1 {
		t.Errorf("%d and %d sends", late, gone)
	}
	b.tool.respond(nil)
	b.start()
	for _, key := range []string{"late", "gone"} {
		if res, err := b.nearClient().Call(t.Context(), charge(key)); err != nil || res.State != tga.Completed || string(res.Value) != `"paid"` || !res.Replayed {
			t.Errorf("%s: %+v, %v", key, res, err)
		}
	}
}

// TestNearCallers: many at once each have their own answer, by few goroutines that stay.
func TestNearCallers(t *testing.T) {
	b := start(t, "")
	const many = 4 * mostIdle
	var there sync.WaitGroup // all of them at the tool at once, on a slow machine too
	there.Add(many)
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, body []byte) {
		there.Done()
		there.Wait()
		w.Write(body)
	})
	c := b.nearClient()
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			args := fmt.Sprintf(`{"n":%d}`, i)
			res, err := c.Call(t.Context(), runtime.Request{Server: "pay", Tool: "charge", Key: fmt.Sprint(i), Args: []byte(args)})
			if err != nil || string(res.Value) != args {
				t.Errorf("%s: %+v, %v", args, res, err)
			}
		})
	}
	all.Wait()
	for deadline := time.Now().Add(time.Minute); b.near.hands.idle.Load() != mostIdle; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait for a request, want %d", b.near.hands.idle.Load(), mostIdle)
		}
	}
}

// TestNearWithoutADaemon: there is none before it serves and after it has stopped, and none was
// given. A stop of a daemon whose successor serves already does not stop that one.
func TestNearWithoutADaemon(t *testing.T) {
	ask := []byte("GET /livez HTTP/1.1\r\nHost: tgad\r\n\r\n")
	var n Near
	serves := func(want bool) {
		t.Helper()
		if _, ok, err := n.Exchange(t.Context(), ask); ok != want || err != nil {
			t.Errorf("answered %v, %v, want %v", ok, err, want)
		}
	}
	(*Near)(nil).serve(nil)(t.Context())
	serves(false)
	d := &Daemon{tools: noTools(), log: slog.New(slog.DiscardHandler), mux: http.NewServeMux()}
	first := n.serve(d)
	serves(true)
	first(t.Context())
	serves(false)
	second := n.serve(d)
	first(t.Context())
	serves(true)
	second(t.Context())
	serves(false)
}

// TestNearPanic: a request that panics has no answer, as on a connection, is logged, and the next
// is answered. The end waits for what is under way only as long as it is given.
func TestNearPanic(t *testing.T) {
	var log bytes.Buffer
	mux := http.NewServeMux()
	under, over := make(chan struct{}), make(chan struct{})
	mux.HandleFunc("/panics", func(http.ResponseWriter, *http.Request) { panic("in a request") })
	mux.HandleFunc("/stays", func(http.ResponseWriter, *http.Request) { close(under); <-over })
	mux.HandleFunc("/answers", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") })
	d := &Daemon{tools: noTools(), log: slog.New(slog.NewTextHandler(&log, nil)), mux: mux}
	b := &bench{t: t}
	stop := b.near.serve(d)
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: tgad\r\n\r\n" }
	if _, ok, err := b.near.Exchange(t.Context(), []byte(get("/panics"))); !ok || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, %v", ok, err)
	}
	if !strings.Contains(log.String(), "in a request") || !strings.Contains(log.String(), "near_test.go") {
		t.Errorf("the log says %s", log.String())
	}
	if got := b.byNear(get("/answers")); got.Body != "yes" {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := b.near.Exchange(ctx, []byte(get("/stays")))
		left <- err
	}()
	<-under
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	stop(ctx) // which has ended
	stop = b.near.serve(d)
	stopped := make(chan struct{})
	go func() { stop(t.Context()); close(stopped) }()
	select {
	case <-stopped:
		t.Error("the end did not wait for a request under way")
	case <-time.After(50 * time.Millisecond):
	}
	close(over)
	<-stopped
	if n := b.near.count(); n != 0 {
		t.Errorf("%d requests are under way after the end", n)
	}
}

func (n *Near) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.under
}

// noTools are those of an empty file.
func noTools() *assemble.Live {
	tools, err := assemble.Start(config.Default(), assemble.Options{AtRest: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err) // an empty file can be built
	}
	return tools
}
