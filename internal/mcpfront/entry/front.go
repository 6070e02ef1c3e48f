//go:build unix

package entry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Front serves streamable HTTP. A client that makes a handshake has a session and a tool server
// of its own, as on stdin and stdout; clients of a revision without a handshake share one. If
// credentials are forwarded, a conversation belongs to the credentials that it began with. A
// request with other credentials does not reach it, whatever session the request names.
type Front struct {
	o    FrontOptions
	meet Meeting
	life context.Context

	mu       sync.Mutex
	closed   chan struct{} // closed when the front is to end
	sessions map[string]*session
	shared   map[string]*session // by the mark of the credentials
	next     atomic.Uint64       // source of the ids of requests in shared sessions
	wg       sync.WaitGroup
}

// session is one client's conversation over HTTP. It is the outlet of its party.
type session struct {
	f      *Front
	c      Party
	mark   string // mark of the credentials that come with each request; "" = without credentials
	shared bool   // several clients: ids are mapped
	over   chan struct{}

	mu      sync.Mutex
	waits   map[frames.Key]*exchange // requests whose answer a POST waits for
	tokens  map[string]*exchange
	stream  chan []byte // messages for the open GET; nil = no GET is open
	used    time.Time
	pending [][]byte // messages for a later GET
}

// Limits of the front.
const (
	maxSessions    = 256
	sessionIdle    = 30 * time.Minute
	maxHeaderBytes = 64 << 10
	maxPosted      = 64 << 20
	maxBuffered    = 256 // messages kept for a GET that is not open
	maxQueued      = 16  // messages queued for a POST
	sessionHeader  = "Mcp-Session-Id"
	// stallWait is how long a client may take none of the bytes that are written to it. It is
	// also the longest time that such a client holds up clients that share its tool server.
	stallWait = 10 * time.Second
)

// FrontOptions are the options of a front.
type FrontOptions struct {
	// From returns the current sources of the credentials that the tool servers get. nil means no sources.
	From  func() []subject.Source
	Stall time.Duration // how long a client may take no bytes; zero means 10s
	Log   *slog.Logger
}

// NewFront makes a front whose conversations meet begins. It lasts as long as life.
func NewFront(o FrontOptions, meet Meeting, life context.Context) *Front {
	o.Stall = cmp.Or(o.Stall, stallWait)
	if o.From == nil {
		o.From = func() []subject.Source { return nil }
	}
	return &Front{o: o, meet: meet, life: life, closed: make(chan struct{}), sessions: map[string]*session{}, shared: map[string]*session{}}
}

// ListenOn listens on an address of this machine, "unix:PATH" or host:port. The error is VALIDATION_ERROR
// if the address is not one of this machine, STATE_LOCK_ACQUIRE_FAILED if somebody listens there, and
// STORE_UNAVAILABLE if listening fails otherwise.
func ListenOn(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listen.Unix(path, 0o600)
	}
	if _, _, err := net.SplitHostPort(address); err != nil || !listen.Loopback(address) {
		return nil, tga.Errorf(tga.ValidationError, "listen on %q: want unix:PATH, or an address of this machine as 127.0.0.1:8080", address)
	}
	return ListenAt(address)
}

// ListenAt listens on host:port, which other machines may be able to reach.
func ListenAt(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "listen: %w", err)
	}
	return l, nil
}

func serverOf(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeaderBytes,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, socketKey{}, c) }}
}

// Lobby serves clients over HTTP.
type Lobby interface {
	http.Handler
	Expire(now time.Time)
	Wait() // until its conversations are over
}

// Wait returns once the conversations are over.
func (f *Front) Wait() { f.wg.Wait() }

// Serve serves the [Lobby] that made returns, until ctx ends.
func Serve(ctx context.Context, l net.Listener, logger *slog.Logger, made func(life context.Context) Lobby) error {
	life, end := context.WithCancel(ctx)
	defer end()
	f := made(life)
	srv := serverOf(f)
	srv.ErrorLog = log.New(complaints{logger}, "", 0)
	failed := make(chan error, 1)
	go func() { failed <- listen.HTTP(srv, l) }()
	tidy := time.NewTicker(time.Minute)
	defer tidy.Stop()
	var err error
	for err == nil && life.Err() == nil {
		select {
		case err = <-failed:
			err = tga.Errorf(tga.StoreUnavailable, "serve: %w", err)
		case now := <-tidy.C:
			f.Expire(now)
		case <-life.Done():
		}
	}
	end()
	bounded, cancel := context.WithTimeout(context.Background(), NoteGrace)
	defer cancel()
	if shutErr := srv.Shutdown(bounded); shutErr != nil {
		err = errors.Join(err, srv.Close())
	}
	f.Wait()
	return err
}

// complaints logs the messages of net/http. TLS handshake errors have level debug, because anybody can cause them.
type complaints struct{ log *slog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	level := slog.LevelError
	if bytes.Contains(line, []byte("TLS handshake error")) {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, strings.TrimSpace(string(line)))
	return len(line), nil
}

func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Clears the deadline of an earlier request on this connection. It fails only without a connection.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	_, page, _ := strings.Cut(r.Header.Get("Origin"), "://")
	if r.Header.Get("Origin") != "" && !listen.Loopback(page) {
		http.Error(w, "this origin may not call tools", http.StatusForbidden)
		return
	}
	from := f.o.From()
	tokens, err := subject.Take(r.Header, from)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if where := metadataAt(from, r.URL.Path); where != "" {
		f.metadata(w, r, where)
		return
	}
	switch r.Method {
	case http.MethodPost:
		f.post(w, r, tokens)
	case http.MethodGet:
		f.get(w, r, tokens)
	case http.MethodDelete:
		if s := f.find(r, tokens); s != nil {
			s.c.End()
			w.WriteHeader(http.StatusNoContent)
			return
		}
		http.Error(w, "no such session", http.StatusNotFound)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "no such method", http.StatusMethodNotAllowed)
	}
}

func (f *Front) find(r *http.Request, tokens subject.Tokens) *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[r.Header.Get(sessionHeader)]
	if s == nil || s.mark != tokens.Mark() || s.c.Over() {
		return nil // also if the session has ended and is being removed
	}
	s.touch()
	return s
}

func (s *session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
}

// open starts a conversation.
func (f *Front) open(id string, tokens subject.Tokens) (*session, error) {
	mark := tokens.Mark()
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.shared[mark]; id == "" && s != nil {
		return s, nil // another request has opened it first
	}
	select {
	case <-f.closed:
		return nil, errors.New("this identity was removed from the gateway")
	default:
	}
	if f.life.Err() != nil || len(f.sessions)+len(f.shared) >= maxSessions {
		return nil, errors.New("too many sessions are open")
	}
	s := &session{
		f: f, mark: mark, shared: id == "", over: make(chan struct{}), used: time.Now(),
		waits: map[frames.Key]*exchange{}, tokens: map[string]*exchange{},
	}
	c, err := f.meet(s, Whose{Shared: s.shared, Tokens: tokens})
	if err != nil {
		return nil, err
	}
	s.c = c
	if id == "" {
		f.shared[mark] = s
	} else {
		f.sessions[id] = s
	}
	f.wg.Go(func() {
		stop := context.AfterFunc(f.life, s.c.End)
		err := s.c.Run()
		if err != nil {
			f.o.Log.Warn("a session ended", "error", err)
		}
		stop()
		s.c.End()
		s.c.Release()
		close(s.over)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.sessions, id)
		if f.shared[mark] == s {
			delete(f.shared, mark)
		}
	})
	return s, nil
}

// Expire ends the sessions that were not used for sessionIdle.
func (f *Front) Expire(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all() {
		if s.shared && s.mark == "" {
			continue // all clients without credentials share it, so it is never idle for good
		}
		s.mu.Lock()
		idle := len(s.waits) == 0 && s.stream == nil && now.Sub(s.used) > sessionIdle
		s.mu.Unlock()
		if idle {
			s.c.End()
		}
	}
}

// all returns the open conversations. The caller holds the front's lock.
func (f *Front) all() []*session {
	return slices.AppendSeq(slices.Collect(maps.Values(f.sessions)), maps.Values(f.shared))
}

// sessionOf finds or opens the conversation of a message. A revision without a handshake has no
// sessions, so a session header of such a request is ignored.
func (f *Front) sessionOf(w http.ResponseWriter, r *http.Request, m *frames.Frame, modern bool, tokens subject.Tokens) *session {
	if r.Header.Get(sessionHeader) != "" && !modern {
		s := f.find(r, tokens)
		if s == nil {
			http.Error(w, "no such session", http.StatusNotFound)
		}
		return s
	}
	id := ""
	if m.Method == "initialize" {
		id = frames.Nonce()
		w.Header().Set(sessionHeader, id)
	}
	f.mu.Lock()
	s := f.shared[tokens.Mark()]
	f.mu.Unlock()
	if s != nil && id == "" {
		s.touch()
		return s
	}
	s, err := f.open(id, tokens)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return nil
	}
	return s
}

func (f *Front) post(w http.ResponseWriter, r *http.Request, tokens subject.Tokens) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPosted))
	if err != nil {
		http.Error(w, "the message is too long, or was cut", http.StatusRequestEntityTooLarge)
		return
	}
	m := frames.OneLine(raw) // as the tool server reads it
	modern := isModern(r.Header, m)
	if modern {
		if no := refused(r.Header, m); no != nil {
			f.refuse(w, no, m.RawID)
			return
		}
	}
	s := f.sessionOf(w, r, m, modern, tokens)
	switch {
	case s == nil:
	case m.Bad != "":
		id := m.RawID
		if id == nil {
			id = []byte("null")
		}
		f.refuse(w, unfit(m, http.StatusOK), id)
	case m.Batch && s.shared:
		// Whose the answers are could not be told: several clients use the same ids.
		f.refuse(w, malformed(mcpraw.CodeInvalidRequest, "an array of messages needs a session: begin with initialize"), []byte("null"))
	case s.shared && !m.IsRequest() && (m.Method == "notifications/cancelled" || !m.IsNotification()):
		// Several clients share the conversation, so the id may be that of another client's
		// request. These clients give a request up by closing its POST, and they are asked
		// nothing, so they have nothing to answer.
		f.o.Log.Debug("dropped a message about a request: several clients share the conversation", "method", m.Method)
		w.WriteHeader(http.StatusAccepted)
	case !frames.WantsAnswer(m):
		s.hear(m)
		w.WriteHeader(http.StatusAccepted)
	default:
		if modern {
			if no := s.c.RefusedParams(r.Context(), r.Header, m); no != nil {
				f.refuse(w, no, m.RawID)
				return
			}
		}
		s.exchange(w, r, m, modern)
	}
}

// get serves the stream of messages that belong to no request.
func (f *Front) get(w http.ResponseWriter, r *http.Request, tokens subject.Tokens) {
	s := f.find(r, tokens)
	if s == nil && r.Header.Get(sessionHeader) != "" {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	if s == nil {
		http.Error(w, "there is no stream without a session", http.StatusMethodNotAllowed)
		return
	}
	s.mu.Lock()
	if s.stream != nil {
		s.mu.Unlock()
		http.Error(w, "a stream is open", http.StatusConflict)
		return
	}
	stream := make(chan []byte, maxBuffered)
	for _, raw := range s.pending {
		stream <- raw
	}
	s.stream, s.pending = stream, nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stream = nil
		var unread [][]byte // for the next stream, before later messages
		for len(stream) > 0 {
			unread = append(unread, <-stream)
		}
		s.pending = append(unread, s.pending...)
		s.pending = s.pending[:min(len(s.pending), maxBuffered)]
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if flush(w) != nil {
		return
	}
	for {
		select {
		case raw := <-stream:
			if s.f.writeEvent(w, nil, raw) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.over:
			return
		case <-f.closed:
			return
		}
	}
}
