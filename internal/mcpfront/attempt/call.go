package attempt

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Client is who makes a call, with the way to its person and that to the tool server.
type Client interface {
	// Elicits reports whether the client's person can be asked while the call waits, and Agreed is the
	// revision of its handshake, where it made one.
	Elicits() bool
	Agreed() mcpraw.Revision
	// Elicit asks that person and returns the result. over is called when the question is not open any more.
	Elicit(ctx context.Context, question []byte, over func()) ([]byte, error)
	// Await returns a tool server that is there, and Write writes the call to it: an error is
	// [runtime.ErrNotSent] only where no byte went out. late is asked before the first one.
	Await(ctx context.Context) (frames.Upstream, error)
	Write(up frames.Upstream, b runtime.Begun, sc runtime.SpanContext, late func() error) error
	// Reread reads the definition of the tool again, and reports whether it wants other headers by now.
	Reread(ctx context.Context) bool
	Poll(o *Open) // the tool server works on as a task: it is to be asked about that
	Withdraw()    // the tool server is to hear that the call is given up
	Dropped()     // the answer that came late has come
	Settled()     // and has ended the doubt
}

// Call is a call as its attempt knows it.
type Call struct {
	By      Client
	To      *Recipient
	Params  *toolcall.Params
	Args    []byte // canonical
	Asked   tga.Digest
	Hint    string      // of the tool server, about its tool
	Derived bool        // it has no key of its own
	Scope   string      // that its name is derived with
	Earlier []*Delivery // answers that the client may have gone on from

	Connection string // id of the connection
	Shared     bool   // by several clients
	Subject    string // noted of its Authorization header, where that is forwarded
	Present    *paper.Presence
	Permits    *Permits

	Vote     *toolcall.Vote // of a person at the client, on
	VoteOn   tga.ID         // this trace
	Again    tga.ID         // of a call that this person says to run again
	Posed    bool           // this message has asked its person, or brings what that one says
	Question []byte         // the answer to this message that asks

	// Of a task of the shim's own that is taken up.
	Trace     tga.ID // that it goes on with, zero for any other call
	LedgerKey string // of that trace; "" = it is derived still
	NoSend    bool   // it was cancelled

	Sent      atomic.Bool
	GaveUp    *wait.Latch // the client did
	Arrivals  chan *frames.Frame
	mu        sync.Mutex
	joined    *Attempt
	part      func() bool         // says that it waits for its attempt no more, see [Attempt.Exit]
	abandoned func(*frames.Frame) // takes an answer that comes after the attempt gave up
}

// setAttempt says what the call waits for.
func (q *Call) setAttempt(a *Attempt) {
	q.mu.Lock()
	q.joined, q.part = a, sync.OnceValue(a.Exit)
	q.mu.Unlock()
	if q.GaveUp.Is() {
		q.GoesWithout() // who gave the call up before there was an attempt could not leave it
	}
}

// GoesWithout says that the call does not wait for its attempt any more. It reports whether
// it was the last one that did.
func (q *Call) GoesWithout() (last bool) {
	q.mu.Lock()
	part := q.part
	q.mu.Unlock()
	return part != nil && part()
}

// Attempt is what the call waits for, or has waited for.
func (q *Call) Attempt() *Attempt {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.joined
}

// Arrived takes the tool server's answer.
func (q *Call) Arrived(f *frames.Frame) {
	q.mu.Lock()
	late := q.abandoned
	q.mu.Unlock()
	if late != nil {
		late(f)
		return
	}
	select {
	case q.Arrivals <- f:
	default:
		q.Attempt().s.Log.Warn("a second answer to one call was dropped")
		f.Close()
	}
}

// send writes the call to the tool server, unless late has an error when its first byte is
// about to go out.
func (q *Call) send(up frames.Upstream, b runtime.Begun, sc runtime.SpanContext, late func() error) error {
	select {
	case f := <-q.Arrivals: // of an earlier attempt
		f.Close()
	default:
	}
	q.Sent.Store(true) // before the write: a cancellation that comes meanwhile must follow it
	err := q.By.Write(up, b, sc, late)
	if errors.Is(err, runtime.ErrNotSent) {
		q.Sent.Store(false)
	}
	return err
}

// lateTo hands an answer that comes from now on to f.
func (q *Call) lateTo(f func(*frames.Frame)) {
	q.mu.Lock()
	q.abandoned = f
	q.mu.Unlock()
	select {
	case came := <-q.Arrivals: // it came in between
		f(came)
	default:
	}
}

// IsAbandoned reports whether an answer may still come for an attempt that gave up.
func (q *Call) IsAbandoned() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.abandoned != nil
}
