package httpcall

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func aCall(attempt uint32) runtime.Call {
	return runtime.Call{
		TraceID: tga.ID{6: 0x70, 8: 0x80, 15: 1}, ToolCallID: tga.ID{6: 0x70, 8: 0x80, 15: 2},
		Attempt: attempt, Server: "payments", Tool: "charge", Args: []byte(`{"amount":9007199254740993}`), Key: "order-1",
	}
}

// witness is a tool server that speaks raw TCP. It counts the requests that reached
// it whole, and hands each connection to a script.
type witness struct {
	net.Listener
	requests atomic.Int32
	done     sync.WaitGroup
}

// serve starts a witness. script gets each connection; the request has been read
// from it unless raw is set. The connection is closed after it.
func serve(t *testing.T, raw bool, script func(w *witness, c *net.TCPConn, r *bufio.Reader)) *witness {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{Listener: l}
	w.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.done.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				if raw || w.read(r) {
					script(w, c.(*net.TCPConn), r)
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.done.Wait()
	})
	return w
}

// read reads one whole request.
func (w *witness) read(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return false
	}
	w.requests.Add(1)
	return true
}

func (w *witness) url() string { return "http://" + w.Addr().String() }

func answer(s string) func(*witness, *net.TCPConn, *bufio.Reader) {
	return func(_ *witness, c *net.TCPConn, _ *bufio.Reader) { io.WriteString(c, s) }
}

func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func newServer(t *testing.T, url string, o Options) *Server {
	t.Helper()
	s, err := New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// what names the three possible outcomes of a dispatch.
func what(reply runtime.Reply, err error) string {
	switch {
	case errors.Is(err, runtime.ErrNotSent):
		return "not sent"
	case err != nil:
		return "doubt"
	}
	return reply.Status + " " + reply.Class.String()
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"

func status(code int, header string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 4\r\n%s\r\nbody", code, header)
}

func TestClassification(t *testing.T) {
	const success, failure, retryable = "SUCCESS ", "FAILURE permanent_failure", "FAILURE retryable_failure"
	attested := map[int]Outcome{429: NotExecuted, 503: NotExecuted, 404: Succeeded, 402: InDoubt}
	for _, c := range []struct {
		name     string
		script   func(*witness, *net.TCPConn, *bufio.Reader)
		rules    map[int]Outcome
		attempt  uint32
		want     string
		requests int32
		asked    time.Duration // the answer says how long it wants to be left alone
	}{
		{"200", answer(ok), nil, 1, success, 1, 0},
		{"201 to a re-send", answer(status(201, "")), nil, 2, success, 1, 0},
		{"204 without a body", answer("HTTP/1.1 204 No Content\r\n\r\n"), nil, 1, success, 1, 0},
		{"200, chunked", answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"), nil, 1, success, 1, 0},
		{"200 until the connection ends", answer("HTTP/1.1 200 OK\r\n\r\nbody"), nil, 1, success, 1, 0},
		{"103 and 200", answer("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok), nil, 1, success, 1, 0},
		{"402", answer(status(402, "")), nil, 1, failure, 1, 0},
		{"402 to a re-send", answer(status(402, "")), nil, 2, failure, 1, 0},
		{"402, attested doubt", answer(status(402, "")), attested, 1, "doubt", 1, 0},
		{"404, attested success", answer(status(404, "")), attested, 1, success, 1, 0},
		{"401", answer(status(401, "")), nil, 1, failure, 1, 0},
		{"401 to a re-send", answer(status(401, "")), nil, 2, "doubt", 1, 0},
		{"404", answer(status(404, "")), nil, 1, failure, 1, 0},
		{"404 to a re-send: the route may be gone since", answer(status(404, "")), nil, 2, "doubt", 1, 0},
		{"405 to a re-send", answer(status(405, "")), nil, 2, "doubt", 1, 0},
		{"410 to a re-send", answer(status(410, "")), nil, 2, "doubt", 1, 0},
		{"409 to a re-send: the key is in use", answer(status(409, "")), nil, 2, "doubt", 1, 0},
		{"408", answer(status(408, "")), nil, 1, "doubt", 1, 0},
		{"429", answer(status(429, "Retry-After: 1\r\n")), nil, 1, "doubt", 1, time.Second},
		{"429, attested not executed", answer(status(429, "Retry-After: 1\r\n")), attested, 1, retryable, 1, time.Second},
		{"429 to a re-send, attested not executed", answer(status(429, "")), attested, 2, "not sent", 1, 0},
		{"500", answer(status(500, "")), nil, 1, "doubt", 1, 0},
		{"503", answer(status(503, "Retry-After: 1\r\n")), nil, 1, "doubt", 1, time.Second},
		{"503, attested not executed", answer(status(503, "Retry-After: 1\r\n")), attested, 1, retryable, 1, time.Second},
		{"redirect 307", answer(status(307, "Location: /again\r\n")), nil, 1, "doubt", 1, 0},
		{"redirect 303", answer(status(303, "Location: /again\r\n")), nil, 1, "doubt", 1, 0},
		{"101", answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), nil, 1, "doubt", 1, 0},
		{"status nobody knows", answer(status(799, "")), nil, 1, "doubt", 1, 0},
		{"closed without an answer", answer(""), nil, 1, "doubt", 1, 0},
		{"no HTTP", answer("hello\r\n\r\n"), nil, 1, "doubt", 1, 0},
		{"header cut", answer("HTTP/1.1 200 OK\r\nContent-Le"), nil, 1, "doubt", 1, 0},
		{"body cut", answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody"), nil, 1, "doubt", 1, 0},
		{"chunked body cut", answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"), nil, 1, "doubt", 1, 0},
		{"failure with its body cut", answer("HTTP/1.1 402 X\r\nContent-Length: 5\r\n\r\nbody"), nil, 1, "doubt", 1, 0},
		{"reset after the request", func(_ *witness, c *net.TCPConn, _ *bufio.Reader) { reset(c) }, nil, 1, "doubt", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := serve(t, false, c.script)
			reply, err := newServer(t, w.url(), Options{Statuses: c.rules}).Dispatch(context.Background(), aCall(c.attempt))
			if got := what(reply, err); got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if busy := strings.HasPrefix(c.name, "429"); err != nil && tga.CodeOf(err) != map[bool]tga.Code{true: tga.RateLimited, false: tga.ToolError}[busy] {
				t.Errorf("error without its code: %v", err)
			}
			if asked := max(reply.RetryAfter, tga.RetryAfterOf(err)); asked != c.asked {
				t.Errorf("asked to wait %v, want %v", asked, c.asked)
			}
			if c.want == success && c.name != "204 without a body" && string(reply.Result) != "body" || err == nil && reply.Result == nil {
				t.Errorf("result %q", reply.Result)
			}
			if n := w.requests.Load(); n != c.requests {
				t.Errorf("%d requests arrived, want %d", n, c.requests)
			}
		})
	}
}

func TestConnectionRefusedIsNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	reply, err := newServer(t, "http://"+l.Addr().String(), Options{}).Dispatch(context.Background(), aCall(1))
	if what(reply, err) != "not sent" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

// TestResetBeforeTheRequestIsNotSent lets the server reset the connection before the
// client writes: then the client's kernel accepts no byte.
func TestResetBeforeTheRequestIsNotSent(t *testing.T) {
	gone := make(chan struct{})
	w := serve(t, true, func(_ *witness, c *net.TCPConn, _ *bufio.Reader) {
		reset(c)
		close(gone)
	})
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		<-gone
		c.Read(make([]byte, 1)) // returns once the reset has arrived
		return c, nil
	}
	reply, err := newServer(t, w.url(), Options{Dial: dial}).Dispatch(context.Background(), aCall(1))
	if what(reply, err) != "not sent" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

// TestResetWithinTheRequestIsDoubt makes the server take a first part of a large
// request and reset: bytes have left.
func TestResetWithinTheRequestIsDoubt(t *testing.T) {
	w := serve(t, true, func(_ *witness, c *net.TCPConn, r *bufio.Reader) {
		r.ReadByte()
		reset(c)
	})
	call := aCall(1)
	call.Args = bytes.Repeat([]byte(" "), 32<<20)
	reply, err := newServer(t, w.url(), Options{}).Dispatch(context.Background(), call)
	if what(reply, err) != "doubt" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

func TestCancellation(t *testing.T) {
	t.Run("before the dial", func(t *testing.T) {
		w := serve(t, false, answer(ok))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		reply, err := newServer(t, w.url(), Options{}).Dispatch(ctx, aCall(1))
		if what(reply, err) != "not sent" || w.requests.Load() != 0 {
			t.Errorf("got %+v, %v, %d requests", reply, err, w.requests.Load())
		}
	})
	t.Run("a server that is slow", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := serve(t, false, func(_ *witness, c *net.TCPConn, r *bufio.Reader) {
			cancel() // the request is here whole, the answer is not
			r.ReadByte()
		})
		reply, err := newServer(t, w.url(), Options{}).Dispatch(ctx, aCall(1))
		if what(reply, err) != "doubt" || !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v, %v", reply, err)
		}
	})
	t.Run("within the answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := serve(t, false, func(_ *witness, c *net.TCPConn, r *bufio.Reader) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbo")
			cancel()
			r.ReadByte()
		})
		reply, err := newServer(t, w.url(), Options{}).Dispatch(ctx, aCall(1))
		if what(reply, err) != "doubt" {
			t.Errorf("got %+v, %v", reply, err)
		}
	})
}

// TestOneRequestPerDispatch runs against a server that keeps connections open, and on
// a connection's second request reads it whole and drops the connection: the case in
// which Go's client sends a POST with an Idempotency-Key again. The control shows
// that it does.
func TestOneRequestPerDispatch(t *testing.T) {
	killer := func(w *witness, c *net.TCPConn, r *bufio.Reader) {
		io.WriteString(c, ok)
		w.read(r) // a second request on this connection, if one comes
	}
	const calls = 5
	t.Run("ours", func(t *testing.T) {
		w := serve(t, false, killer)
		s := newServer(t, w.url(), Options{})
		for range calls {
			if reply, err := s.Dispatch(context.Background(), aCall(1)); err != nil || string(reply.Result) != "body" {
				t.Fatalf("got %+v, %v", reply, err)
			}
		}
		if n := w.requests.Load(); n != calls {
			t.Errorf("%d requests arrived for %d dispatches", n, calls)
		}
	})
	t.Run("control", func(t *testing.T) {
		w := serve(t, false, killer)
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		for range calls {
			req, err := http.NewRequest(http.MethodPost, w.url(), strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Idempotency-Key", "k")
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if n := w.requests.Load(); n <= calls {
			t.Errorf("%d requests arrived for %d: the server does not provoke the re-send, so the test above proves nothing", n, calls)
		}
	})
}

func TestAnswerLimit(t *testing.T) {
	const limit = 1000
	for _, size := range []int{0, limit - 1, limit, limit + 1, 10 * limit} {
		body := bytes.Repeat([]byte{0xff, 0, '\n'}, size/3+1)[:size] // no JSON, no UTF-8
		for _, kind := range []string{"length", "chunked"} {
			w := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if kind == "chunked" {
					rw.(http.Flusher).Flush()
				}
				rw.Write(body)
			}))
			reply, err := newServer(t, w.URL, Options{MaxAnswer: limit}).Dispatch(context.Background(), aCall(1))
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			if size <= limit {
				if reply.Truncated || !bytes.Equal(reply.Result, body) || reply.Result == nil {
					t.Errorf("%d bytes, %s: truncated %v, %d kept", size, kind, reply.Truncated, len(reply.Result))
				}
				continue
			}
			if !reply.Truncated || reply.Result != nil || reply.ResultBytes != int64(size) || reply.ResultDigest != tga.Sum(body) {
				t.Errorf("%d bytes, %s: %+v", size, kind, reply)
			}
		}
	}
	// An answer over the limit that breaks off is not an answer.
	w := serve(t, false, answer("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n"+strings.Repeat("x", 1500)))
	if reply, err := newServer(t, w.url(), Options{MaxAnswer: limit}).Dispatch(context.Background(), aCall(1)); what(reply, err) != "doubt" {
		t.Errorf("got %+v, %v", reply, err)
	}
}

func TestRequestOnTheWire(t *testing.T) {
	var got http.Request
	var body []byte
	w := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got = *r
		body, _ = io.ReadAll(r.Body)
		rw.Header().Set("Set-Cookie", "a=b")
	}))
	defer w.Close()
	s := newServer(t, w.URL+"/api?v=1", Options{
		Paths:  map[string]string{"refund": "v2/refunds", "charge": "charge"},
		Header: http.Header{"Authorization": {"Bearer x"}, "Idempotency-Key": {"mine"}},
	})
	for range 2 {
		call := aCall(3)
		if _, err := s.Dispatch(context.Background(), call); err != nil {
			t.Fatal(err)
		}
		if got.Method != "POST" || got.RequestURI != "/api/charge?v=1" || got.ProtoMajor != 1 || string(body) != string(call.Args) || got.ContentLength != int64(len(call.Args)) {
			t.Errorf("%s %s %s: %s", got.Method, got.RequestURI, got.Proto, body)
		}
		for name, want := range map[string]string{
			"Idempotency-Key": "order-1", "Tgad-Attempt": "3", "Content-Type": "application/json", "Authorization": "Bearer x",
			"Tgad-Trace-Id": call.TraceID.String(), "Tgad-Tool-Call-Id": call.ToolCallID.String(), "Cookie": "", "Accept-Encoding": "",
		} {
			if v := got.Header.Values(name); strings.Join(v, ",") != want {
				t.Errorf("%s: %q, want %q", name, v, want)
			}
		}
	}
	for sc, want := range map[runtime.SpanContext]string{
		{}: "||", {Traceparent: "tp", Tracestate: "a=b", Baggage: "c=d"}: "tp|a=b|c=d",
	} {
		if _, err := s.Dispatch(runtime.WithSpanContext(context.Background(), sc), aCall(1)); err != nil {
			t.Fatal(err)
		}
		if h := got.Header; h.Get("traceparent")+"|"+h.Get("tracestate")+"|"+h.Get("baggage") != want {
			t.Errorf("the span's headers are %v, want %s", h, want)
		}
	}
	call := aCall(1)
	call.Tool = "refund"
	if _, err := s.Dispatch(context.Background(), call); err != nil || got.RequestURI != "/api/v2/refunds?v=1" {
		t.Errorf("%s, %v", got.RequestURI, err)
	}
	if s.opts.Header.Get("Idempotency-Key") != "mine" {
		t.Error("the configured header was changed")
	}
}

func TestCallThatCannotBeSaidIsNotSent(t *testing.T) {
	w := serve(t, false, answer(ok))
	s := newServer(t, w.url(), Options{})
	for _, change := range []func(*runtime.Call){
		func(c *runtime.Call) { c.Tool = "../admin" },
		func(c *runtime.Call) { c.Tool = "a/./b" },
		func(c *runtime.Call) { c.Tool = "/charge" },
		func(c *runtime.Call) { c.Tool = "charge%2f" },
		func(c *runtime.Call) { c.Tool = "" },
		func(c *runtime.Call) { c.Key = "" },
	} {
		call := aCall(1)
		change(&call)
		if reply, err := s.Dispatch(context.Background(), call); what(reply, err) != "not sent" || !errors.Is(err, tga.ValidationError) {
			t.Errorf("%q, %q: got %+v, %v", call.Tool, call.Key, reply, err)
		}
	}
	if n := w.requests.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		url string
		o   Options
	}{
		{"", Options{}},
		{"ftp://h/", Options{}},
		{"http:///x", Options{}},
		{"http://h/#x", Options{}},
		{"http://user:secret@h/", Options{}},
		{"http://h\x00/", Options{}},
		{"http://h", Options{MaxAnswer: -1}},
		{"http://h", Options{Statuses: map[int]Outcome{99: Failed}}},
		{"http://h", Options{Statuses: map[int]Outcome{600: Failed}}},
		{"http://h", Options{Statuses: map[int]Outcome{404: 0}}},
		{"http://h", Options{Statuses: map[int]Outcome{404: NotExecuted + 1}}},
	} {
		if s, err := New(c.url, c.o); !errors.Is(err, tga.ValidationError) || s != nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q, %+v: got %v", c.url, c.o, err)
		}
	}
}

// TestDoubtfulStatusesMatchTheLicences: under park and probe, the configuration may attest
// retryable_failure exactly for the statuses that the defaults do not treat as doubt, and
// for 429.
func TestDoubtfulStatusesMatchTheLicences(t *testing.T) {
	for code, want := range map[int]bool{100: true, 200: false, 302: true, 400: false, 402: false, 408: true, 429: false, 500: true, 503: true, 599: true, 1000: true} {
		if got := Doubtful(code); got != want {
			t.Errorf("%d: %v", code, got)
		}
	}
	for code := 100; code < 600; code++ {
		first, again := outcome(nil, code, 1), outcome(nil, code, 2)
		if first == NotExecuted || again == NotExecuted {
			t.Errorf("%d means not executed, and nobody attested it", code)
		}
		if (first == Succeeded || again == Succeeded) != (code/100 == 2) {
			t.Errorf("%d: %v, %v", code, first, again)
		}
		if first == InDoubt && again != InDoubt {
			t.Errorf("%d: a re-send is surer than the first send", code)
		}
	}
	for o := InDoubt; o <= NotExecuted; o++ {
		if got, err := ParseOutcome(o.String()); err != nil || got != o {
			t.Errorf("%v: %v, %v", o, got, err)
		}
	}
	if _, err := ParseOutcome(""); !errors.Is(err, tga.ValidationError) {
		t.Error(err)
	}
	if NotExecuted.Class() != ledger.ClassRetryable || Failed.Class() != ledger.ClassPermanent || Succeeded.Class() != ledger.ClassNone {
		t.Error("outcomes and classes disagree")
	}
}
