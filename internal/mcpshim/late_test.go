package mcpshim

import (
	"bytes"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
)

// lateMessage is a call whose time is over once over is set.
func lateMessage(over *atomic.Bool) *message {
	f := newFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	return &message{env: &f.Envelope, parts: parts(text(f.head)), late: func() error {
		if over.Load() {
			return errors.New("over")
		}
		return nil
	}}
}

// TestNoByteOfALateCall: whether a call is too late is looked at when nothing has to be waited
// for any more, the other messages to the tool server or the connection to it.
func TestNoByteOfALateCall(t *testing.T) {
	t.Run("stdio", func(t *testing.T) {
		var out bytes.Buffer
		var over atomic.Bool
		c := &child{p: &mcpraw.Process{}, in: newSink(&out), gone: make(chan struct{})}
		m := lateMessage(&over)
		late := m.late
		m.late = func() error {
			if c.in.mu.TryLock() {
				c.in.mu.Unlock()
				t.Error("it is asked before the message has its turn")
			}
			return late()
		}
		if err := c.write(m); err != nil || out.Len() == 0 {
			t.Fatalf("in time: %v, %d bytes", err, out.Len())
		}
		out.Reset()
		over.Store(true)
		if err := c.write(m); !errors.Is(err, errNotSent) || out.Len() != 0 {
			t.Errorf("late: %v, %d bytes", err, out.Len())
		}
		over.Store(false)
		if err := c.write(m); err != nil {
			t.Errorf("after a late one: %v", err)
		}
	})
	t.Run("HTTP", func(t *testing.T) {
		var over atomic.Bool
		var posts atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			posts.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}))
		defer srv.Close()
		w := newWorld(t)
		w.opts.URL = srv.URL
		s, err := New(w.options())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		answers := make(chan *frame, 1)
		r := s.dialURL(t.Context(), "", func(f *frame) { answers <- f }).(*remote)
		defer r.close()
		if err := r.write(lateMessage(&over)); err != nil {
			t.Fatalf("in time: %v", err)
		}
		if f := <-answers; f.Bad != "" {
			t.Fatalf("in time: %s", f.Bad)
		}
		dial := r.rt.DialContext
		r.rt.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			over.Store(true) // while it connects
			return dial(ctx, network, addr)
		}
		if err := r.write(lateMessage(&over)); !errors.Is(err, errNotSent) {
			t.Errorf("late: %v", err)
		}
		if n := posts.Load(); n != 1 {
			t.Errorf("the tool server got %d messages, want 1", n)
		}
	})
}

// TestShimThatStoodStillDoesNotSend stops a shim with SIGSTOP when it has its permit, until the
// permit's time is over, and lets it go on: it sends nothing, and says so to the log and to its
// client, whose next call runs.
func TestShimThatStoodStillDoesNotSend(t *testing.T) {
	r := newRig(t, true)
	r.victim = "before send: stop"
	if err := r.dial(); err != nil {
		t.Fatal(err)
	}
	r.call("charge", `{"warm":1}`)
	if _, err := fmt.Fprintln(r.in, `{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"brief","arguments":{"name":"killed"}}}`); err != nil {
		t.Fatal(err)
	}
	pid := r.peer.Process.Pid
	eventually(t, "the shim to stand still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	if _, err := os.Stat(filepath.Join(r.dir, "killed")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // its permit allows a send for 50 ms
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	line, err := readWithin(r.out, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	has(t, line, `"id":900`, "not sent", "is over")
	if n := r.ran(`{"name":"killed"}`); n != 0 {
		t.Errorf("%d effects of a call whose permit was stale", n)
	}
	answer, _ := r.call("charge", `{"name":"next"}`)
	has(t, answer, `"ok"`)
}
