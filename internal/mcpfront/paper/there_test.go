package paper

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// TestClosedStreamIsSeen: a client that has closed its connection is seen to be gone, also under TLS, where its last word is an
// alert that nobody has read yet, and if it has sent more than was read.
func TestClosedStreamIsSeen(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	type stream struct{ secure, more bool }
	streams := map[string]stream{"plain": {}}
	if runtime.GOOS == "linux" { // no other system says that a connection is closed before what it has sent is read
		streams["TLS"], streams["more"], streams["TLS, more"] = stream{secure: true}, stream{more: true}, stream{true, true}
	}
	for name, c := range streams {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			theirs, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			ours, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			if c.secure {
				ours, theirs = tls.Server(ours, srv.TLS), tls.Client(theirs, &tls.Config{InsecureSkipVerify: true})
			}
			read := make(chan error, 1)
			go func() {
				_, err := io.ReadFull(ours, make([]byte, 7))
				read <- err
			}()
			if _, err := io.WriteString(theirs, "request"); err != nil {
				t.Fatal(err)
			}
			if err := <-read; err != nil {
				t.Fatal(err)
			}
			if c.more {
				if _, err := io.WriteString(theirs, "more"); err != nil {
					t.Fatal(err)
				}
			}
			if ClosedByPeer(ours) {
				t.Fatal("a client that is there counts as gone")
			}
			if err := theirs.Close(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(10 * time.Second); !ClosedByPeer(ours); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("a client that has closed its connection counts as there")
				}
			}
		})
	}
}
