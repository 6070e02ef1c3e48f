package engine

import "testing"

// TestHubKeepsNoTopicWithoutSubscribers: who cancels takes nothing from the others, and the last one
// takes the topic along, whether it was notified or not.
func TestHubKeepsNoTopicWithoutSubscribers(t *testing.T) {
	var h hub[string]
	h.init()
	first, cancelFirst := h.subscribe("k")
	second, cancelSecond := h.subscribe("k")
	cancelFirst()
	select {
	case <-first:
		t.Fatal("a cancelled subscription was notified")
	default:
	}
	if len(h.topics) != 1 {
		t.Fatalf("%d topics for one subscriber", len(h.topics))
	}
	h.notify("k")
	<-second
	third, cancelThird := h.subscribe("k") // a topic of its own: the one before is over
	cancelSecond()
	if len(h.topics) != 1 {
		t.Fatalf("%d topics for one subscriber, after a cancel of an earlier one", len(h.topics))
	}
	h.notify("k")
	<-third
	cancelThird()
	_, cancelFourth := h.subscribe("k")
	cancelFourth()
	if len(h.topics) != 0 {
		t.Errorf("%d topics for nobody", len(h.topics))
	}
}

// TestWaiterThatGivesUpLeavesTheLock with who holds it, and the one before it in the queue waiting.
func TestWaiterThatGivesUpLeavesTheLock(t *testing.T) {
	var l locks[int]
	l.init()
	first, gone := make(chan struct{}), make(chan struct{})
	l.held[1] = []chan struct{}{first} // held, and somebody waits
	close(gone)
	if err := l.lock(t.Context(), gone, 1); err == nil {
		t.Fatal("a lock that is held was given")
	}
	select {
	case <-first:
		t.Error("the lock is given to the first who waits while another holds it")
	default:
	}
	if w := l.held[1]; len(w) != 1 || w[0] != first {
		t.Errorf("%d wait, want the first alone", len(w))
	}
}
