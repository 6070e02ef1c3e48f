package frames

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime/dispatch/httpcall"
)

// Endpoint describes a tool server over HTTP, and what it gets of its client.
type Endpoint struct {
	URL      string
	Headers  map[string]string
	Forwards string // the client's header that is sent to the tool server as Authorization; "" is none
	Auth     string // the value of that header of this conversation's client
	Most     int64  // longest message, in bytes
	Spill    string // directory of the files of long messages
	Log      *slog.Logger
}

// remote is a tool server over streamable HTTP: one POST for each message, and one GET for
// messages that belong to no request. It writes nothing twice: it follows no redirect and reuses
// no connection. The rest of a broken stream is asked for with a GET.
type remote struct {
	Endpoint
	frames  *Frames // limits of what arrives
	deliver func(*Frame)
	rt      mcpraw.Transport

	life context.Context
	end  context.CancelFunc
	gone chan struct{}
	dead sync.Once
	left leaving
	open sync.WaitGroup

	mu        sync.Mutex
	cause     error
	under     int // POSTs of requests that are under way
	session   string
	agreed    mcpraw.Revision // of the handshake; "" before it and without one
	listening bool
	posts     map[Key]*posted // POSTs under way of a revision without a handshake
	order     sync.Mutex      // held while a message is delivered, so that they are delivered one by one
}

// Dial makes an Upstream of an endpoint. It does not connect yet.
func Dial(life context.Context, e Endpoint, deliver func(*Frame)) Upstream {
	r := &remote{
		Endpoint: e, deliver: deliver, rt: mcpraw.NewTransport(),
		frames: &Frames{most: e.Most, Dir: e.Spill}, gone: make(chan struct{}), left: leaving{begun: make(chan struct{})}, posts: map[Key]*posted{},
	}
	r.life, r.end = context.WithCancel(life)
	return r
}

func (r *remote) Why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause
}

// body returns a message's bytes and their number.
func body(parts []io.WriterTo) (io.Reader, int64) {
	var all []io.Reader
	var n int64
	for _, p := range parts {
		switch p := p.(type) {
		case Text:
			all, n = append(all, bytes.NewReader(p)), n+int64(len(p))
		case *Frame:
			all, n = append(all, p.Reader(mcpraw.Span{From: 0, To: p.Size})), n+p.Size
		}
	}
	return io.MultiReader(all...), n
}

// Write posts a message and returns once its bytes were handed to the system. The answer is
// delivered later, or a frame that says why none can come.
func (r *remote) Write(m *Message) error {
	select {
	case <-r.left.begun:
		return onwire.NotSent(r.Why())
	default:
	}
	if m.Cancels != nil && r.giveUp(m.Cancels) {
		return nil
	}
	wrote := make(chan error, 1)
	var once sync.Once
	failed := false // Write itself returns the error, so no frame need tell it
	told := func(err error) {
		once.Do(func() {
			failed = err != nil
			wrote <- err
		})
	}
	way := onwire.Request{Late: m.Late}
	life, ended := r.enter(m)
	ctx := way.Follow(httptrace.WithClientTrace(life, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { told(way.Fault(i.Err)) },
	}))
	req, err := r.post(ctx, m)
	if err != nil {
		ended()
		return onwire.NotSent(err)
	}
	id, method := bytes.Clone(m.Env.RawID), m.Env.Method
	took := make(chan struct{})
	r.open.Go(func() {
		defer ended()
		resp, err := r.rt.RoundTrip(req)
		close(took)
		err = way.Fault(err)
		told(err)
		if err != nil {
			if !failed {
				r.cut(ctx, id, method, "the request was cut off: "+err.Error())
			}
			return
		}
		defer resp.Body.Close()
		r.answer(ctx, id, method, resp)
	})
	err = <-wrote
	if err == nil && method == "notifications/initialized" {
		// The next message comes on a connection of its own, and may overtake this one. Before this one the tool server
		// may refuse it.
		select {
		case <-took:
		case <-r.gone:
		case <-time.After(greetWait):
		}
	}
	return err
}

// greetWait is how long the messages after a handshake wait until the tool server has taken its end.
const greetWait = 5 * time.Second

// enter makes the context of a message's POST. For a request of a revision without a handshake
// the context can be ended alone, because there the end of the POST cancels the request.
func (r *remote) enter(m *Message) (life context.Context, ended func()) {
	if !m.Env.IsRequest() {
		return r.life, func() {}
	}
	r.mu.Lock()
	r.under++
	r.mu.Unlock()
	if !m.Stateless() {
		return r.life, r.over
	}
	life, end := context.WithCancelCause(r.life)
	key, p := KeyOf(m.Env.RawID), &posted{end}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts[key] = p
	return life, func() {
		r.mu.Lock()
		if r.posts[key] == p { // after a cancellation another request may have the id
			delete(r.posts, key)
		}
		r.mu.Unlock()
		end(nil)
		r.over()
	}
}

// posted is a POST under way that can be ended alone.
type posted struct{ end context.CancelCauseFunc }

// giveUp ends the POST of a request of a revision without a handshake. It reports whether there
// was one.
func (r *remote) giveUp(id []byte) bool {
	r.mu.Lock()
	p := r.posts[KeyOf(id)]
	r.mu.Unlock()
	if p != nil {
		p.end(errGivenUp)
	}
	return p != nil
}

var errGivenUp = errors.New("it was cancelled")

// post makes the HTTP request of a message. The request has no GetBody, so net/http cannot send
// the body again on its own.
func (r *remote) post(ctx context.Context, m *Message) (*http.Request, error) {
	content, size := body(m.Parts)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, io.NopCloser(content))
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	r.head(req, m.Agreed)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if m.Stateless() {
		mcpraw.Mirror(req.Header, m.Version, m.Env.Method, m.Name, m.Mirrored)
	}
	return req, nil
}

func (r *remote) head(req *http.Request, agreed mcpraw.Revision) {
	for k, v := range r.Headers {
		req.Header.Set(k, v)
	}
	if r.Auth != "" {
		req.Header.Set(authorization, r.Auth)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != "" {
		req.Header.Set("Mcp-Session-Id", r.session)
	}
	if agreed != "" {
		req.Header.Set("Mcp-Protocol-Version", string(agreed))
		r.agreed = agreed // GET and DELETE name it too
	}
}

// handshake is the revision that the handshake has agreed on.
func (r *remote) handshake() mcpraw.Revision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agreed
}

// cut delivers a frame which says that an exchange ended before its answer: by itself, or because
// this side cancelled it.
func (r *remote) cut(ctx context.Context, id []byte, method, why string) {
	if !errors.Is(context.Cause(ctx), errGivenUp) {
		r.lost(id, method, why, 0)
		return
	}
	if id != nil && method != "" {
		r.hand(&Frame{Envelope: mcpraw.Envelope{Bad: errGivenUp.Error(), RawID: id}, GivenUp: true})
	}
}

// lost delivers a frame which says that no answer comes to a request. after is the tool server's
// Retry-After.
func (r *remote) lost(id []byte, method, why string, after time.Duration) {
	if id != nil && method != "" {
		r.hand(&Frame{Envelope: mcpraw.Envelope{Bad: why, RawID: id}, After: after})
	}
}

// refused delivers a frame which says that a request certainly did not run.
func (r *remote) refused(id []byte, method, why string, after time.Duration) {
	if id != nil && method != "" {
		r.hand(&Frame{Envelope: mcpraw.Envelope{Bad: why, RawID: id}, Unsent: why, After: after})
	}
}

func (r *remote) hand(f *Frame) {
	r.order.Lock()
	defer r.order.Unlock()
	r.deliver(f)
}

// answer reads the response to a message.
func (r *remote) answer(ctx context.Context, id []byte, method string, resp *http.Response) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = "" // no usable type: the status decides
	}
	r.opened(method, resp) // before the answer is delivered: what is written because of it must name the session
	// Some servers answer a POST with 201.
	took := resp.StatusCode == http.StatusOK || id != nil && method != "" && resp.StatusCode/100 == 2
	switch {
	case took && kind == "application/json":
		r.single(id, method, resp.Body)
	case took && kind == "text/event-stream":
		if err := r.follow(ctx, id, method, resp.Body); err != nil {
			r.cut(ctx, id, method, "its stream ended before the answer: "+err.Error())
		}
	case resp.StatusCode/100 == 2:
		r.lost(id, method, fmt.Sprintf("HTTP status %s of type %q is no answer", resp.Status, kind), httpcall.RetryAfter(resp.Header, time.Now()))
	case mcpraw.Refused(resp.StatusCode):
		r.refusal(id, method, resp)
	default:
		r.lost(id, method, "HTTP status "+resp.Status, httpcall.RetryAfter(resp.Header, time.Now()))
	}
}

// opened takes the session id from the answer to initialize. After notifications/initialized it
// begins to listen for messages that belong to no request.
func (r *remote) opened(method string, resp *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if method == "initialize" && resp.StatusCode/100 == 2 {
		r.session = resp.Header.Get("Mcp-Session-Id")
	}
	if method == "notifications/initialized" && !r.listening {
		r.listening = true
		r.open.Go(r.listen)
	}
}

func (r *remote) single(id []byte, method string, in io.Reader) {
	b := r.frames.begin()
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if addErr := b.add(buf[:n]); addErr != nil {
			r.lost(id, method, addErr.Error(), 0)
			return
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			b.drop()
			r.lost(id, method, "its answer was cut off: "+err.Error(), 0)
			return
		}
	}
	f := b.end()
	if id != nil && f.Bad == "" && f.Batch {
		r.array(id, method, f)
		return
	}
	if id != nil && (f.Bad != "" || f.Method != "" || !Answers(f.RawID, id)) {
		f.Close()
		r.lost(id, method, "its response is not an answer to the request: "+cmp.Or(f.Bad, "it is of another id"), 0)
		return
	}
	if f.Size > 0 {
		r.hand(f)
	}
}

// array delivers the messages of a response that is an array. The exchange is over, so the request is lost if its answer is not
// among them.
func (r *remote) array(id []byte, method string, f *Frame) {
	if !r.spread(id, f) {
		r.lost(id, method, "its response is an array without the answer, or too long", 0)
	}
}

// spread delivers the messages of an array. It reports whether the answer to the request with that id is among them.
func (r *remote) spread(id []byte, f *Frame) (answered bool) {
	for _, e := range Split(f) {
		answered = answered || e.IsAnswer() && Answers(e.RawID, id)
		r.hand(e)
	}
	return answered
}

// refusal reads why the endpoint did not accept a message.
func (r *remote) refusal(id []byte, method string, resp *http.Response) {
	if ch := r.challengeOf(resp); ch != nil {
		r.challenged(id, method, ch)
		return
	}
	after := httpcall.RetryAfter(resp.Header, time.Now())
	said, err := mcpraw.ReadRefusal(resp.Body)
	r.mu.Lock()
	ended := r.session != "" && mcpraw.EndsSession(resp.StatusCode, said)
	r.mu.Unlock()
	if ended {
		defer r.expire(errors.New("the tool server ended the session"))
	}
	if err != nil {
		r.lost(id, method, fmt.Sprintf("HTTP status %s: %v", resp.Status, err), after)
		return
	}
	// An answer in the body decides, even if the session has ended: it shows that the message was accepted.
	switch f := OneLine(said); {
	case id == nil || !Answers(f.RawID, id):
	case f.Bad != "":
		r.lost(id, method, fmt.Sprintf("HTTP status %s, and its body does not pass: %s", resp.Status, f.Bad), after)
		return
	case f.IsAnswer():
		f.After = after
		r.hand(f)
		return
	}
	why := fmt.Sprintf("HTTP status %s: %.200s", resp.Status, bytes.TrimSpace(said))
	if r.Auth != "" { // the body may repeat the credentials, and why is logged
		why = fmt.Sprintf("HTTP status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	r.refused(id, method, why, after)
}

// events delivers the messages of a stream. With an id it returns nil once the answer to that id
// came, or a message of that id that does not pass: both end the exchange. Otherwise it returns an error when the stream ends.
func (r *remote) events(body io.Reader, id []byte, at *place) error {
	in := mcpraw.EventReader(body)
	b := r.frames.begin()
	for {
		empty, err := mcpraw.ReadEventLine(in, func() error {
			if b.blank {
				return nil
			}
			return b.add([]byte("\n"))
		}, b.add, at.field)
		if empty && !b.blank {
			switch f := b.end(); {
			case at.isAside(f):
				f.Close()
			case id != nil && f.Bad == "" && f.Batch:
				if r.spread(id, f) {
					return nil
				}
			default:
				mine := id != nil && (f.Bad != "" || f.IsAnswer()) && Answers(f.RawID, id)
				r.hand(f)
				if mine {
					return nil
				}
			}
		}
		if empty {
			b = r.frames.begin()
			at.passed()
		}
		if err != nil {
			b.drop()
			return err
		}
	}
}

// Close ends everything that is under way, and then, best effort, the session at the tool server.
func (r *remote) Close() {
	r.mu.Lock()
	session := r.session
	r.session = ""
	r.mu.Unlock()
	r.die(errors.New("the session was closed"))
	r.end()
	r.open.Wait()
	defer r.rt.CloseIdleConnections()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, r.URL, nil)
	if err != nil {
		return // the URL was good for every POST
	}
	r.head(req, r.handshake())
	req.Header.Set("Mcp-Session-Id", session)
	if resp, err := r.rt.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
}
