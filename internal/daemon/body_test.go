package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// TestLengthOverTheLimitIsAnsweredFromTheHeader: the answer comes before the body, and a client that
// sends the whole body anyway can read the answer after it.
func TestLengthOverTheLimitIsAnsweredFromTheHeader(t *testing.T) {
	b := start(t, "[limits]\nrequest_bytes = 40000\n")
	for n, want := range map[int]int{40000: 0, 40001: 413, 1 << 40: 413} {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "POST /v1/tool-calls HTTP/1.1\r\nHost: tgad\r\nTgad-Client: x\r\nContent-Length: %d\r\n\r\n", n); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		switch {
		case want == 0 && err == nil:
			t.Errorf("a body of %d bytes is answered %s before it came", n, resp.Status)
		case want != 0 && err != nil:
			t.Errorf("a body of %d bytes: %v", n, err)
		case want != 0 && (resp.StatusCode != want || !resp.Close):
			t.Errorf("a body of %d bytes: %s, close %v", n, resp.Status, resp.Close)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if status, _, raw := b.raw("POST", "/v1/tool-calls", body("k", 4<<20)); status != 413 || !strings.Contains(string(raw), "LIMIT_EXCEEDED") {
		t.Errorf("a client that sends 4 MiB reads %d %s", status, raw)
	}
}

// TestBudgetAtItsLimits: the limits of one uid and of all, at the limit and one past it. What is given
// back can be taken again.
func TestBudgetAtItsLimits(t *testing.T) {
	b := newBudget(100, 10)
	for i, s := range []struct {
		uid uint32
		n   int64
		ok  bool
	}{{1, 50, true}, {1, 1, false}, {2, 49, true}, {3, 2, false}, {3, 1, true}, {2, 1, false}} {
		if err := b.take(s.uid, s.n); (err == nil) != s.ok {
			t.Errorf("step %d, uid %d takes %d: %v", i, s.uid, s.n, err)
		} else if err != nil && problemOf(err).Status != 503 {
			t.Errorf("step %d: %v", i, problemOf(err))
		}
	}
	b.give(1, 50)
	if err := b.take(3, 49); err != nil {
		t.Error(err)
	}
	if small := newBudget(12, 10); small.take(1, 10) != nil {
		t.Error("one body of the largest size has no room")
	}
}

// TestBodyIsCountedUntilItsCallEnds: after a client disconnects, its body stays in the budget while its
// call still has the arguments in memory.
func TestBodyIsCountedUntilItsCallEnds(t *testing.T) {
	b := start(t, "")
	arrived, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		close(arrived)
		<-released
		io.WriteString(w, "1")
	})
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		req := charge("k")
		req.Args = []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)
		_, err := b.client.Call(ctx, req)
		gone <- err
	}()
	<-arrived
	leave()
	if err := <-gone; err == nil {
		t.Error("the call of a client that left is answered")
	}
	for range 20 {
		if n := b.scrape("tgad_body_bytes"); n < 1<<20 {
			t.Fatalf("%v bytes are counted while the call is under way", n)
		}
		time.Sleep(time.Millisecond)
	}
	release()
	for b.scrape("tgad_body_bytes") != 0 {
		time.Sleep(time.Millisecond)
	}
}

// TestAnnouncedBodyHoldsWhatItSent: a length in a header takes nothing from the budget. Peers that
// announce more than the whole budget and send a few bytes do not block calls of others.
func TestAnnouncedBodyHoldsWhatItSent(t *testing.T) {
	b := start(t, "[limits]\nbody_budget = \"64MiB\"\n")
	const bodies = 20
	for range bodies {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "POST /v1/tool-calls HTTP/1.1\r\nHost: tgad\r\nTgad-Client: x\r\nContent-Length: 15728640\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
	}
	for b.scrape("tgad_body_bytes") < bodies*firstRead {
		time.Sleep(time.Millisecond)
	}
	if n := b.scrape("tgad_body_bytes"); n > (bodies+1)*firstRead {
		t.Errorf("%d bodies of one byte each hold %v bytes", bodies, n)
	}
	req := charge("k")
	req.Args = []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)
	if _, err := b.client.Call(t.Context(), req); err != nil {
		t.Errorf("a call beside them: %v", err)
	}
}

// TestBudgetIsGivenBack after answers of every kind.
func TestBudgetIsGivenBack(t *testing.T) {
	b := start(t, "[limits]\nrequest_bytes = 40000\nbody_budget = 90000\n")
	for i, text := range []string{body("k", 30000), "{", body("k", 40001), `{"a":` + strings.Repeat("[", 20000), body("k", 30000)} {
		status, _, _ := b.raw("POST", "/v1/tool-calls", text)
		if want := []int{200, 422, 413, 413, 200}[i]; status != want {
			t.Errorf("body %d: %d, want %d", i, status, want)
		}
	}
	for b.scrape("tgad_body_bytes") != 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := b.client.Call(t.Context(), charge("after")); err != nil && tga.CodeOf(err) == tga.LimitExceeded {
		t.Error(err)
	}
}
