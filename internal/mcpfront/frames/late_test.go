package frames

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
)

// lateMessage is a call that is too late once over is set.
func lateMessage(over *atomic.Bool) *Message {
	f := NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
	return &Message{Env: &f.Envelope, Parts: []io.WriterTo{Text(f.Head)}, Late: func() error {
		if over.Load() {
			return errors.New("over")
		}
		return nil
	}}
}

// TestNoByteOfALateCall: a call is checked for lateness after the waits for other messages to the
// tool server and for the connection are over.
func TestNoByteOfALateCall(t *testing.T) {
	t.Run("stdio", func(t *testing.T) {
		var out bytes.Buffer
		var over atomic.Bool
		c := &child{p: &mcpraw.Process{}, in: NewSink(&out), gone: make(chan struct{})}
		m := lateMessage(&over)
		late := m.Late
		m.Late = func() error {
			if c.in.mu.TryLock() {
				c.in.mu.Unlock()
				t.Error("it is asked before the message has its turn")
			}
			return late()
		}
		if err := c.Write(m); err != nil || out.Len() == 0 {
			t.Fatalf("in time: %v, %d bytes", err, out.Len())
		}
		out.Reset()
		over.Store(true)
		if err := c.Write(m); !errors.Is(err, runtime.ErrNotSent) || out.Len() != 0 {
			t.Errorf("late: %v, %d bytes", err, out.Len())
		}
		over.Store(false)
		if err := c.Write(m); err != nil {
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
		answers := make(chan *Frame, 1)
		r := Dial(t.Context(), Endpoint{URL: srv.URL, Most: 1 << 20, Spill: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, func(f *Frame) { answers <- f }).(*remote)
		defer r.Close()
		if err := r.Write(lateMessage(&over)); err != nil {
			t.Fatalf("in time: %v", err)
		}
		if f := <-answers; f.Bad != "" {
			t.Fatalf("in time: %s", f.Bad)
		}
		dial := r.rt.DialContext
		r.rt.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			over.Store(true) // during the connect
			return dial(ctx, network, addr)
		}
		if err := r.Write(lateMessage(&over)); !errors.Is(err, runtime.ErrNotSent) {
			t.Errorf("late: %v", err)
		}
		if n := posts.Load(); n != 1 {
			t.Errorf("the tool server got %d messages, want 1", n)
		}
	})
}

// TestNoByteOfACallThatWaitedTooLong: a tool server does not read, and its stdin is full. A call that waits for it is not written once it
// is late, and the next message is whole.
func TestNoByteOfACallThatWaitedTooLong(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	if err := out.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	full, err := out.Write(make([]byte, 1<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := out.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	c := &child{p: &mcpraw.Process{}, in: NewSink(out), gone: make(chan struct{})}
	var over atomic.Bool
	done := make(chan error, 1)
	go func() { done <- c.Write(lateMessage(&over)) }()
	time.Sleep(2 * lateEvery)
	over.Store(true)
	select {
	case err = <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the write goes on although the call is late")
	}
	if !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("late: %v", err)
	}
	over.Store(false)
	go func() { done <- c.Write(lateMessage(&over)) }()
	if _, err := io.CopyN(io.Discard, in, int64(full)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || line != `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`+"\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
