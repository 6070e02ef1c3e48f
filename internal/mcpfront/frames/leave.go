package frames

import (
	"sync"
	"time"
)

// A tool server that has forgotten a session refuses the requests of it one by one. What it says to one of them is no word about
// the others: they may be answered, or refused too. So the session takes no more messages from then on, and is over with its last
// answer.

// lastAnswers is how long the answers to the requests of a session that was refused may take.
const lastAnswers = 5 * time.Second

// leaving is the end of a session for new messages.
type leaving struct {
	once  sync.Once
	begun chan struct{}
}

func (r *remote) Leaves() <-chan struct{} { return r.left.begun }
func (r *remote) Done() <-chan struct{}   { return r.gone }

// leave ends the session for new messages.
func (r *remote) leave(cause error) {
	r.left.once.Do(func() {
		r.mu.Lock()
		r.cause = cause
		r.mu.Unlock()
		close(r.left.begun)
	})
}

// die ends the session. The supervisor then makes a new one.
func (r *remote) die(cause error) {
	r.leave(cause)
	r.dead.Do(func() { close(r.gone) })
}

// expire ends the session once nothing is under way in it any more, or after lastAnswers.
func (r *remote) expire(cause error) {
	r.leave(cause)
	r.mu.Lock()
	idle := r.under == 0
	r.mu.Unlock()
	if idle {
		r.die(cause)
		return
	}
	time.AfterFunc(lastAnswers, func() { r.die(cause) })
}

// over is called when the POST of a request has ended.
func (r *remote) over() {
	r.mu.Lock()
	r.under--
	last := r.under == 0
	r.mu.Unlock()
	select {
	case <-r.left.begun:
		if last {
			r.die(r.Why())
		}
	default:
	}
}
