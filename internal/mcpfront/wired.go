//go:build unix

package mcpfront

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

// noteGrace is how long it may take to note what the client has got. Clients kill a server that
// takes much longer to go when it is told to.
const noteGrace = 1500 * time.Millisecond

// line is a party whose client is on stdin and stdout.
type line interface {
	party
	appears(*paper.Presence) // the client is there for as long as that is
	ready()                  // waits until messages can be taken
	note()                   // has the log know of what the client was given
	underway() int           // requests that have no answer yet, or one that is not noted
}

// wired is a client on stdin and stdout.
type wired struct {
	p     line
	state string        // directory for long messages, and for the client's presence
	most  int64         // bytes of a message
	grace time.Duration // for calls under way at the end
	quit  time.Duration // for the end of the tool server
	log   *slog.Logger
}

// serve takes the client's messages until they end. kept says why the tool server could not be had
// before that.
func (w *wired) serve(ctx context.Context, in io.Reader) (err, kept error) {
	present, err := paper.Appear(w.state)
	if err != nil {
		return err, nil
	}
	defer present.Remove()
	w.p.appears(present)
	defer w.p.end()
	over := make(chan error, 1)
	go func() { over <- w.p.run() }()
	read := make(chan error, 1)
	go func() {
		// What the client says before there is a tool server waits in its pipe, in order.
		w.p.ready()
		read <- readAll(w.p, w.state, frames.NewFrames(in, w.most))
	}()

	select {
	case kept := <-over:
		return nil, kept // without an error the client is gone
	case err = <-read:
		// The client has closed its end: who repeats a call of its elsewhere goes on with it.
		// First what it was given is noted, so that this is not taken for lost.
		w.p.note()
		present.Leave()
		w.settle(ctx)
	case <-ctx.Done():
		err = nil
	}
	w.p.note()
	w.p.end()
	select {
	case keptErr := <-over:
		if err == nil {
			err = keptErr
		}
	case <-time.After(w.quit):
		w.log.Warn("the client takes nothing any more; what was on its way to it is given up")
	}
	return err, nil
}

// readAll takes the client's messages until there are no more.
func readAll(p party, state string, in *frames.Frames) error {
	in.Dir = state
	for {
		f, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the client's messages: %w", err)
		}
		p.fromClient(f)
	}
}

// settle waits until nothing is under way, for a time and until ctx ends.
func (w *wired) settle(ctx context.Context) {
	until := time.After(w.grace)
	for {
		if w.p.underway() == 0 || w.p.over() {
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
