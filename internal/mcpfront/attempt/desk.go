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

// Options are the options of a shim that its attempts need.
type Options struct {
	Server, Namespace string
	State             string // a directory in which the shims of this machine see each other
	Find              string // flags by which the verbs of the command find the log
	Log               asklog.Log
	Logger            *slog.Logger
	Workspace         *workspace.Keeper // nil is none
	Tracer            runtime.Tracer    // nil makes no spans
	Looks, Settles    bool              // the client is offered a tool that lists calls in doubt, and one that settles them

	MaxKeepBytes int64         // longest answer that is recorded whole
	CancelGrace  time.Duration // for an answer after a cancellation
	LogTimeout   time.Duration // how long a call waits for a log that is away
}

// Desk has the state that the attempts of a shim share.
type Desk struct {
	o     Options
	Log   *slog.Logger
	Shelf *asklog.Shelf   // values that the log keeps for the shim
	alive *paper.Presence // lock of this process: shows the log that the sender lives

	Life context.Context // context of the attempts; ends with Close
	end  context.CancelFunc
	Work sync.WaitGroup // attempts under way

	Reap     func()      // gives up the calls of clients over HTTP that have gone
	voteless atomic.Bool // the log refuses the votes of people at the client
	// NoteDelay is how long the note of a delivery waits for the begin of the client's next
	// call, which can carry it.
	NoteDelay time.Duration

	mu      sync.Mutex
	open    map[place]*Attempt   // at most one attempt for a key
	classes map[string]bool      // by tool: the log has said that its calls need a key
	unsent  map[tga.ID]uint32    // by trace: attempts whose permit was returned as not sent
	places  map[string]*Delivery // by derived name: an answer that is being given
	notes   map[*Delivery]bool   // deliveries that are under way or not noted yet
}

// ErrOver says that the conversation has ended, so that nobody is left to get an outcome.
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

// Close ends the attempts that are under way, and returns once they have ended. An answer that
// waits for the log is dropped too: its call stays in doubt.
func (s *Desk) Close() error {
	s.end()
	s.Work.Wait()
	s.alive.Remove()
	return nil
}

// Occupied reports whether a call is under way, or a delivery is not noted yet.
func (s *Desk) Occupied() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)+len(s.notes) > 0
}

// Underway returns the attempts that are under way.
func (s *Desk) Underway() []*Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.open))
}
