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

// NoteGrace is how long noting the deliveries may take at the end. A client kills a server that
// takes much longer to exit.
const NoteGrace = 1500 * time.Millisecond

// Line is a party whose client is on stdin and stdout.
type Line interface {
	Party
	Appears(*paper.Presence) // sets the lock that shows that the client lives
	Ready()                  // waits until messages can be handled
	Note()                   // notes the deliveries of the answers that the client was given
	Underway() int           // requests without an answer, or with an answer whose delivery is not noted
}

// Wired is a client on stdin and stdout.
type Wired struct {
	P     Line
	State string        // directory for long messages, and for the client's presence
	Most  int64         // longest message in bytes
	Grace time.Duration // how long calls under way may take at the end
	Quit  time.Duration // how long the tool server may take to end
	Log   *slog.Logger
}

// Serve handles the client's messages until they end. kept says why the tool server could not be
// started, if Serve ends because of that.
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
		// Messages that come before the tool server has started wait in the client's pipe, in order.
		w.P.Ready()
		read <- readAll(w.P, w.State, frames.NewFrames(in, w.Most))
	}()

	select {
	case kept := <-over:
		return nil, kept // if kept is nil, the client is gone
	case err = <-read:
		// The client has closed its end. Once its lock is released, a repeat of its call over another
		// connection continues that call. So the deliveries are noted first: else the log would take
		// an answer that the client has for a lost one.
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
		w.Log.Warn("the client has stopped reading; messages to it are dropped")
	}
	return err, nil
}

// readAll handles the client's messages until there are no more.
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

// settle waits until nothing is under way, but at most Grace and until ctx ends.
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
