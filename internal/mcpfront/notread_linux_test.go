package mcpfront

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// hearer is a client that keeps what it gets.
type hearer struct{ got chan string }

func (h hearer) Send(_ *mcpraw.Envelope, parts ...io.WriterTo) error {
	var b bytes.Buffer
	for _, p := range parts {
		if _, err := p.WriteTo(&b); err != nil {
			return err
		}
	}
	h.got <- b.String()
	return nil
}
func (h hearer) Hand(env *mcpraw.Envelope, parts ...io.WriterTo) error { return h.Send(env, parts...) }

// unreadable is a long message whose file cannot be read any more.
func unreadable(t *testing.T, id string) *frames.Frame {
	t.Helper()
	in := frames.NewFrames(strings.NewReader(`{"jsonrpc":"2.0","id":`+id+`,"result":"`+strings.Repeat("x", 2*frames.SpillBytes)+`"}`+"\n"), 0)
	in.Dir = t.TempDir()
	f, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(in.Dir) // a directory cannot be read like a file
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, e := range files {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil || !strings.HasPrefix(to, in.Dir+"/") {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err == nil {
			err = unix.Dup3(int(dir.Fd()), fd, unix.O_CLOEXEC)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	t.Fatal("the message has no file")
	return nil
}

// TestAnswerOfABatchThatCannotBeRead: the client gets the other answers of the array, and an error in place of this one. The
// call does not count as delivered.
func TestAnswerOfABatchThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.opts.Command = []string{"none"}
	s, err := New(w.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, give := range map[string]func(c *conv, b *batchReply, f *frames.Frame){
		"passed": func(c *conv, b *batchReply, f *frames.Frame) { c.give(b, f) },
		"delivered": func(c *conv, b *batchReply, f *frames.Frame) {
			defer f.Close()
			b.notRead(c, f.RawID, c.deliverIn(b, "name", tga.ID{1}, func() error { return c.send(b, &f.Envelope, f) }))
		},
	} {
		for _, last := range []bool{false, true} {
			client := hearer{make(chan string, 1)}
			c := s.newConv(client, nil)
			b := &batchReply{want: 2}
			whole := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":2,"result":{}}`))
			bad := unreadable(t, "1")
			if last {
				c.give(b, whole)
				give(c, b, bad)
			} else {
				give(c, b, bad)
				c.give(b, whole)
			}
			select {
			case got := <-client.got:
				fronttest.Has(t, got, `{"jsonrpc":"2.0","id":2,"result":{}}`, `"id":1,"error"`, string(tga.StoreUnavailable))
			default:
				t.Errorf("%s, last %v: the client is waiting", name, last)
			}
			if len(b.owed) > 0 {
				t.Errorf("%s, last %v: %v count as delivered", name, last, b.owed)
			}
			c.end()
		}
	}
}
