package mcpfront

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// life is a tool server that runs and does nothing.
type life struct{ over chan struct{} }

func (l life) Write(*frames.Message) error { return nil }
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
