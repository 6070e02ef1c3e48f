package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// body is a call whose text has exactly n bytes.
func body(key string, n int) string {
	head := fmt.Sprintf(`{"tool_server":"pay","tool_name":"charge","idempotency_key":%q,"args":{"a":"`, key)
	return head + strings.Repeat("x", n-len(head)-3) + `"}}`
}

func TestBodyLimit(t *testing.T) {
	b := start(t, "[limits]\nrequest_bytes = 40000\n")
	for n, want := range map[int]int{40000: 200, 40001: 413, 400_000: 413} {
		key := fmt.Sprint("k", n)
		status, _, raw := b.raw("POST", "/v1/tool-calls", body(key, n))
		if status != want || b.tool.sends(key) != map[int]int{200: 1}[want] {
			t.Errorf("%d bytes: %d, %d sends: %s", n, status, b.tool.sends(key), raw)
		}
	}
}

func TestBodyLimitWithoutLength(t *testing.T) {
	b := start(t, "[limits]\nrequest_bytes = 40000\n")
	hc := &http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.socket) },
		DisableKeepAlives: true,
	}}
	for n, want := range map[int]int{40000: 200, 40001: 413} {
		req, err := http.NewRequest("POST", "http://tgad/v1/tool-calls", io.MultiReader(strings.NewReader(body(fmt.Sprint("k", n), n))))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = -1
		req.Header.Set("Tgad-Client", "chunked")
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("%d bytes: %d", n, resp.StatusCode)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestArtifactAndDepthLimits(t *testing.T) {
	b := start(t, "[limits]\nartifact_bytes = 4000\ndepth = 16\n")
	call := func(key, args string) int {
		status, _, _ := b.raw("POST", "/v1/tool-calls", fmt.Sprintf(`{"tool_server":"pay","tool_name":"charge","idempotency_key":%q,"args":%s}`, key, args))
		return status
	}
	// The artifact around the arguments has about 700 bytes of its own: find the
	// longest argument that passes, and see that one byte more does not.
	low, high := 2000, 4000
	for high-low > 1 {
		n := (low + high) / 2
		if call(fmt.Sprint("n", n), `{"a":"`+strings.Repeat("x", n)+`"}`) == 200 {
			low = n
		} else {
			high = n
		}
	}
	if status := call("over1", `{"a":"`+strings.Repeat("x", high)+`"}`); status != 413 || low < 2500 {
		t.Errorf("arguments of %d bytes pass and of %d answer %d", low, high, status)
	}
	nest := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	if at, over := call("d1", nest(15)), call("d2", nest(16)); at != 200 || over != 413 {
		t.Errorf("at the depth limit %d, one past it %d", at, over)
	}
}

func TestInFlightLimit(t *testing.T) {
	b := start(t, "[limits]\nin_flight = 2\n")
	arrived, release := make(chan struct{}, 2), make(chan struct{})
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		arrived <- struct{}{}
		<-release
		io.WriteString(w, "1")
	})
	done := make(chan error, 2)
	for i := range 2 {
		go func() {
			_, err := b.client.Call(context.Background(), charge(fmt.Sprint("k", i)))
			done <- err
		}()
		<-arrived
	}
	_, err := b.client.Call(t.Context(), charge("k3"))
	wantCode(t, err, tga.LimitExceeded)
	if p, ok := client.ProblemIn(err); !ok || p.Status != 429 || !p.Retryable {
		t.Errorf("problem %+v", p)
	}
	// Another namespace has places of its own.
	other := charge("k4")
	other.Namespace = "other"
	go func() {
		_, err := b.client.Call(context.Background(), other)
		done <- err
	}()
	<-arrived
	close(release)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if _, err := b.client.Call(t.Context(), charge("k3")); err != nil {
		t.Errorf("after the others: %v", err)
	}
}

func TestStreamLimit(t *testing.T) {
	b := start(t, "[limits]\nfollowers = 2\n")
	if _, err := b.client.Call(t.Context(), charge("k")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	for range 2 {
		first := make(chan struct{})
		go func() {
			defer func() { done <- struct{}{} }()
			n := 0
			for _, err := range b.client.Log(ctx, "", true) {
				if n++; n == 1 && err == nil {
					close(first)
				}
			}
		}()
		<-first
	}
	for _, err := range b.client.Log(t.Context(), "", true) {
		wantCode(t, err, tga.LimitExceeded)
		break
	}
	cancel()
	<-done
	<-done
	for b.scrape("tgad_streams") != 0 {
		time.Sleep(time.Millisecond)
	}
	for _, err := range b.client.Log(t.Context(), "", false) {
		if err != nil {
			t.Errorf("after the others: %v", err)
		}
	}
}

func TestLeaseLimits(t *testing.T) {
	b := start(t, "[limits]\nleases = 2\nmax_lease_ttl = \"10s\"\nlease_ttl = \"5s\"\n")
	ctx := t.Context()
	for _, x := range []struct {
		ttl  time.Duration
		code tga.Code
	}{{10 * time.Second, ""}, {10*time.Second + time.Millisecond, tga.LimitExceeded}, {-time.Millisecond, tga.ValidationError}, {0, ""}} {
		l, err := b.client.Lease(ctx, newID(), x.ttl)
		if tga.CodeOf(err) != x.code {
			t.Errorf("ttl %v: %v", x.ttl, err)
		}
		if err == nil && x.ttl == 0 && time.Until(l.Expires.Time()) > 5*time.Second {
			t.Errorf("the default lease ends at %v", l.Expires)
		}
	}
	_, err := b.client.Lease(ctx, newID(), 0)
	wantCode(t, err, tga.LimitExceeded)
}

func TestBatchAndPageLimits(t *testing.T) {
	b := start(t, "[limits]\nbatch_items = 3\npage = 2\n")
	var items []wire.BatchItem
	for i := range 4 {
		c := mintChain(t, fmt.Sprint("k", i), nil)
		lease, err := b.client.Lease(t.Context(), c.trace, 0)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, wire.BatchItem{TraceID: c.trace, AppendRequest: appending(lease.Lease, c.request)})
	}
	_, err := b.client.AppendBatch(t.Context(), items)
	wantCode(t, err, tga.LimitExceeded)
	if _, err := b.client.AppendBatch(t.Context(), items[:3]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.AppendBatch(t.Context(), items[3:]); err != nil {
		t.Fatal(err)
	}
	if _, _, raw := b.raw("GET", "/v1/traces", ""); strings.Count(string(raw), `"trace_id"`) != 2 || !strings.Contains(string(raw), `"next":`) {
		t.Errorf("a page is %s", raw)
	}
	n := 0
	for _, err := range b.client.Traces(t.Context(), wire.TracesQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d open traces in all pages, want 4", n)
	}
}

// TestSlowRequestsEnd: who does not send a header, or a body, is not waited for.
func TestSlowRequestsEnd(t *testing.T) {
	for name, c := range map[string]struct{ limit, sent, want string }{
		"header":                     {"header_timeout", "POST /v1/tool-calls HTTP/1.1\r\nHost:", ""},
		"body":                       {"body_timeout", "POST /v1/tool-calls HTTP/1.1\r\nHost: tgad\r\nTgad-Client: slow\r\nContent-Length: 10\r\n\r\n{", "422"},
		"no body of a question":      {"body_timeout", "GET /v1/traces HTTP/1.1\r\nHost: tgad\r\nTgad-Client: slow\r\nContent-Length: 10\r\n\r\n{", "422"},
		"no body of a stream":        {"body_timeout", "GET /v1/log?follow=1 HTTP/1.1\r\nHost: tgad\r\nTgad-Client: slow\r\nTransfer-Encoding: chunked\r\n\r\n", "422"},
		"no body of no route":        {"body_timeout", "POST /v1/nothing HTTP/1.1\r\nHost: tgad\r\nTgad-Client: slow\r\nContent-Length: 10\r\n\r\n{", "404"},
		"no body of no method":       {"body_timeout", "PUT /livez HTTP/1.1\r\nHost: tgad\r\nContent-Length: 10\r\n\r\n{", "405"},
		"no body of nobody":          {"body_timeout", "POST /v1/tool-calls HTTP/1.1\r\nHost: tgad\r\nContent-Length: 10\r\n\r\n{", "422"},
		"no body of another host":    {"body_timeout", "POST /v1/tool-calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "421"},
		"no body that is waited for": {"body_timeout", "POST /v1/nothing HTTP/1.1\r\nHost: tgad\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n", "404"},
		"idle":                       {"idle_timeout", "GET /healthz HTTP/1.1\r\nHost: tgad\r\n\r\n", "200"},
		"long":                       {"idle_timeout", "GET /healthz HTTP/1.1\r\nHost: tgad\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", "431"},
	} {
		// One limit at a time: on a busy machine another one could end the request first.
		b := start(t, "[limits]\n"+c.limit+" = \"20ms\"\n")
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		// On a busy machine the time for a header can be over before the first byte of it is written.
		if _, err := io.WriteString(conn, c.sent); err != nil && name != "long" && !(name == "header" && errors.Is(err, syscall.EPIPE)) {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn) // until the daemon hangs up
		if err != nil && name != "long" {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(string(answer), c.want) {
			t.Errorf("%s: %.100q, want %s", name, answer, c.want)
		}
		conn.Close()
		b.stop()
	}
}
