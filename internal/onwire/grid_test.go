package onwire_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/model"
	"github.com/tgad/tgad/internal/turn/tools/grpccall"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
	"github.com/tgad/tgad/runtime/mcp"
)

// fate is what happens to one request. The server's part of it runs once the server has a part of the
// request, or all of it.
type fate struct {
	name   string
	unsent bool                      // what the sender must report
	target func(t *testing.T) string // where the request goes instead of the server; nil = to the server
	tls    bool                      // the connection uses TLS and fails in its handshake
	before bool                      // the sender has given it up before
	part   func(cancel func())       // at the server, after it has seen the beginning
	whole  func(cancel func())       // at the server, after it has all of it
}

func fates() []fate {
	nothing := func(func()) {}
	cancelled := func(cancel func()) { cancel() }
	return []fate{
		{name: "dial refused", unsent: true, target: func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			return l.Addr().String()
		}},
		// To an address that nobody has; some systems refuse it at once.
		{name: "dial timed out", unsent: true, target: func(*testing.T) string { return "192.0.2.1:9" }},
		{name: "TLS failed", unsent: true, tls: true},
		{name: "given up before", unsent: true, before: true},
		{name: "cut within the request", part: nothing},
		{name: "cut after the request", whole: nothing},
		{name: "given up after the request", whole: cancelled},
	}
}

// long is larger than the buffers of a connection.
var long = strings.Repeat("x", 8<<20)

// senders are the transports. Each sends one request to an address and returns its error.
var senders = map[string]func(ctx context.Context, t *testing.T, scheme, addr string) error{
	"httpcall": func(ctx context.Context, t *testing.T, scheme, addr string) error {
		s, err := httpcall.New(scheme+"://"+addr, httpcall.Options{Ahead: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Dispatch(ctx, runtime.Call{Attempt: 1, Server: "s", Tool: "t", Key: "k", Args: []byte(`{"a":"` + long + `"}`)})
		return err
	},
	"mcp": func(ctx context.Context, t *testing.T, scheme, addr string) error {
		s, err := mcp.New("s", mcp.Options{URL: scheme + "://" + addr, ProtocolVersion: "2025-11-25", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Dispatch(ctx, runtime.Call{Attempt: 1, Server: "s", Tool: "t", Key: "k", Args: []byte(`{"a":"` + long + `"}`)})
		return err
	},
	"shim": func(ctx context.Context, t *testing.T, scheme, addr string) error {
		got := make(chan *frames.Frame, 1)
		up := frames.Dial(ctx, frames.Endpoint{URL: scheme + "://" + addr, Most: 64 << 20, Spill: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, func(f *frames.Frame) { got <- f })
		defer up.Close()
		f := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"` + long + `"}}`))
		if err := up.Write(&frames.Message{Env: &f.Envelope, Parts: []io.WriterTo{f}}); err != nil {
			return err
		}
		answer := <-got
		if answer.Unsent != "" {
			t.Errorf("the answer says that nothing ran: %s", answer.Unsent)
		}
		return errors.New(answer.Bad)
	},
	"model": func(ctx context.Context, t *testing.T, scheme, addr string) error {
		m, err := model.OpenAI(model.Options{BaseURL: scheme + "://" + addr})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Generate(ctx, turn.Question{Model: "m", System: long, Messages: []message.Message{message.TextMessage(message.User, "hi", message.FromUser, 1)}, Key: "k"})
		return err
	},
	"gRPC": func(ctx context.Context, t *testing.T, scheme, addr string) error {
		set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(grpc_health_v1.File_grpc_health_v1_health_proto)}}
		raw, err := proto.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		o := grpccall.Options{DescriptorSet: filepath.Join(t.TempDir(), "set"), Logger: slog.New(slog.DiscardHandler)}
		if err := os.WriteFile(o.DescriptorSet, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if scheme == "https" {
			o.TLS = &tls.Config{}
		}
		s, err := grpccall.New(addr, o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Dispatch(ctx, runtime.Call{Attempt: 1, Server: "s", Tool: "grpc.health.v1.Health/Check", Key: "k", Args: []byte(`{"service":"x"}`)})
		return err
	},
}

// TestNotSentIsTrue: an error of any transport says "not sent" only if the server has seen nothing of the
// request. It must say so if the request never had a connection.
func TestNotSentIsTrue(t *testing.T) {
	for by, send := range senders {
		for _, f := range fates() {
			t.Run(by+"/"+f.name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var seen atomic.Int32
				addr := serve(t, by, f, &seen, cancel)
				scheme := "http"
				if f.tls {
					scheme = "https"
				}
				if f.target != nil {
					addr = f.target(t)
					var end context.CancelFunc
					ctx, end = context.WithTimeout(ctx, 100*time.Millisecond)
					defer end()
				}
				if f.before {
					cancel()
				}
				err := send(ctx, t, scheme, addr)
				if err == nil || errors.Is(err, runtime.ErrNotSent) != f.unsent {
					t.Errorf("%.300v; want not sent %t", err, f.unsent)
				}
				if saw := seen.Load() > 0; saw == f.unsent {
					t.Errorf("the server saw the request: %t", saw)
				}
			})
		}
	}
}

// serve starts a server that treats a request as its fate says. It answers the requests of a handshake.
func serve(t *testing.T, by string, f fate, seen *atomic.Int32, cancel func()) (addr string) {
	if by == "gRPC" && !f.tls {
		return serveGRPC(t, f, seen, cancel)
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 1<<20 {
			raw, _ := io.ReadAll(r.Body)
			if strings.Contains(string(raw), `"initialize"`) {
				w.Header().Set("Content-Type", "application/json")
				id := strings.SplitN(strings.SplitN(string(raw), `"id":`, 2)[1], ",", 2)[0]
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, strings.Trim(id, "}"))
				return
			}
			w.WriteHeader(http.StatusAccepted)
			return
		}
		seen.Add(1)
		if f.whole != nil {
			_, _ = io.Copy(io.Discard, r.Body)
			f.whole(cancel)
		} else if f.part != nil {
			f.part(cancel)
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(interface{ SetLinger(int) error }).SetLinger(0)
		_ = conn.Close()
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(handler))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if f.tls {
		srv.StartTLS() // with a certificate that nobody here trusts
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// serveGRPC speaks as much of HTTP/2 as one call needs.
func serveGRPC(t *testing.T, f fate, seen *atomic.Int32, cancel func()) (addr string) {
	const headers, data, endStream = 1, 0, 1
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	one := func(c net.Conn) {
		defer c.Close()
		_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // empty settings frame
		if _, err := io.CopyN(io.Discard, c, 24); err != nil {
			return // without a preface it is not a client
		}
		for {
			var h [9]byte
			if _, err := io.ReadFull(c, h[:]); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, c, int64(h[0])<<16|int64(h[1])<<8|int64(h[2])); err != nil {
				return
			}
			switch kind, flags := h[3], h[4]; {
			case kind == headers:
				seen.Add(1)
				if f.part != nil {
					f.part(cancel)
					return
				}
			case kind == data && flags&endStream != 0 && f.whole != nil:
				f.whole(cancel)
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go one(c)
		}
	}()
	return l.Addr().String()
}

// TestNotSentIsTrueOfPipes: a pipe that was closed before a frame has seen nothing of it.
func TestNotSentIsTrueOfPipes(t *testing.T) {
	for _, c := range []struct {
		name   string
		reads  int64 // before it is closed
		unsent bool
	}{{"closed before the frame", 0, true}, {"closed within the frame", 1, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if c.reads == 0 {
			_ = r.Close()
		} else {
			go func() {
				_, _ = io.CopyN(io.Discard, r, c.reads)
				_ = r.Close()
			}()
		}
		err = frames.NewSink(w).Write(frames.Text(long))
		if err == nil || errors.Is(err, runtime.ErrNotSent) != c.unsent {
			t.Errorf("%s: %v; want not sent %t", c.name, err, c.unsent)
		}
		_ = w.Close()
	}
}
