//go:build unix

package mcpfront

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpraw"
)

// outlet is the way to a client.
type outlet interface {
	// send gives a message to the client and returns once it was handed over whole.
	send(env *mcpraw.Envelope, parts ...io.WriterTo) error
	// hand gives a message to the client, and need not wait until that has it.
	hand(env *mcpraw.Envelope, parts ...io.WriterTo) error
}

// errNotThere says that what was written whole reached nobody: its client was gone.
var errNotThere = errors.New("the client is gone")

// stdout is the way to a client that reads lines.
type stdout struct{ *frames.Sink }

func (s stdout) send(_ *mcpraw.Envelope, parts ...io.WriterTo) error {
	err := s.Write(parts...)
	if err == nil && paper.NoReader(s.Under) {
		return errNotThere // it lies in a pipe that nobody reads
	}
	return err
}

func (s stdout) hand(_ *mcpraw.Envelope, parts ...io.WriterTo) error { return s.Write(parts...) }

// challengeable is an outlet whose answers have a status.
type challengeable interface {
	// challenge sets the status of the answer to a request, before that is given.
	challenge(id []byte, ch *frames.Challenge)
}

// errNoTaker says that the request of an answer is gone. The conversation goes on.
var errNoTaker = errors.New("nobody waits for the answer any more")

// party is what a client's way leads to: a conversation with one tool server, or with several.
type party interface {
	fromClient(f *frames.Frame)
	refusedParams(ctx context.Context, h http.Header, m *frames.Frame) *refusal
	givenUp(key frames.Key)
	run() error // until the conversation is over
	end()
	over() bool
	busy() bool // something is under way for its clients
	release()   // what is left of it, once run has returned
}

// meeting begins a client's conversation.
type meeting func(out outlet, of whose) (party, error)

// whose says which clients a conversation is of.
type whose struct {
	shared        bool // several, which know nothing of each other
	auth, subject string
}
