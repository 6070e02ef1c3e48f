package grpccall

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tgad/tgad/runtime"
)

// frames is a server that implements HTTP/2 itself, so that no library is between the test and
// the wire. It counts the streams that clients begin, on all connections, and passes each to a
// script. If the script returns false, the connection ends.
type frames struct {
	net.Listener
	streams, conns atomic.Int32
	done           sync.WaitGroup
}

// peer is one connection of a script.
type peer struct {
	*http2.Framer
	c *net.TCPConn
}

func serveFrames(t *testing.T, script func(p *peer, stream uint32, dataEnded bool) bool) *frames {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frames{Listener: l}
	f.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.conns.Add(1)
			f.done.Go(func() {
				defer c.Close()
				f.talk(c.(*net.TCPConn), script)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.done.Wait()
	})
	return f
}

// talk calls the script when a stream begins, and again when its data has ended.
func (f *frames) talk(c *net.TCPConn, script func(*peer, uint32, bool) bool) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	p := &peer{http2.NewFramer(c, c), c}
	if p.WriteSettings() != nil {
		return
	}
	for {
		frame, err := p.ReadFrame()
		if err != nil {
			return
		}
		goOn := true
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				goOn = p.WriteSettingsAck() == nil
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				goOn = p.WritePing(true, frame.Data) == nil
			}
		case *http2.HeadersFrame:
			f.streams.Add(1)
			goOn = script(p, frame.StreamID, false)
		case *http2.DataFrame:
			if frame.StreamEnded() {
				goOn = script(p, frame.StreamID, true)
			}
		}
		if !goOn {
			return
		}
	}
}

// headers writes a block of headers.
func (p *peer) headers(stream uint32, end bool, pairs ...string) bool {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(pairs); i += 2 {
		if enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) != nil {
			return false
		}
	}
	return p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end}) == nil
}

func (p *peer) reset() bool {
	_ = p.c.SetLinger(0) // the close sends RST
	return false
}

// TestOneStreamPerDispatch: whatever a server does to a stream, there is only one, and it is in
// doubt. By itself grpc-go begins a refused stream a second time.
func TestOneStreamPerDispatch(t *testing.T) {
	ok := []string{":status", "200", "content-type", "application/grpc"}
	for name, script := range map[string]func(p *peer, stream uint32, ended bool) bool{
		"refused at once": func(p *peer, stream uint32, ended bool) bool {
			return ended || p.WriteRSTStream(stream, http2.ErrCodeRefusedStream) == nil
		},
		"refused after it was read": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.WriteRSTStream(stream, http2.ErrCodeRefusedStream) == nil
		},
		"goaway below the stream": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.WriteGoAway(0, http2.ErrCodeNo, nil) == nil
		},
		"goaway and the end": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings")) == nil && false
		},
		"stream cancelled": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.WriteRSTStream(stream, http2.ErrCodeCancel) == nil
		},
		"connection closed at headers": func(p *peer, _ uint32, _ bool) bool { return false },
		"connection closed after data": func(p *peer, _ uint32, ended bool) bool { return !ended },
		"connection reset at headers":  func(p *peer, _ uint32, _ bool) bool { return p.reset() },
		"connection reset after data":  func(p *peer, _ uint32, ended bool) bool { return !ended || p.reset() },
		"unavailable, please push back": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.headers(stream, true, append(ok, "grpc-status", "14", "grpc-message", "later", "grpc-retry-pushback-ms", "0")...)
		},
		"an answer without a status": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.headers(stream, false, ok...) && p.WriteData(stream, false, []byte{0, 0, 0, 0, 0}) == nil && false
		},
		"a status without an answer": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.headers(stream, true, append(ok, "grpc-status", "0")...)
		},
		"two answers": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.headers(stream, false, ok...) && p.WriteData(stream, false, make([]byte, 10)) == nil && p.headers(stream, true, "grpc-status", "0")
		},
		"a proxy's 502": func(p *peer, stream uint32, ended bool) bool {
			return !ended || p.headers(stream, true, ":status", "502")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serveFrames(t, script)
			s := newServer(t, f.Addr().String(), Options{DescriptorSet: writeSet(t, parseFile(t, shop))})
			reply, err := s.Dispatch(context.Background(), aCall(`{}`))
			if got := what(reply, err); got != "doubt" || f.streams.Load() != 1 {
				t.Errorf("%s (%v); %d streams on %d connections", got, err, f.streams.Load(), f.conns.Load())
			}
		})
	}
	// The same server, without a fault, shows that the client understands the script.
	f := serveFrames(t, func(p *peer, stream uint32, ended bool) bool {
		return !ended || p.headers(stream, false, ok...) && p.WriteData(stream, false, make([]byte, 5)) == nil && p.headers(stream, true, "grpc-status", "0")
	})
	s := newServer(t, f.Addr().String(), Options{DescriptorSet: writeSet(t, parseFile(t, shop))})
	for n := range int32(2) {
		if got := what(s.Dispatch(context.Background(), aCall(`{}`))); got != "SUCCESS" || f.streams.Load() != n+1 || f.conns.Load() != n+1 {
			t.Errorf("%s; %d streams on %d connections", got, f.streams.Load(), f.conns.Load())
		}
	}
}

// TestDeadBeforeTheStream: a server that accepts the connection and dies before it answers has
// seen nothing of the call.
func TestDeadBeforeTheStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // this close is the fault that is tested
		}
	})
	defer done.Wait()
	defer l.Close()
	s := newServer(t, l.Addr().String(), Options{DescriptorSet: writeSet(t, parseFile(t, shop))})
	if got := what(s.Dispatch(context.Background(), aCall(`{}`))); got != "not sent" {
		t.Error(got)
	}
}

// TestDeadlineAfterTheStream: a server that never answers leaves the call in doubt.
func TestDeadlineAfterTheStream(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	f := serveFrames(t, func(_ *peer, _ uint32, ended bool) bool {
		if ended {
			cancel()
		}
		return true
	})
	s := newServer(t, f.Addr().String(), Options{DescriptorSet: writeSet(t, parseFile(t, shop))})
	var reply runtime.Reply
	reply, err := s.Dispatch(ctx, aCall(`{}`))
	if got := what(reply, err); got != "doubt" || f.streams.Load() != 1 {
		t.Errorf("%s; %d streams", got, f.streams.Load())
	}
}
