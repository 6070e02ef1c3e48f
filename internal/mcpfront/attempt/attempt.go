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

// place identifies a call within this shim. At most one attempt at a time works on it.
type place struct{ tool, key, subject string }

// Attempt brings one call to its end. A call that was sent is finished even if the client
// gives it up. A client that repeats the call meanwhile joins this attempt.
type Attempt struct {
	s     *Desk
	q     *Call // the call that started the attempt: the tool server sees this call's id
	Key   string
	asked tga.Digest

	Done    *wait.Latch // Out is set
	Kept    *wait.Latch // the tool server's answer is here and not yet in the log
	lonely  *wait.Latch // no call waits for the outcome any more
	Told    *wait.Latch // the tool server was told that the call is cancelled
	Named   *wait.Latch // the call has a trace in the log and has not ended
	People  *wait.Latch // the call waits for people to approve it
	Out     Outcome
	Keyless bool // a read call: it is begun without a key
	posed   bool // the person at the client was asked whether the call runs again
	anew    bool // a person has settled the recorded call as not run: ask for an explicit new attempt
	conn    runtime.Connection
	Present *paper.Presence // of the client, if the client may leave while this process lives
	Tasked  atomic.Bool
	looked  *workspace.Pending // snapshot before the send that is under way; nil without a workspace

	begunAt time.Time     // when the current permit was requested
	after   time.Duration // Retry-After of the tool server's answer

	// The attempt continues an unfinished call: it sends a later message of it, under the permit of the first one.
	continues bool
	unsent    bool // that message was certainly not sent

	reread bool // the tool definitions were read again after a header mismatch

	meta tga.Meta // of a new trace

	needs   error                  // why the call waits for people; set before People
	barred  bool                   // the vote of the person at the client does not count; set before People
	unheard atomic.Pointer[string] // why the log refused that person's vote
	Asking  atomic.Bool            // a client is showing the question to its person

	mu     sync.Mutex
	id     tga.ID
	ledger string        // the call's key in the log
	words  string        // what the attempt is doing, for progress notifications
	moved  chan struct{} // closed when words changes
	wait   int           // number of calls that wait for the outcome
}

// Outcome is how an attempt ended.
type Outcome struct {
	Frame  *frames.Frame // the tool server's own message, for the call that was sent
	Value  []byte        // a recorded result or error member
	Fault  bool
	Asks   []byte // sent in place of an answer: a result that asks the person at the client
	Words  string // the answer's text if there is no effect to show
	Code   tga.Code
	RPC    int // code of a JSON-RPC error; 0 = answer with a tool error
	Trace  tga.ID
	Own    tga.ID // the trace of this call; differs from Trace if the answer was served from another
	Digest tga.Digest
	Final  bool // an effect: once it is delivered, the same call again is a new call
	Again  bool // the call needs a key after all: run it again with one
	// Redacted says that parts of the answer were taken out before Value was stored.
	Redacted bool
}

// Join finds the attempt that works on a key, or starts one. A different request under the
// same key is refused here, as the log would refuse it.
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
		// All its callers left before this call came, so that attempt is ending. The new
		// attempt learns from the log what became of it.
	}
	if a, err = s.newAttempt(q, key); err != nil {
		return nil, false, err
	}
	a.Keyless = q.Derived && !s.classes[q.Params.Tool]
	q.setAttempt(a) // before launch: a client that has already given up must make the attempt lonely
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
	// Over HTTP a client counts as present while the response stream of a request is open.
	var err error
	if a.Present, err = paper.Appear(s.o.State); err == nil {
		a.conn.Lock = a.Present.Path
	}
	return a, err
}

// Apart makes the attempt of an observed call. It has a place of its own, so that no other call joins it, and so that
// [Permits.noted] sees that this shim is executing it and does not give up its permit as one of a killed shim.
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

// Leave ends an attempt that [Desk.Apart] made.
func (a *Attempt) Leave() {
	a.s.mu.Lock()
	maps.DeleteFunc(a.s.open, func(_ place, other *Attempt) bool { return other == a })
	a.s.mu.Unlock()
	a.Done.Set()
	a.q.GoesWithout()
}

// TakeUp makes the attempt of a task's call. No call waits for it yet.
func (s *Desk) TakeUp(q *Call, key string) (*Attempt, error) {
	a, err := s.newAttempt(q, key)
	if err == nil {
		a.wait = 0
	}
	return a, err
}

// LaunchAs starts an attempt under a name of its own, because the same call made again may be a new call.
func (s *Desk) LaunchAs(name string, a *Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launch(place{a.q.Params.Tool, name, a.q.Subject}, a)
}

// Withdraw tells the tool server, at most once, that a sent call is cancelled. It does nothing if more than one call
// waits for the outcome.
func (a *Attempt) Withdraw() {
	if a.q.Sent.Load() && a.Alone() && a.Told.Set() {
		a.q.By.Withdraw()
	}
}

// launch starts an attempt. The caller holds the desk's lock.
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

// Enter adds a call that waits for the outcome. It returns false if all others have left and
// there is no answer yet: then the attempt is about to end without one.
func (a *Attempt) Enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lonely.Is() && !a.Kept.Is() {
		return false
	}
	a.wait++
	return true
}

// Exit removes a call that no longer waits, and reports whether it was the last one.
func (a *Attempt) Exit() (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wait--; a.wait == 0 {
		last = true
		a.lonely.Set()
		if !a.Tasked.Load() {
			a.Present.Leave()
			if a.Done.Is() { // else the attempt may still name this file to the log
				a.Present.Remove()
			}
		}
	}
	return last
}

// Left reports whether no call waits any more.
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

// Standing says what the attempt is doing, for progress notifications.
func (a *Attempt) Standing() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.words
}

// Trace is the trace of the call, zero while the call has none.
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

// NewID makes the id of a new trace.
func NewID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// Moves returns two channels: moved is closed when [Attempt.Standing] changes, done when the attempt has its outcome.
// Both are nil if it already has.
func (a *Attempt) Moves() (moved, done <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Done.Is() {
		return nil, nil
	}
	return a.moved, a.Done.C
}

// name sets Named once the call has a trace in the log. A call that waits for a lease may
// have no trace yet.
func (a *Attempt) name(b runtime.Begun) {
	if a.LedgerKey() != "" || b.Standing == runtime.BeginNeedsApproval || !a.q.Trace.IsZero() {
		a.Named.Set()
	}
}

// learn remembers the key that the log has for the call.
func (a *Attempt) learn(b runtime.Begun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger = cmp.Or(b.Key, b.Result.Key, a.ledger)
}

// LedgerKey is the key of the call in the log, "" until the log has named it.
func (a *Attempt) LedgerKey() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger
}
