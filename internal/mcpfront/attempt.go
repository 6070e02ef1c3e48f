package mcpfront

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// callKey is what at most one attempt of this shim is at.
type callKey struct{ tool, key, subject string }

// attempt brings one call to its end. It goes on when the client that asked gives up:
// what was begun is finished. A client that repeats the call meanwhile joins it.
type attempt struct {
	s     *Shim
	q     *call // the call that it was started by: its id is on the wire
	key   string
	asked tga.Digest

	done    *wait.Latch // out is set
	kept    *wait.Latch // an answer waits for the log
	lonely  *wait.Latch // nobody waits any more
	told    *wait.Latch // the tool server was told to give it up
	named   *wait.Latch // its trace is in the log, and it is not over
	people  *wait.Latch // it waits for people
	out     outcome
	keyless bool // a read call: it has no key of its own
	posed   bool // its person was asked whether it runs again
	anew    bool // somebody has said that the recorded call did not run: this is a new attempt
	conn    runtime.Connection
	present *paper.Presence // of the client, where it is not there for as long as this process
	tasked  atomic.Bool
	looked  *workspace.Pending // the send that is under way, where there is a workspace

	begunAt time.Time     // when the permit in hand was asked for
	after   time.Duration // how long the tool server asked, with its answer, not to be asked again

	reread bool // the definitions were read again because of its headers

	meta tga.Meta // of a new trace

	needs   error                  // why it waits for people; set before that
	barred  bool                   // nor does the word of the person at the client count; set before that
	unheard atomic.Pointer[string] // why the log did not take that person's vote
	asking  atomic.Bool            // a person at a client has the question on the screen

	mu     sync.Mutex
	id     tga.ID
	ledger string        // its key in the log
	words  string        // what it is at, for progress notifications
	moved  chan struct{} // closed when that changes
	wait   int           // calls that wait for the outcome
}

// outcome is how an attempt ended.
type outcome struct {
	frame  *frames.Frame // the tool server's own message, for the call that was sent
	value  []byte        // a recorded result or error member
	fault  bool
	asks   []byte // in place of an answer: a result that asks the person at the client
	words  string // for a call without an effect to show
	code   tga.Code
	rpc    int // set where it is a JSON-RPC error and not a tool error
	trace  tga.ID
	own    tga.ID // the trace of this very call, which may have been served from another
	digest tga.Digest
	final  bool // an effect: with its delivery the occurrence is over
	again  bool // the call needs a key after all
	// redacted says that value is what was left of the answer when it was stored.
	redacted bool
}

// join finds the attempt at a key, or starts one. Another request under the same key is
// refused here as it would be by the log.
func (s *Shim) join(q *call, key string) (a *attempt, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, false, errOver
	}
	k := callKey{q.params.Tool, key, q.conv.subject}
	if a := s.open[k]; a != nil {
		if a.asked != q.asked || a.q.leg() != q.leg() {
			return nil, false, tga.Errorf(tga.IdempotencyKeyConflict, "the key %q belongs to a call with other arguments, which is under way", key)
		}
		if a.enter() {
			q.setAttempt(a)
			return a, false, nil
		}
		// Everybody left it before this call came. It ends on its own; the log knows of it.
	}
	if a, err = s.newAttempt(q, key); err != nil {
		return nil, false, err
	}
	a.keyless = q.derived && !s.classes[q.params.Tool]
	q.setAttempt(a) // before it begins: a client that is gone by then is not there
	s.launch(k, a)
	return a, true, nil
}

func (s *Shim) newAttempt(q *call, key string) (*attempt, error) {
	a := &attempt{
		s: s, q: q, key: key, asked: q.asked, done: wait.NewLatch(), kept: wait.NewLatch(), lonely: wait.NewLatch(),
		told: wait.NewLatch(), named: wait.NewLatch(), people: wait.NewLatch(), words: "asking tgad", moved: make(chan struct{}), wait: 1,
	}
	c := q.conv
	a.conn = runtime.Connection{ID: c.id, Subject: c.subject, Executor: s.alive.Path, Asks: c.opening.elicits() || q.params.InRequest()}
	if c.shared {
		a.conn.ID = frames.Nonce() // each request is a connection of its own
	}
	if c.present != nil {
		a.conn.Lock = c.present.Path
		return a, nil
	}
	// Over HTTP a client is there for as long as somebody waits on the stream of a request.
	var err error
	if a.present, err = paper.Appear(s.opts.State); err == nil {
		a.conn.Lock = a.present.Path
	}
	return a, err
}

// launch sets an attempt to work. The shim's lock is held.
func (s *Shim) launch(k callKey, a *attempt) {
	s.open[k] = a
	s.work.Go(func() {
		a.work(s.life)
		s.mu.Lock()
		if s.open[k] == a {
			delete(s.open, k)
		}
		s.mu.Unlock()
		a.done.Set()
		if a.lonely.Is() && !a.tasked.Load() {
			a.present.Remove()
		}
	})
}

// enter adds a call that waits. It is refused where everybody has left an attempt that
// has no answer yet: that one is about to end without it.
func (a *attempt) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lonely.Is() && !a.kept.Is() {
		return false
	}
	a.wait++
	return true
}

// exit takes a call away that does not wait any more, and reports whether it was the last.
func (a *attempt) exit() (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wait--; a.wait == 0 {
		last = true
		a.lonely.Set()
		if !a.tasked.Load() {
			a.present.Leave()
			if a.done.Is() { // else the log may still be told of it
				a.present.Remove()
			}
		}
	}
	return last
}

// alone reports whether at most one call waits.
func (a *attempt) alone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait <= 1
}

func (a *attempt) say(words string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.words == words {
		return
	}
	a.words = words
	close(a.moved)
	a.moved = make(chan struct{})
}

func (a *attempt) standing() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.words
}

func (a *attempt) trace() tga.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id
}

func (a *attempt) setTrace(id tga.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !id.IsZero() {
		a.id = id
	}
}

func newID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }
