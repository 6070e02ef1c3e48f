package modelserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Options configure a [Server].
type Options struct {
	// Addr is where to listen; "" = a free port of the loopback interface.
	Addr string
	// Script has the answers, in order. A request after the last answer gets status 500.
	Script []Answer
	// ByConversation chooses the answer by the number of the assistant's messages in the
	// request. So the same question always gets the same answer, whichever process asks
	// and however often. Without it each request takes the next answer.
	ByConversation bool
	// Deduplicate repeats the earlier answer if the request's Idempotency-Key was used
	// before. Errors are not repeated.
	Deduplicate bool
	// Journal is a file in which requests are counted; "" = none. A server continues an
	// existing journal.
	Journal string
	// Key is the API key that a client must show; "" = any.
	Key string
}

// Request is a request as it came in.
type Request struct {
	N      int
	API    string // openai or anthropic
	Header http.Header
	Body   []byte
}

// Server is a running server.
type Server struct {
	opts    Options
	journal *journal
	http    *http.Server
	url     string
	served  chan error

	release chan struct{}
	held    chan struct{}
	closing chan struct{}
	open    sync.WaitGroup // requests at work

	mu       sync.Mutex
	closed   bool
	next     int // index of the next answer
	counts   Counts
	known    map[string]int // answers by key
	requests []Request
	broken   error // of the journal
}

// most bounds a request's body.
const most = 64 << 20

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	s := &Server{
		opts: o, served: make(chan error, 1), known: map[string]int{},
		release: make(chan struct{}, 1<<16), held: make(chan struct{}, 1<<16), closing: make(chan struct{}),
	}
	if o.Journal != "" {
		j, records, err := openJournal(o.Journal)
		if err != nil {
			return nil, err
		}
		s.journal = j
		for _, r := range records {
			s.account(r)
		}
	}
	addr := cmp.Or(o.Addr, "127.0.0.1:0")
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Join(err, s.journal.close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, openai{}) })
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, anthropic{}) })
	s.url = "http://" + l.Addr().String() + "/v1"
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// URL is the base of both APIs, without a slash at the end.
func (s *Server) URL() string { return s.url }

// Close ends the server and the requests under way. Afterwards the counts no longer change.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.closing)
	err := s.http.Close()
	if e := <-s.served; e != http.ErrServerClosed {
		err = errors.Join(err, e)
	}
	s.open.Wait()
	return errors.Join(err, s.journal.close())
}

// Release lets one held answer go on, or the next that will be held.
func (s *Server) Release() { s.release <- struct{}{} }

// Held receives a value for each answer that begins to be held.
func (s *Server) Held() <-chan struct{} { return s.held }

// Counts returns what the server has counted so far, including a journal it found.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.ByKey = map[string]int{}
	for k, n := range s.counts.ByKey {
		c.ByKey[k] = n
	}
	return c
}

// Requests returns what came in since Start, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// hold waits for Release. It returns false if the request or the server ends before.
func (s *Server) hold(ctx context.Context) bool {
	s.held <- struct{}{}
	select {
	case <-s.release:
		return true
	case <-ctx.Done():
	case <-s.closing:
	}
	return false
}

// account counts a record. The caller holds mu, or nobody else knows s yet.
func (s *Server) account(r Record) {
	s.counts.add(r)
	if r.Op == Asked {
		s.next = max(s.next, r.Answer+1)
		if r.Key != "" && !r.Failed {
			s.known[r.Key] = r.Answer
		}
	}
}

// record counts a record once it is on disk.
func (s *Server) record(r Record) error {
	if s.broken != nil {
		return s.broken
	}
	if err := s.journal.append(r); err != nil {
		s.broken = err // what is on disk is not known since
		return err
	}
	s.account(r)
	return nil
}

// api is one of the two wire formats.
type api interface {
	name() string
	key(h http.Header) string
	// read checks a request as the provider would.
	read(h http.Header, body []byte) (question, error)
	plain(n int, q question, a Answer) []byte
	events(n int, q question, a Answer) []string
	broken(a Answer) string
	fault(status int, code, message string) []byte
}

// question is what the server understands of a request.
type question struct {
	model      string
	stream     bool
	usage      bool // in a stream, where it has to be asked for
	assistants int  // messages of the assistant
}

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, a api) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.open.Add(1)
	s.mu.Unlock()
	defer s.open.Done()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		panic(http.ErrAbortHandler) // nobody is left to be told
	}
	key := r.Header.Get("Idempotency-Key")
	q, bad := a.read(r.Header, body)
	if s.opts.Key != "" && a.key(r.Header) != s.opts.Key {
		bad = problem{http.StatusUnauthorized, "authentication_error", "the key is not known here"}
	}
	sum := sha256.Sum256(body)
	rec := Record{Op: Asked, Key: key, API: a.name(), Model: q.model, Stream: q.stream, Digest: hex.EncodeToString(sum[:])}

	s.mu.Lock()
	rec.N = s.counts.Requests + 1
	s.requests = append(s.requests, Request{rec.N, a.name(), r.Header.Clone(), body})
	if bad != nil {
		rec.Op = Refused
	} else if at, ok := s.known[key]; ok && key != "" && s.opts.Deduplicate {
		rec.Op, rec.Answer = Repeated, at
	} else if rec.Answer = s.next; s.opts.ByConversation {
		rec.Answer = q.assistants
	}
	answer := Answer{Status: 500, Code: "script_end", Message: fmt.Sprintf("the script has no answer %d", rec.Answer)}
	if rec.Answer < len(s.opts.Script) {
		answer = s.opts.Script[rec.Answer]
	}
	rec.Failed = rec.Op == Asked && answer.failed()
	err = s.record(rec)
	s.mu.Unlock()
	if err != nil {
		panic(http.ErrAbortHandler) // what is not counted is not answered
	}
	if bad != nil {
		var p problem
		if !errors.As(bad, &p) {
			p = problem{http.StatusBadRequest, "invalid_request_error", bad.Error()}
		}
		write(w, p.status, "application/json", a.fault(p.status, p.code, p.message))
		return
	}
	if answer.Hold && !s.hold(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	s.answer(w, r, a, rec.N, q, answer)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.record(Record{Op: Answered, N: rec.N, Key: key, Answer: rec.Answer}); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// problem is a request that is refused.
type problem struct {
	status        int
	code, message string
}

func (p problem) Error() string { return p.message }

// answer sends the answer of the script. To break the connection, it panics with
// http.ErrAbortHandler.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, a api, n int, q question, answer Answer) {
	if answer.RetryAfter != "" {
		w.Header().Set("Retry-After", answer.RetryAfter)
	}
	kind := "application/json"
	if q.stream && !answer.failed() {
		kind = "text/event-stream"
	}
	switch {
	case answer.Body != "":
		if answer.Location != "" {
			w.Header().Set("Location", answer.Location)
		}
		write(w, max(answer.Status, 200), kind, []byte(answer.Body))
	case answer.failed():
		write(w, answer.Status, kind, a.fault(answer.Status, answer.Code, answer.Message))
	case q.stream:
		s.stream(w, r, a, n, q, answer)
	default:
		body := a.plain(n, q, answer)
		if answer.Malformed {
			body = append(body[:len(body)/2:len(body)/2], "}}"...)
		}
		if answer.Cut != 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			write(w, 200, kind, body[:len(body)/2])
			panic(http.ErrAbortHandler)
		}
		write(w, 200, kind, body)
	}
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, a api, n int, q question, answer Answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(200)
	flush(w)
	for i, e := range a.events(n, q, answer) {
		if answer.Cut < 0 || answer.Cut > 0 && i == answer.Cut {
			if answer.Clean {
				return
			}
			panic(http.ErrAbortHandler)
		}
		if answer.HoldAfter > 0 && i == answer.HoldAfter && !s.hold(r.Context()) {
			panic(http.ErrAbortHandler)
		}
		if answer.Broken > 0 && i == answer.Broken {
			e = a.broken(answer)
		}
		if answer.Malformed && i == 1 {
			e = "data: {\"choices\":[{\n\n"
		}
		if i > 0 && answer.PauseMS > 0 {
			select {
			case <-time.After(answer.pause()):
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			}
		}
		if _, err := io.WriteString(w, e); err != nil {
			panic(http.ErrAbortHandler)
		}
		flush(w)
		if answer.Broken > 0 && i == answer.Broken {
			return
		}
	}
}

func write(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		panic(http.ErrAbortHandler)
	}
	flush(w)
}

func flush(w http.ResponseWriter) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
}
