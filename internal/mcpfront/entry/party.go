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

// Outlet is the way to a client.
type Outlet interface {
	// Send gives a message to the client and returns once it was handed over whole.
	Send(env *mcpraw.Envelope, parts ...io.WriterTo) error
	// Hand gives a message to the client, and need not wait until that has it.
	Hand(env *mcpraw.Envelope, parts ...io.WriterTo) error
}

// errNotThere says that what was written whole reached nobody: its client was gone.
var errNotThere = errors.New("the client is gone")

// NewStdout is the way to a client that reads lines.
func NewStdout(w io.Writer) Outlet { return stdout{frames.NewSink(w)} }

type stdout struct{ *frames.Sink }

func (s stdout) Send(_ *mcpraw.Envelope, parts ...io.WriterTo) error {
	err := s.Write(parts...)
	if err == nil && paper.NoReader(s.Under) {
		return errNotThere // it lies in a pipe that nobody reads
	}
	return err
}

func (s stdout) Hand(_ *mcpraw.Envelope, parts ...io.WriterTo) error { return s.Write(parts...) }

// Challengeable is an outlet whose answers have a status.
type Challengeable interface {
	// Challenge sets the status of the answer to a request, before that is given.
	Challenge(id []byte, ch *frames.Challenge)
}

// ErrNoTaker says that the request of an answer is gone. The conversation goes on.
var ErrNoTaker = errors.New("nobody waits for the answer any more")

// Party is what a client's way leads to: a conversation with one tool server, or with several.
type Party interface {
	FromClient(f *frames.Frame)
	RefusedParams(ctx context.Context, h http.Header, m *frames.Frame) *Refusal
	GivenUp(key frames.Key)
	Run() error // until the conversation is over
	End()
	Over() bool
	Busy() bool // something is under way for its clients
	Release()   // what is left of it, once run has returned
}

// Meeting begins a client's conversation.
type Meeting func(out Outlet, of Whose) (Party, error)

// Whose says which clients a conversation is of.
type Whose struct {
	Shared bool           // several, which know nothing of each other
	Tokens subject.Tokens // that all of them have sent
}
