package attempt

import (
	"cmp"
	"maps"
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

// place is what at most one attempt of this shim is at.
type place struct{ tool, key, subject string }

// Attempt brings one call to its end. It goes on when the client that asked gives up:
// what was begun is finished. A client that repeats the call meanwhile joins it.
type Attempt struct {
	s     *Desk
	q     *Call // the call that it was started by: its id is on the wire
	Key   string
	asked tga.Digest

	Done    *wait.Latch // out is set
	Kept    *wait.Latch // an answer waits for the log
	lonely  *wait.Latch // nobody waits any more
	Told    *wait.Latch // the tool server was told to give it up
	Named   *wait.Latch // its trace is in the log, and it is not over
	People  *wait.Latch // it waits for people
	Out     Outcome
	Keyless bool // a read call: it has no key of its own
	posed   bool // its person was asked whether it runs again
	anew    bool // somebody has said that the recorded call did not run: this is a new attempt
	conn    runtime.Connection
	Present *paper.Presence // of the client, where it is not there for as long as this process
	Tasked  atomic.Bool
	looked  *workspace.Pending // the send that is under way, where there is a workspace

	begunAt time.Time     // when the permit in hand was asked for
	after   time.Duration // how long the tool server asked, with its answer, not to be asked again

	reread bool // the definitions were read again because of its headers

	meta tga.Meta // of a new trace

	needs   error                  // why it waits for people; set before that
	barred  bool                   // nor does the word of the person at the client count; set before that
	unheard atomic.Pointer[string] // why the log did not take that person's vote
	Asking  atomic.Bool            // a person at a client has the question on the screen

	mu     sync.Mutex
	id     tga.ID
	ledger string        // its key in the log
	words  string        // what it is at, for progress notifications
	moved  chan struct{} // closed when that changes
	wait   int           // calls that wait for the outcome
}

// Outcome is how an attempt ended.
type Outcome struct {
	Frame  *frames.Frame // the tool server's own message, for the call that was sent
	Value  []byte        // a recorded result or error member
	Fault  bool
	Asks   []byte // in place of an answer: a result that asks the person at the client
	Words  string // for a call without an effect to show
	Code   tga.Code
	RPC    int // set where it is a JSON-RPC error and not a tool error
	Trace  tga.ID
	Own    tga.ID // the trace of this very call, which may have been served from another
	Digest tga.Digest
	Final  bool // an effect: with its delivery the occurrence is over
	Again  bool // the call needs a key after all
	// Redacted says that value is what was left of the answer when it was stored.
	Redacted bool
}

// Join finds the attempt at a key, or starts one. Another request under the same key is
// refused here as it would be by the log.
func (s *Desk) Join(q *Call, key string) (a *Attempt, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Life.Err() != nil {
		return nil, false, ErrOver
	}
	k := place{q.Params.Tool, key, q.Subject}
	if a := s.open[k]; a != nil {
		if a.asked != q.Asked || a.q.leg() != q.leg() {
			return nil, false, tga.Errorf(tga.IdempotencyKeyConflict, "the key %q belongs to a call with other arguments, which is under way", key)
		}
		if a.Enter() {
			q.setAttempt(a)
			return a, false, nil
		}
		// Everybody left it before this call came. It ends on its own; the log knows of it.
	}
	if a, err = s.newAttempt(q, key); err != nil {
		return nil, false, err
	}
	a.Keyless = q.Derived && !s.classes[q.Params.Tool]
	q.setAttempt(a) // before it begins: a client that is gone by then is not there
	s.launch(k, a)
	return a, true, nil
}

func (s *Desk) newAttempt(q *Call, key string) (*Attempt, error) {
	a := &Attempt{
		s: s, q: q, Key: key, asked: q.Asked, Done: wait.NewLatch(), Kept: wait.NewLatch(), lonely: wait.NewLatch(),
		Told: wait.NewLatch(), Named: wait.NewLatch(), People: wait.NewLatch(), words: "asking tgad", moved: make(chan struct{}), wait: 1,
	}
	a.conn = runtime.Connection{ID: q.Connection, Subject: q.Subject, Executor: s.alive.Path, Asks: q.By.Elicits() || q.Params.InRequest()}
	if q.Shared {
		a.conn.ID = frames.Nonce() // each request is a connection of its own
	}
	if q.Present != nil {
		a.conn.Lock = q.Present.Path
		return a, nil
	}
	// Over HTTP a client is there for as long as somebody waits on the stream of a request.
	var err error
	if a.Present, err = paper.Appear(s.o.State); err == nil {
		a.conn.Lock = a.Present.Path
	}
	return a, err
}

// Apart is the attempt of an observed call. It has a place of its own, so nobody joins it, and whoever looks for the
// permits of a shim that was killed sees that this one is at it.
func (s *Desk) Apart(q *Call, key string, meta tga.Meta) (*Attempt, error) {
	a, err := s.newAttempt(q, key)
	if err != nil {
		return nil, err
	}
	a.meta, a.Keyless = meta, q.Derived && q.LedgerKey == "" && !s.NeedsKey(q.Params.Tool)
	q.setAttempt(a)
	a.setTrace(NewID())
	q.Sent.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[place{tool: q.Params.Tool, key: "observed\x00" + a.conn.Executor + a.Trace().String()}] = a
	return a, nil
}

// Leave ends an attempt that has a place of its own.
func (a *Attempt) Leave() {
	a.s.mu.Lock()
	maps.DeleteFunc(a.s.open, func(_ place, other *Attempt) bool { return other == a })
	a.s.mu.Unlock()
	a.Done.Set()
	a.q.GoesWithout()
}

// TakeUp is the attempt of a task's call, which nobody waits for yet.
func (s *Desk) TakeUp(q *Call, key string) (*Attempt, error) {
	a, err := s.newAttempt(q, key)
	if err == nil {
		a.wait = 0
	}
	return a, err
}

// LaunchAs sets an attempt to work under a name of its own: the same call made again may be another occurrence.
func (s *Desk) LaunchAs(name string, a *Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launch(place{a.q.Params.Tool, name, a.q.Subject}, a)
}

// Withdraw has the tool server told, once, that a call which it has is given up, where one alone waits for that.
func (a *Attempt) Withdraw() {
	if a.q.Sent.Load() && a.Alone() && a.Told.Set() {
		a.q.By.Withdraw()
	}
}

// launch sets an attempt to work. The desk's lock is held.
func (s *Desk) launch(k place, a *Attempt) {
	s.open[k] = a
	s.Work.Go(func() {
		a.work(s.Life)
		s.mu.Lock()
		if s.open[k] == a {
			delete(s.open, k)
		}
		s.mu.Unlock()
		a.Done.Set()
		if a.lonely.Is() && !a.Tasked.Load() {
			a.Present.Remove()
		}
	})
}

// Enter adds a call that waits. It is refused where everybody has left an attempt that
// has no answer yet: that one is about to end without it.
func (a *Attempt) Enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lonely.Is() && !a.Kept.Is() {
		return false
	}
	a.wait++
	return true
}

// Exit takes a call away that does not wait any more, and reports whether it was the last.
func (a *Attempt) Exit() (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wait--; a.wait == 0 {
		last = true
		a.lonely.Set()
		if !a.Tasked.Load() {
			a.Present.Leave()
			if a.Done.Is() { // else the log may still be told of it
				a.Present.Remove()
			}
		}
	}
	return last
}

// Left reports whether nobody waits any more.
func (a *Attempt) Left() bool { return a.lonely.Is() }

// Alone reports whether at most one call waits.
func (a *Attempt) Alone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait <= 1
}

func (a *Attempt) say(words string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.words == words {
		return
	}
	a.words = words
	close(a.moved)
	a.moved = make(chan struct{})
}

// Standing is what the attempt is at, for progress notifications.
func (a *Attempt) Standing() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.words
}

// Trace is the trace of the call, zero while it has none.
func (a *Attempt) Trace() tga.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id
}

func (a *Attempt) setTrace(id tga.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !id.IsZero() {
		a.id = id
	}
}

// NewID is the id of a trace.
func NewID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// Moves returns what is closed when what the attempt is at changes, and when it has its outcome; nil where it has.
func (a *Attempt) Moves() (moved, done <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Done.Is() {
		return nil, nil
	}
	return a.moved, a.Done.C
}

// name tells who waits that the call has a trace in the log and is not over. A call that
// waits for a lease may have none yet.
func (a *Attempt) name(b runtime.Begun) {
	if a.LedgerKey() != "" || b.Standing == runtime.BeginNeedsApproval || !a.q.Trace.IsZero() {
		a.Named.Set()
	}
}

// learn takes the key that the log has for the call.
func (a *Attempt) learn(b runtime.Begun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger = cmp.Or(b.Key, b.Result.Key, a.ledger)
}

// LedgerKey is the key of the call in the log, "" while that has not said.
func (a *Attempt) LedgerKey() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger
}
