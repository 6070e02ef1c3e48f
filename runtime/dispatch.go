package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Call is a durable tool call on its way to its tool server.
type Call struct {
	TraceID    tga.ID
	ToolCallID tga.ID
	Attempt    uint32 // durable number of this send
	// Namespace is the caller's, never empty.
	Namespace string
	Server    string
	Tool      string
	Args      []byte // canonical JSON object: a copy of the bytes that were digested
	// Key is the idempotency key that the tool server sees: the same for every
	// attempt, restart and executor (docs/FORMAT.md).
	Key string
	// Remote says that a remote executor sends the call. It is set for [Checker] alone:
	// then a server that this process does not reach is no error.
	Remote bool
}

// Reply is a tool server's answer, whatever it says. The runtime never refuses a reply,
// because the effect has happened. It records a copy of Result and Changes that it
// makes when Dispatch has returned.
type Reply struct {
	// Status is tga.StatusSuccess, StatusFailure (the tool reported an error) or
	// StatusDenied (the server refused this attempt before doing anything). Any other word is recorded as
	// StatusError, with the word itself in the effect's meta.tool_status.
	Status string
	// Class overrides the class that follows from Status. ClassNone overrides nothing, nor
	// does a class that an answer with this Status cannot have.
	Class ledger.Class
	// Result is the whole answer, exact bytes.
	Result []byte
	// Truncated says that the answer was over the limit: ResultBytes and
	// ResultDigest describe the whole answer, and Result is nil. Status is still that of the
	// whole answer; a dispatcher that cannot tell it without the rest uses StatusError.
	Truncated    bool
	ResultBytes  int64
	ResultDigest tga.Digest
	// Received is a keyed digest of the answer as it arrived, and ReceivedBytes its size, if
	// Result is the redacted answer. Both are zero if Result is the whole answer.
	Received      tga.Digest
	ReceivedBytes int64
	// Summary is at most 500 characters. ErrorCode and ErrorMessage (at most 200)
	// describe a status other than success; longer texts are cut. A code that is not one
	// of [tga.Codes] is kept in meta.tool_error_code, and the effect's code is TOOL_ERROR.
	Summary      string
	ErrorCode    string
	ErrorMessage string
	// RetryAfter is how long the tool server asks callers to wait, counted from its answer, if
	// the call did not succeed. The next attempt is not made earlier. A value over
	// [tga.MaxRetryAfter] counts as that maximum. An error of Dispatch carries the value in
	// [tga.Error].RetryAfter.
	RetryAfter time.Duration
	// Changes is what the call changed in the world. A replay verifies these changes.
	Changes []tga.StateChange
	// Attachments commit with the effect.
	Attachments []chain.Attachment
}

// Dispatcher sends calls to tool servers.
//
// Dispatch makes at most one transport write per call of it. It returns a nil error
// when the server answered, [ErrNotSent] (wrapped, with its cause) when it is certain
// that this attempt did not run and will not, and any other error when it cannot tell. So an
// error that its author did not foresee means doubt, and never permits another send.
type Dispatcher interface {
	Dispatch(ctx context.Context, call Call) (Reply, error)
}

// DispatcherFunc makes a Dispatcher of a function.
type DispatcherFunc func(ctx context.Context, call Call) (Reply, error)

// Dispatch calls f.
func (f DispatcherFunc) Dispatch(ctx context.Context, call Call) (Reply, error) { return f(ctx, call) }

// Preparer is a Dispatcher that stores something before a call is sent. Its
// attachments commit with the EXECUTING entry. Prepare has no effect on the world.
type Preparer interface {
	Prepare(ctx context.Context, call Call) ([]chain.Attachment, error)
}

// Checker is a Dispatcher that can say, without any effect, that a call can't be sent:
// NOT_FOUND for a server or tool that it does not have under exactly this name,
// VALIDATION_ERROR for a key or arguments that it can't carry. The runtime calls Check before
// it writes anything of a request.
//
// Check refuses only mistakes of the caller; a server that is down is no reason. A Checker
// that decorates another Dispatcher passes the question on with [Check].
type Checker interface {
	Check(ctx context.Context, call Call) error
}

// Check asks d, if it is a [Checker].
func Check(ctx context.Context, d Dispatcher, call Call) error {
	if c, ok := d.(Checker); ok {
		return c.Check(ctx, call)
	}
	return nil
}

// ErrNotSent is a definite non-execution of this attempt: the dial failed, the process
// did not start, no byte was written, or the server refused it as never begun. It says
// nothing about earlier attempts.
var ErrNotSent = errors.New("not sent")

// WithLife returns a copy of ctx for a caller that may leave while it waits for a call: if ctx
// ends while the call is being sent, the dispatch goes on until its SendTimeout or the end
// of life, and its answer is recorded. Without WithLife a dispatch ends with ctx, and the call
// is in doubt.
func WithLife(ctx, life context.Context) context.Context {
	return context.WithValue(ctx, lifeKey{}, life)
}

type lifeKey struct{}

// sending returns the context for a dispatch of a run that has ctx.
func sending(ctx context.Context) context.Context {
	if life, ok := ctx.Value(lifeKey{}).(context.Context); ok {
		if sc := SpanContextOf(ctx); sc != (SpanContext{}) {
			life = WithSpanContext(life, sc)
		}
		return life
	}
	return ctx
}

// ErrSendTimeout is the cause ([context.Cause]) of a dispatch's context that ended
// because the tool took longer than its SendTimeout. With any other cause the context ended
// because the caller gave up, or gave the call less time than SendTimeout.
var ErrSendTimeout = errors.New("the tool's send time-out is over")
