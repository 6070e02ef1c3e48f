package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/handshake"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// conv is the conversation of one client with one tool server.
type conv struct {
	s      *Shim
	out    entry.Outlet
	id     string // id of the connection
	shared bool   // several clients use it, and they cannot be told apart
	// auth are the client's credentials for the tool server, if they are forwarded. subject
	// is the identity derived from them. Both are in memory only.
	auth, subject string
	// present is the lock that shows that the client lives; nil if each request has its own.
	present *paper.Presence

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // calls and late requests

	to *attempt.Recipient // its client

	// Set if the client has several conversations.
	lasting bool                   // the conversation continues without a tool server
	rose    func()                 // called when a tool server has started; may be nil
	kin     func() []*Conversation // all conversations of the client; nil = only this one

	mu        sync.Mutex
	up        *link         // nil while there is no tool server
	changed   chan struct{} // closed when up changes or a start failed
	failures  uint64        // starts that failed, and tool servers that ended
	failure   error         // why the newest of them failed
	nudge     chan struct{} // signals that a request needs a tool server while none runs
	pending   map[frames.Key]*waiting
	asked     map[frames.Key]*link  // requests of the tool server to the client that are under way
	questions map[frames.Key]*posed // requests of the shim to the client
	late      lateOnes              // entries in pending that were given up
	owing     int                   // answers that are being given to the client
	opening   handshake.Memory

	// Parts that handle messages other than calls.
	subs    subscriptions
	tools   catalog
	own     taskAnswers
	polls   taskPolls
	doubts  doubtList
	turns   turns
	permits *attempt.Permits

	answered atomic.Bool // the tool server has sent at least one valid message
}

// waiting is a request that the tool server has not answered yet. Ids pass unchanged, so it
// is found by the client's own id.
type waiting struct {
	id     []byte
	method string
	link   *link              // where it was written; nil = not written yet
	call   *call              // a governed tools/call
	seen   *sight             // an observed tools/call
	own    chan *frames.Frame // gets the answer to a request of the shim's own
	task   *attempt.Open      // the unfinished call that the request asks about
	sub    *subscription
	batch  *batchReply

	headers []mcpraw.ParamHeader // arguments that go into headers
	modern  bool                 // the request is of a revision without a handshake
	asks    bool                 // the client can ask its person
	late    bool                 // it was given up; an answer to a call would still be recorded

	deserted atomic.Bool // the client has closed the stream of the answer
}

// ownPrefix begins the ids of the shim's requests to the client, probePrefix those of its requests
// to the tool server. They must differ: a shim refuses requests whose id begins with ownPrefix, and
// the tool server may itself be behind another shim.
const ownPrefix, probePrefix = "tgad-", "from-tgad-"

func (s *Shim) newConv(out entry.Outlet, book *paper.Book) *conv {
	c := &conv{
		s: s, out: out, id: frames.Nonce(), changed: make(chan struct{}), nudge: make(chan struct{}, 1),
		pending: map[frames.Key]*waiting{}, asked: map[frames.Key]*link{}, questions: map[frames.Key]*posed{},
	}
	c.life, c.end = context.WithCancel(s.Life)
	c.polls.looked = wait.NewLatch()
	c.to, c.permits = attempt.NewRecipient(c.life), attempt.NewPermits(s.Desk, book)
	c.subs.c, c.tools.c, c.own.c, c.polls.c, c.doubts.c, c.turns.c = c, c, c, c, c, c
	return c
}

// fromClient handles one message of the client. Work that takes longer than a write runs in a
// goroutine, so that the client's next message need not wait.
func (c *conv) fromClient(f *frames.Frame, b *batchReply) {
	switch {
	case f.Bad != "":
		c.refuse(f, b)
	case f.Batch:
		c.fromBatch(f)
	case f.Method == "tools/call" && f.IsRequest():
		c.toolsCall(f, b)
	case f.Method == "tools/call":
		// Nobody waits for an answer without an id, but a lenient tool server would still run it.
		c.s.Log.Warn("a tools/call without an id was dropped")
		f.Close()
	case f.Method == say.Listen && f.IsRequest():
		c.subs.listen(f, b)
	case f.IsRequest() && c.own.take(f, b):
	case f.IsRequest() && c.polls.early(f, b):
	case f.IsRequest():
		c.pass(f, b)
	case f.Method == "notifications/cancelled":
		c.cancelled(f)
	case f.IsNotification():
		c.opening.Saw(f)
		c.forward(f)
		if f.Method == "notifications/initialized" {
			c.polls.resume()
		}
	default:
		c.answerOf(f)
	}
}

// refuse answers a malformed message with an error.
func (c *conv) refuse(f *frames.Frame, b *batchReply) {
	id, code := f.RawID, mcpraw.CodeInvalidRequest
	if id == nil {
		id, code = []byte("null"), mcpraw.CodeParse
	}
	c.fail(id, b, code, "", "", "the message does not pass: "+f.Bad)
	f.Close()
}

// register enters a request in pending. It refuses an id that is in use: the answers to two
// requests with one id could not be told apart.
func (c *conv) register(w *waiting) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending)-c.late.calls-c.late.passed >= c.s.opts.MaxRequests {
		return errors.New("too many requests are under way")
	}
	key := frames.KeyOf(w.id)
	if c.pending[key] != nil {
		return errors.New("a request of this id is under way")
	}
	c.pending[key] = w
	return nil
}

func (c *conv) unregister(w *waiting) { c.taken(w) }

// taken removes a request from pending. It reports whether the request was there.
func (c *conv) taken(w *waiting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := frames.KeyOf(w.id)
	was := c.pending[key] == w
	if was {
		c.drop(key)
	}
	return was
}

// drop removes a request from pending. The caller holds the lock.
func (c *conv) drop(key frames.Key) {
	if w := c.pending[key]; w.late {
		*c.late.of(w)--
	}
	delete(c.pending, key)
}

// lateOnes are the numbers of requests that were given up and whose answer may still come. Passed requests do not take the room of
// calls, of which a late answer is recorded.
type lateOnes struct{ calls, passed int }

func (l *lateOnes) of(w *waiting) *int {
	if w.isCall() {
		return &l.calls
	}
	return &l.passed
}

// isCall reports whether the answer to a request is recorded.
func (w *waiting) isCall() bool { return w.call != nil || w.seen != nil }

// keepLate keeps the entry of a request that was given up, for as long as the tool server lives
// that has it: a late answer to a call is still recorded. These entries do not count against
// MaxRequests, but there are at most MaxRequests of calls, and as many of other requests. Beyond that a late
// answer is dropped.
func (c *conv) keepLate(w *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch key := frames.KeyOf(w.id); {
	case c.pending[key] != w || w.late:
	case w.link != c.up || *c.late.of(w) >= c.s.opts.MaxRequests:
		c.drop(key)
		w.loseTo(givenUp)
	default:
		w.late = true
		*c.late.of(w)++
	}
}

// pass passes a request to the tool server unchanged.
func (c *conv) pass(f *frames.Frame, b *batchReply) { c.passWith(f, b, nil) }

// passWith passes a request unchanged. Over HTTP it also repeats the given arguments in headers.
func (c *conv) passWith(f *frames.Frame, b *batchReply, headers []mcpraw.ParamHeader) {
	w := &waiting{id: f.RawID, method: f.Method, batch: b, headers: headers}
	if w.method == "tools/list" {
		w.asks = c.opening.Elicits() || toolcall.AsksInRequest(f)
	}
	if strings.HasPrefix(string(frames.KeyOf(f.RawID)), "s"+ownPrefix) {
		c.fail(f.RawID, b, mcpraw.CodeInvalidRequest, "", "", "ids that begin with "+ownPrefix+" are taken")
		f.Close()
		return
	}
	var err error
	if w.task, err = c.polls.taskOf(f); err == nil {
		err = c.register(w)
	}
	if err != nil {
		c.fail(f.RawID, b, mcpraw.CodeInvalidRequest, tga.CodeOf(err), "", err.Error())
		f.Close()
		return
	}
	c.opening.Saw(f)
	if l := c.current(); l != nil {
		c.turns.take(func() { c.passTo(l, f, w) })
		return
	}
	c.work.Go(func() {
		l, err := c.await(c.life)
		if err != nil {
			f.Close()
			if c.taken(w) {
				w.lose(c, err, err.Error())
			}
			return
		}
		c.passTo(l, f, w)
	})
}

func (c *conv) passTo(l *link, f *frames.Frame, w *waiting) {
	defer f.Close()
	m := c.message(f)
	if w.modern = m.Stateless(); len(w.headers) > 0 {
		if params, err := f.Bytes(f.Params, toolcall.MaxParams); err == nil {
			m.Mirrored = toolset.MirroredOf(w.headers, params)
		}
	}
	// The end of the tool server, or of the request, may have answered it already.
	if err := c.write(l, w, m); err != nil && c.taken(w) {
		err = fmt.Errorf("the tool server did not take the request: %w", err)
		w.lose(c, err, err.Error())
	}
}

// passCall passes a tools/call that is not governed.
func (c *conv) passCall(f *frames.Frame, p *toolcall.Params, b *batchReply) {
	if !c.tools.mirrors(p) {
		c.pass(f, b)
		return
	}
	c.work.Go(func() { // in a goroutine: the tool definitions may have to be read first
		m, err := c.tools.mirrored(c.life, p)
		if err != nil {
			c.failWith(f.RawID, b, err)
			f.Close()
			return
		}
		c.passWith(f, b, m.Headers)
	})
}

// message makes the message of a frame that is passed unchanged.
func (c *conv) message(f *frames.Frame) *frames.Message {
	m := &frames.Message{Env: &f.Envelope, Parts: []io.WriterTo{f}}
	if c.s.opts.URL == "" || !f.Params.Present() {
		return m
	}
	if params, err := f.Bytes(f.Params, toolcall.MaxParams); err == nil {
		m.Version = mcpraw.RevisionOf(params)
		m.Name = mcpraw.NameOf(f.Method, params)
		if f.Method == "notifications/cancelled" {
			m.Cancels = mcpraw.At(params, "/requestId")
		}
	}
	return m
}

// write writes a request and notes which tool server has it.
func (c *conv) write(l *link, w *waiting, m *frames.Message) error {
	c.mu.Lock()
	if c.up != l {
		c.mu.Unlock()
		return runtime.ErrNotSent
	}
	w.link = l // before the write: the answer may be quicker than its return
	c.mu.Unlock()
	m.Agreed = c.opening.Version()
	return l.up.Write(m)
}

// forward passes a notification, or an answer, to the tool server, after the messages before it.
func (c *conv) forward(f *frames.Frame) { c.turns.tell(f, func() { c.forwardNow(f) }) }

func (c *conv) forwardNow(f *frames.Frame) {
	defer f.Close()
	l := c.current()
	if l == nil {
		return // the tool server that the notification is for is gone
	}
	m := c.message(f)
	m.Agreed = c.opening.Version()
	if err := l.up.Write(m); err != nil {
		c.s.Log.Warn("a notification did not reach the tool server", "method", f.Method, "error", err)
	}
}

// answerOf passes a client's answer to the tool server that asked.
func (c *conv) answerOf(f *frames.Frame) {
	if c.ownQuestion(f) {
		return
	}
	key := frames.KeyOf(f.RawID)
	c.mu.Lock()
	asker, known := c.asked[key]
	delete(c.asked, key)
	now := c.up
	c.mu.Unlock()
	if !known || asker != now {
		// A tool server that was started since may have asked another question with this id.
		c.s.Log.Warn("dropped an answer to an unknown request of a tool server")
		f.Close()
		return
	}
	c.forward(f)
}
