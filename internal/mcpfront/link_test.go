package mcpfront

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
)

// life is a tool server that runs and does nothing.
type life struct{ over chan struct{} }

func (l life) Write(*frames.Message) error { return nil }
func (l life) Leaves() <-chan struct{}     { return l.over }
func (l life) Done() <-chan struct{}       { return l.over }
func (l life) Why() error                  { return errors.New("it ended") }
func (l life) Close()                      {}

// TestNothingIsGivenToADeadServer: a request that needs the tool server after its end, and before the
// supervisor notices the end, waits for the next one. It must not get the dead tool server.
func TestNothingIsGivenToADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conv{s: &Shim{opts: Options{StartTimeout: time.Minute}}, changed: make(chan struct{})}
		first, second := &link{up: life{make(chan struct{})}}, &link{up: life{make(chan struct{})}}
		c.set(first, nil)
		if l, err := c.await(t.Context()); l != first || err != nil || c.current() != first {
			t.Fatalf("%p %v, want the one that lives", l, err)
		}
		close(first.up.(life).over)
		if c.current() != nil {
			t.Error("the current tool server is a dead one")
		}
		go func() {
			time.Sleep(time.Second)
			c.set(nil, nil)
			time.Sleep(time.Second)
			c.set(second, nil)
		}()
		if l, err := c.await(t.Context()); l != second || err != nil {
			t.Errorf("%p %v, want the next one", l, err)
		}
	})
}

// dying is a tool server that ends while a request is written to it.
type dying struct {
	life
	ends func()
}

func (d dying) Write(*frames.Message) error {
	d.ends()
	return errors.New("it ended")
}

// heard is an outlet that notes what it gets.
type heard struct{ all *[]string }

func (h heard) Send(env *mcpraw.Envelope, parts ...io.WriterTo) error { return h.Hand(env, parts...) }
func (h heard) Hand(_ *mcpraw.Envelope, parts ...io.WriterTo) error {
	var b strings.Builder
	for _, p := range parts {
		if _, err := p.WriteTo(&b); err != nil {
			return err
		}
	}
	*h.all = append(*h.all, b.String())
	return nil
}

// TestRequestIsAnsweredOnce: the tool server ends while a request is written to it. The write fails and the end is seen, and
// the client gets one answer; an array is not answered before its other request.
func TestRequestIsAnsweredOnce(t *testing.T) {
	for _, array := range []bool{false, true} {
		w := newWorld(t)
		s, err := New(w.options())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		c := s.newConv(heard{&got}, nil)
		l := &link{}
		l.up = dying{life{make(chan struct{})}, func() { c.dropped(l, errors.New("it ended")) }}
		c.set(l, nil)
		f := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"echo"}`))
		if array {
			b := &batchReply{want: 2}
			c.fromClient(f, b)
			if len(got) != 0 {
				t.Errorf("answered before the array is whole: %q", got)
			}
		} else {
			c.fromClient(f, nil)
			if len(got) != 1 {
				t.Errorf("%d answers to one request: %q", len(got), got)
			}
		}
		c.end()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatIsToldOfATaskEndsWithTheConversation: a tool server tells of a task before it is known which tasks an earlier shim left,
// and the conversation ends. What waited for that ends too.
func TestWhatIsToldOfATaskEndsWithTheConversation(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := New(w.options())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		c := s.newConv(heard{&got}, nil)
		c.polls.resumed.Do(func() {}) // the log does not answer
		if !c.polls.told(frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"completed"}}`))) {
			t.Error("it was not taken")
		}
		c.end()
		c.work.Wait()
		if len(got) != 0 {
			t.Errorf("the client is told of an end that is not recorded: %q", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
