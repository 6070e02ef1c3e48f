package daemon

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClientThatReadsNothingIsLetGo: the daemon closes its connection, and no goroutine waits for it.
func TestClientThatReadsNothingIsLetGo(t *testing.T) {
	was := lineTime
	lineTime = 100 * time.Millisecond
	t.Cleanup(func() { lineTime = was }) // after the daemon has stopped
	b := start(t, "")
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		fmt.Fprintf(w, "%q", strings.Repeat("x", 8<<20))
	})
	res, err := b.client.Call(t.Context(), charge("long"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a long answer": "GET /v1/traces/" + res.TraceID.String() + " HTTP/1.1\r\nHost: tgad\r\nTgad-Client: test\r\n\r\n",
		"many answers":  strings.Repeat("GET /readyz HTTP/1.1\r\nHost: tgad\r\n\r\n", 8192),
		"many problems": strings.Repeat("GET /nowhere HTTP/1.1\r\nHost: tgad\r\n\r\n", 8192),
	} {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(c, text) }() // the daemon may not read all of it
		if !hungUp(t, c.(*net.UnixConn)) {
			t.Errorf("%s: the client is not let go", name)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// hungUp waits until the other end has closed a connection, and reads nothing.
func hungUp(t *testing.T, c *net.UnixConn) bool {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	hung := false
	for end := time.Now().Add(30 * time.Second); !hung && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd)}} // asks for nothing: that it is closed is always told
			_, _ = unix.Poll(p, 0)              // after an error it is asked again
			hung = p[0].Revents&unix.POLLHUP != 0
		}); err != nil {
			t.Fatal(err)
		}
	}
	return hung
}
