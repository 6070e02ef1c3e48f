package entry

import (
	"net/http"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// Open opens the conversation of a session, or that of the clients without one.
func (f *Front) Open(id string) (any, error) { return f.open(id, nil) }

// Entered is how many requests have come.
func (f *Front) Entered() uint64 { return f.next.Load() }

// Waiting is how many requests of clients without a session wait for an answer.
func (f *Front) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shared[""]
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

// SetStall says how long a client may take nothing.
func (f *Front) SetStall(d time.Duration) { f.o.Stall = d }

// Server is what serves the front, and knows the sockets of its clients.
func (f *Front) Server() *http.Server { return serverOf(f) }

// Entry is a request that waits for its answer.
type Entry struct {
	s   *session
	e   *exchange
	m   *frames.Frame
	key frames.Key
}

// Enter has a request of a client without a session wait, which came on a socket.
func (f *Front) Enter(raw string, socket any, gone <-chan struct{}, modern bool) (*Entry, error) {
	s := f.shared[""]
	e := &exchange{events: make(chan event, 8), socket: socket, gone: gone, modern: modern}
	m, key, err := s.enter(frames.NewFrame([]byte(raw)), e)
	return &Entry{s, e, m, key}, err
}

// Ask gives the request to its conversation.
func (e *Entry) Ask() { e.s.c.FromClient(e.m) }

// Busy reports whether something is under way in the conversation.
func (e *Entry) Busy() bool { return e.s.c.Busy() }

// Leave has the request wait no more.
func (e *Entry) Leave() { e.s.leave(e.key, e.e) }
