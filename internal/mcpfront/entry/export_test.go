package entry

import (
	"net/http"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// Open opens the conversation of a session, or the shared one of clients without a session.
func (f *Front) Open(id string) (any, error) { return f.open(id, nil) }

// Entered is the number of requests that have come.
func (f *Front) Entered() uint64 { return f.next.Load() }

// Waiting is the number of requests of clients without a session that wait for an answer.
func (f *Front) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shared[""]
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

// SetStall sets how long a client may take no bytes.
func (f *Front) SetStall(d time.Duration) { f.o.Stall = d }

// Server makes the HTTP server of the front, which notes the socket of each request.
func (f *Front) Server() *http.Server { return serverOf(f) }

// Entry is a request that waits for its answer.
type Entry struct {
	s   *session
	e   *exchange
	m   *frames.Frame
	key frames.Key
}

// Enter enters a request of a client without a session that came on a socket.
func (f *Front) Enter(raw string, socket any, gone <-chan struct{}, modern bool) (*Entry, error) {
	s := f.shared[""]
	e := &exchange{events: make(chan event, 8), socket: socket, gone: gone, modern: modern}
	m, key, err := s.enter(frames.NewFrame([]byte(raw)), e)
	return &Entry{s, e, m, key}, err
}

// Ask passes the request to its conversation.
func (e *Entry) Ask() { e.s.c.FromClient(e.m) }

// Busy reports whether a request is under way in the conversation.
func (e *Entry) Busy() bool { return e.s.c.Busy() }

// Leave ends the request's wait.
func (e *Entry) Leave() { e.s.leave(e.key, e.e) }
