package attempt

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/workspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Options are those of a shim that its attempts go by.
type Options struct {
	Server, Namespace string
	State             string // a directory for what the shims of this machine must know of each other
	Find              string // flags that lead the verbs of the command to the log
	Log               asklog.Log
	Logger            *slog.Logger
	Workspace         *workspace.Keeper // nil is none
	Tracer            runtime.Tracer    // nil makes no spans
	Looks, Settles    bool              // the client is offered a tool that lists calls in doubt, and one that settles them

	MaxKeepBytes int64         // longest answer that is recorded whole
	CancelGrace  time.Duration // for an answer after a cancellation
	LogTimeout   time.Duration // how long a call waits for a log that is away
}

// Desk is what the attempts of a shim have in common.
type Desk struct {
	o     Options
	Log   *slog.Logger
	Shelf *asklog.Shelf   // what the log keeps for the shim
	alive *paper.Presence // of this process: who sends is there

	Life context.Context // ends with Close: of attempts
	end  context.CancelFunc
	Work sync.WaitGroup // attempts under way

	Reap     func()      // gives up what clients over HTTP wait for no more
	voteless atomic.Bool // the log does not take the votes of people at the client
	// NoteDelay is how long the note that an answer was delivered waits for the next call's
	// begin to take it along.
	NoteDelay time.Duration

	mu      sync.Mutex
	open    map[place]*Attempt   // at most one attempt a key
	classes map[string]bool      // whether a tool's calls need a key, as the log said
	unsent  map[tga.ID]uint32    // attempts that were given back, of traces under way
	places  map[string]*Delivery // derived names whose answer is on its way
	notes   map[*Delivery]bool   // answers that are given, or being given, and not noted
}

// ErrOver says that nobody is left to whom an outcome could be told.
var ErrOver = errors.New("the conversation is over")

// NewDesk makes a desk. It starts nothing.
func NewDesk(o Options) (*Desk, error) {
	s := &Desk{
		o: o, Log: o.Logger.With("tool_server", o.Server), Shelf: asklog.NewShelf(o.Log, o.Namespace, o.Server), Reap: func() {}, NoteDelay: noteDelay,
		open: map[place]*Attempt{}, classes: map[string]bool{}, unsent: map[tga.ID]uint32{}, places: map[string]*Delivery{}, notes: map[*Delivery]bool{},
	}
	err := paper.Tidy(o.State)
	if err == nil {
		s.alive, err = paper.Appear(o.State)
	}
	if err != nil {
		return nil, err
	}
	s.Life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close gives up what is under way and returns once it is. An answer that waits for the
// log is given up too: its call stays in doubt.
func (s *Desk) Close() error {
	s.end()
	s.Work.Wait()
	s.alive.Remove()
	return nil
}

// Occupied reports whether a call is under way, or an answer that was given is not noted.
func (s *Desk) Occupied() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)+len(s.notes) > 0
}

// Underway are the attempts that are.
func (s *Desk) Underway() []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.open))
}
