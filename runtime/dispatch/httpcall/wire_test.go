package httpcall

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestLateWriterIsStopped ends a dispatch that has its connection but has not written to it. A
// later write must not send a byte, because the caller was told that nothing was sent.
func TestLateWriterIsStopped(t *testing.T) {
	written := 0
	w := &wire{Conn: writerFunc{write: func(b []byte) (int, error) { written += len(b); return len(b), nil }}, exact: true}
	if w.End() {
		t.Error("nothing was written, and something left")
	}
	if n, err := w.Write([]byte("late")); n != 0 || !errors.Is(err, errEnded) || written != 0 {
		t.Errorf("wrote %d, %v; %d bytes left", n, err, written)
	}
}

func TestWriteLeavesBytesOrSaysSo(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		err   error
		exact bool
		left  bool
	}{
		{"plain, all", 3, nil, true, true},
		{"plain, some", 1, io.ErrShortWrite, true, true},
		{"plain, none", 0, io.ErrClosedPipe, true, false},
		{"tls, none that it knows of", 0, io.ErrClosedPipe, false, true},
	} {
		w := &wire{Conn: writerFunc{write: func([]byte) (int, error) { return c.n, c.err }}, exact: c.exact}
		if n, err := w.Write([]byte("abc")); n != c.n || err != c.err {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		if got := w.End(); got != c.left {
			t.Errorf("%s: left %v", c.name, got)
		}
	}
	// A write that is under way when the dispatch ends may have left.
	entered, finish := make(chan struct{}), make(chan struct{})
	w := &wire{exact: true, Conn: writerFunc{write: func([]byte) (int, error) {
		close(entered)
		<-finish
		return 0, io.ErrClosedPipe
	}}}
	go w.Write([]byte("x"))
	<-entered
	if !w.End() {
		t.Error("a write is under way, and nothing may have left")
	}
	close(finish)
}

type writerFunc struct {
	net.Conn
	write func([]byte) (int, error)
}

func (w writerFunc) Write(b []byte) (int, error) { return w.write(b) }

func TestTLS(t *testing.T) {
	var requests atomic.Int32
	w := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.ProtoMajor != 1 {
			t.Errorf("spoken: %s", r.Proto)
		}
	}))
	w.EnableHTTP2 = true
	w.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.StartTLS()
	defer w.Close()
	roots := x509.NewCertPool()
	roots.AddCert(w.Certificate())
	good := newServer(t, w.URL, Options{TLS: &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}})
	if reply, err := good.Dispatch(context.Background(), aCall(1)); what(reply, err) != "SUCCESS " || requests.Load() != 1 {
		t.Errorf("got %+v, %v, %d requests", reply, err, requests.Load())
	}
	// Over TLS too a request without an answer is in doubt.
	w.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	})
	if reply, err := good.Dispatch(context.Background(), aCall(1)); what(reply, err) != "doubt" || requests.Load() != 2 {
		t.Errorf("got %+v, %v, %d requests", reply, err, requests.Load())
	}
	// A handshake that fails has carried no byte of the request.
	if reply, err := newServer(t, w.URL, Options{}).Dispatch(context.Background(), aCall(1)); what(reply, err) != "not sent" || requests.Load() != 2 {
		t.Errorf("got %+v, %v, %d requests", reply, err, requests.Load())
	}
}

// TestDialThatPanicsIsNotSent: no request was on its way, so the call was not sent, and the next one is.
func TestDialThatPanicsIsNotSent(t *testing.T) {
	was := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(was)
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer h.Close()
	for _, in := range []string{"dial", "tls"} {
		panics := true
		s, err := New(h.URL, Options{
			Ahead: -1,
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if panics && in == "dial" {
					panic("no route")
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			},
			TLS: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error {
				if panics && in == "tls" {
					panic("no list of certificates")
				}
				return nil
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Dispatch(t.Context(), aCall(1)); !errors.Is(err, runtime.ErrNotSent) {
			t.Errorf("%s: %v", in, err)
		}
		panics = false
		if reply, err := s.Dispatch(t.Context(), aCall(1)); err != nil || reply.Status != tga.StatusSuccess {
			t.Errorf("%s, the next call: %+v, %v", in, reply, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
