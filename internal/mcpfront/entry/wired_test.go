package entry

import (
	"sync/atomic"
	"testing"
	"time"
)

// counted is a [entry.Line] with a number of requests under way.
type counted struct {
	Line
	n atomic.Int32
}

func (c *counted) Underway() int { return int(c.n.Load()) }
func (c *counted) Over() bool    { return false }

// TestEndWaitsForWhatIsUnderWay: the end waits for requests under way, and no longer.
func TestEndWaitsForWhatIsUnderWay(t *testing.T) {
	c := &counted{}
	c.n.Store(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&Wired{P: c, Grace: time.Hour}).settle(t.Context())
	}()
	select {
	case <-done:
		t.Error("a request is not waited for")
	case <-time.After(20 * time.Millisecond):
	}
	c.n.Store(0)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("it waits for nothing")
	}
}
