//go:build unix

package entry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
)

// NoteGrace is how long it may take to note what the client has got. Clients kill a server that
// takes much longer to go when it is told to.
const NoteGrace = 1500 * time.Millisecond

// Line is a party whose client is on stdin and stdout.
type Line interface {
	Party
	Appears(*paper.Presence) // the client is there for as long as that is
	Ready()                  // waits until messages can be taken
	Note()                   // has the log know of what the client was given
	Underway() int           // requests that have no answer yet, or one that is not noted
}

// Wired is a client on stdin and stdout.
type Wired struct {
	P     Line
	State string        // directory for long messages, and for the client's presence
	Most  int64         // bytes of a message
	Grace time.Duration // for calls under way at the end
	Quit  time.Duration // for the end of the tool server
	Log   *slog.Logger
}

// Serve takes the client's messages until they end. kept says why the tool server could not be had
// before that.
func (w *Wired) Serve(ctx context.Context, in io.Reader) (err, kept error) {
	present, err := paper.Appear(w.State)
	if err != nil {
		return err, nil
	}
	defer present.Remove()
	w.P.Appears(present)
	defer w.P.End()
	over := make(chan error, 1)
	go func() { over <- w.P.Run() }()
	read := make(chan error, 1)
	go func() {
		// What the client says before there is a tool server waits in its pipe, in order.
		w.P.Ready()
		read <- readAll(w.P, w.State, frames.NewFrames(in, w.Most))
	}()

	select {
	case kept := <-over:
		return nil, kept // without an error the client is gone
	case err = <-read:
		// The client has closed its end: who repeats a call of its elsewhere goes on with it.
		// First what it was given is noted, so that this is not taken for lost.
		w.P.Note()
		present.Leave()
		w.settle(ctx)
	case <-ctx.Done():
		err = nil
	}
	w.P.Note()
	w.P.End()
	select {
	case keptErr := <-over:
		if err == nil {
			err = keptErr
		}
	case <-time.After(w.Quit):
		w.Log.Warn("the client takes nothing any more; what was on its way to it is given up")
	}
	return err, nil
}

// readAll takes the client's messages until there are no more.
func readAll(p Party, state string, in *frames.Frames) error {
	in.Dir = state
	for {
		f, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the client's messages: %w", err)
		}
		p.FromClient(f)
	}
}

// settle waits until nothing is under way, for a time and until ctx ends.
func (w *Wired) settle(ctx context.Context) {
	until := time.After(w.Grace)
	for {
		if w.P.Underway() == 0 || w.P.Over() {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-until:
			return
		case <-ctx.Done():
			return
		}
	}
}
