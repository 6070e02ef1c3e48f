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

// Client makes a call. It leads to the person at the client and to the tool server.
type Client interface {
	// Elicits reports whether the client's person can be asked while the call waits. Agreed is the
	// protocol revision of the client's handshake, "" if it made none.
	Elicits() bool
	Agreed() mcpraw.Revision
	// Elicit asks that person and returns the result. It calls over when the question is no longer open.
	Elicit(ctx context.Context, question []byte, over func()) ([]byte, error)
	// Await waits for a tool server that runs, and returns it.
	Await(ctx context.Context) (frames.Upstream, error)
	// Write writes the call to the tool server. Its error is [runtime.ErrNotSent] only if no byte was
	// written. It calls late right before the first byte, and writes nothing if late returns an error.
	Write(up frames.Upstream, b runtime.Begun, sc runtime.SpanContext, late func() error) error
	// Reread reads the tool's definition again, and reports whether it now wants other headers.
	Reread(ctx context.Context) bool
	// Poll asks about a task of the tool server, as which the call goes on, until the task is over. made says that the
	// tool server has just made it. Poll returns false if the tool server has given the task's id to another call since.
	Poll(o *Open, made bool) bool
	Withdraw() // tell the tool server that the call is cancelled
	Dropped()  // a late answer has come: no other is expected
	Settled()  // the late answer was recorded and ended the doubt
}

// Call is a call as its attempt knows it.
type Call struct {
	By      Client
	To      *Recipient
	Params  *toolcall.Params
	Args    []byte // canonical
	Asked   tga.Digest
	Hint    string      // what the tool server says of its tool (readOnlyHint, idempotentHint)
	Derived bool        // the call has no key of its own: the log decides whether it is a repeat
	Scope   string      // keeps apart calls that are otherwise identical
	Earlier []*Delivery // answers that the client may have had before it made this call

	Connection string // id of the connection
	Shared     bool   // by several clients
	Subject    string // identity noted of the client's Authorization header, if that is forwarded
	Present    *paper.Presence
	Permits    *Permits

	Vote     *toolcall.Vote // vote of the person at the client on the trace VoteOn; nil = none
	VoteOn   tga.ID
	Again    tga.ID // trace of a call that this person wants to run again
	Posed    bool   // the person was asked because of this message, or the message brings their answer
	Question []byte // if set, the message is answered with this question to the person

	// Set if a task of the shim's own is taken up.
	Trace     tga.ID // the task's trace, which the call continues; zero for any other call
	LedgerKey string // key of that trace; "" = still derived
	NoSend    bool   // the task was cancelled: do not send

	Sent      atomic.Bool
	GaveUp    *wait.Latch // the client cancelled the call
	Arrivals  chan *frames.Frame
	mu        sync.Mutex
	joined    *Attempt
	part      func() bool         // leaves the attempt, once; see [Attempt.Exit]
	abandoned func(*frames.Frame) // gets an answer that comes after the attempt was given up
}

// setAttempt sets the attempt that the call waits for.
func (q *Call) setAttempt(a *Attempt) {
	q.mu.Lock()
	q.joined, q.part = a, sync.OnceValue(a.Exit)
	q.mu.Unlock()
	if q.GaveUp.Is() {
		q.GoesWithout() // the client cancelled before there was an attempt to leave
	}
}

// GoesWithout ends the call's wait for its attempt. It reports whether it was the last call
// that waited.
func (q *Call) GoesWithout() (last bool) {
	q.mu.Lock()
	part := q.part
	q.mu.Unlock()
	return part != nil && part()
}

// Attempt is the attempt that the call waits for, or has waited for.
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

// send writes the call to the tool server. It calls late right before the first byte, and sends
// nothing if late returns an error.
func (q *Call) send(up frames.Upstream, b runtime.Begun, sc runtime.SpanContext, late func() error) error {
	select {
	case f := <-q.Arrivals: // a leftover answer to an earlier attempt
		f.Close()
	default:
	}
	q.Sent.Store(true) // before the write: a cancellation that comes during the write must be passed on
	err := q.By.Write(up, b, sc, late)
	if errors.Is(err, runtime.ErrNotSent) {
		q.Sent.Store(false)
	}
	return err
}

// lateTo makes f receive an answer that comes from now on.
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
