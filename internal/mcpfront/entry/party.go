//go:build unix

package entry

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpraw"
)

// Outlet writes messages to a client.
type Outlet interface {
	// Send writes a message to the client and returns once it was written whole.
	Send(env *mcpraw.Envelope, parts ...io.WriterTo) error
	// Hand writes a message to the client, and need not wait until it was written.
	Hand(env *mcpraw.Envelope, parts ...io.WriterTo) error
}

// errNotThere says that a message was written whole and reached nobody: the client was gone.
var errNotThere = errors.New("the client is gone")

// NewStdout makes the outlet of a client that reads lines.
func NewStdout(w io.Writer) Outlet { return stdout{frames.NewSink(w)} }

type stdout struct{ *frames.Sink }

func (s stdout) Send(_ *mcpraw.Envelope, parts ...io.WriterTo) error {
	err := s.Write(parts...)
	if err == nil && paper.NoReader(s.Under) {
		return errNotThere // the message is in a pipe that nobody reads
	}
	return err
}

func (s stdout) Hand(_ *mcpraw.Envelope, parts ...io.WriterTo) error { return s.Write(parts...) }

// Challengeable is an outlet whose answers have an HTTP status.
type Challengeable interface {
	// Challenge makes the answer to a request a challenge. It is called before the answer is given.
	Challenge(id []byte, ch *frames.Challenge)
}

// ErrNoTaker says that nobody waits for an answer any more. The conversation goes on.
var ErrNoTaker = errors.New("nobody waits for the answer any more")

// Party is a client's conversation with one tool server or with several.
type Party interface {
	FromClient(f *frames.Frame)
	RefusedParams(ctx context.Context, h http.Header, m *frames.Frame) *Refusal
	GivenUp(key frames.Key)
	Run() error // returns when the conversation is over
	End()
	Over() bool
	Busy() bool // a request of its clients is under way
	Release()   // frees what the conversation holds, once Run has returned
}

// Meeting begins a client's conversation.
type Meeting func(out Outlet, of Whose) (Party, error)

// Whose says to which clients a conversation belongs.
type Whose struct {
	Shared bool           // several clients, which know nothing of each other
	Tokens subject.Tokens // credentials that all of them have sent
}
