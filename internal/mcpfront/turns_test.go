package mcpfront

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// full is a tool server that reads what is written to it once it is free, and counts it.
type full struct {
	life
	free chan struct{}
	read *int
}

func (b full) Write(*frames.Message) error {
	<-b.free
	*b.read++
	return nil
}

// TestToolServerThatDoesNotReadIsToldSoMuch: of several conversations one has a tool server that does not read. Notifications wait
// for it, as many as requests may be under way, and one more is dropped. Once it reads, more are taken.
func TestToolServerThatDoesNotReadIsToldSoMuch(t *testing.T) {
	const most = 3
	w := newWorld(t)
	w.opts.MaxRequests = most
	synctest.Test(t, func(t *testing.T) {
		s, err := New(w.options())
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		up := full{life{make(chan struct{})}, make(chan struct{}), &read}
		c := s.newConv(heard{new([]string)}, nil)
		c.lasting = true
		c.set(&link{up: up}, nil)
		tell := func(method string) {
			f := frames.NewFrame(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"requestId":77}}`, method))
			c.fromClient(f, nil)
			synctest.Wait()
		}
		for n := range most + 1 { // one is being written
			tell([]string{"notifications/x", "notifications/cancelled"}[n%2])
		}
		if c.turns.tells != most {
			t.Errorf("%d messages wait, want %d", c.turns.tells, most)
		}
		tell("notifications/x")
		tell("notifications/cancelled")
		if c.turns.tells != most || len(c.turns.queue) != most {
			t.Errorf("%d and %d messages wait, want %d", c.turns.tells, len(c.turns.queue), most)
		}
		close(up.free)
		synctest.Wait()
		if read != most+1 || c.turns.tells != 0 {
			t.Errorf("the tool server has read %d messages, %d wait", read, c.turns.tells)
		}
		tell("notifications/x")
		if read != most+2 {
			t.Error("a later notification was not passed")
		}
		c.end()
		c.work.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
