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
)

// conv is one client and the tool server that it talks to.
type conv struct {
	s      *Shim
	out    entry.Outlet
	id     string // of the connection
	shared bool   // by several clients: one of them is not told from another
	// auth are the client's credentials for the tool server, where they are forwarded, and
	// subject what is noted of them. They are in memory only.
	auth, subject string
	// present says that the client is there; nil where each request says it for itself.
	present *paper.Presence

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // calls and late requests

	to *attempt.Recipient // its client

	// Of a conversation that is one of several that a client has.
	lasting bool                   // it goes on without a tool server
	rose    func()                 // called when a tool server is there; nil is nothing
	kin     func() []*Conversation // all of the client's; nil is this one alone

	mu        sync.Mutex
	up        *link         // nil while there is no tool server
	changed   chan struct{} // closed when up changes or a start failed
	failures  uint64        // starts that failed, and tool servers that ended
	failure   error         // of the newest of them
	nudge     chan struct{} // somebody wants something of a tool server that is not there
	pending   map[frames.Key]*waiting
	asked     map[frames.Key]*link  // the tool server's own requests under way
	questions map[frames.Key]*posed // the shim's own to the client
	late      int                   // of pending, those that nobody waits for
	owing     int                   // answers that are being given to the client
	opening   handshake.Memory

	// What a conversation does beside calls.
	subs    subscriptions
	tools   catalog
	own     taskAnswers
	polls   taskPolls
	doubts  doubtList
	permits *attempt.Permits

	answered atomic.Bool // the tool server has said something sensible
}

// waiting is a request that the tool server has not answered yet. Ids go through as they
// are, so it is found by the client's own id.
type waiting struct {
	id     []byte
	method string
	link   *link              // that it was written to; nil = not yet
	call   *call              // a governed tools/call
	seen   *sight             // a tools/call that is observed
	own    chan *frames.Frame // a request of the shim's own
	task   *attempt.Open      // that the request asks about
	sub    *subscription
	batch  *batchReply

	headers []mcpraw.ParamHeader // arguments that go into headers
	modern  bool                 // it is of a revision without a handshake
	asks    bool                 // its client can ask its person
	late    bool                 // it was given up, and its answer would still be recorded

	deserted atomic.Bool // its client has closed the stream of its answer
}

// ownPrefix begins the ids of the shim's own questions to the client, probePrefix those of its own
// requests to the tool server. They differ: a shim takes no request that begins with the first, and
// the tool server may be behind a shim itself.
const ownPrefix, probePrefix = "tgad-", "from-tgad-"

func (s *Shim) newConv(out entry.Outlet, book *paper.Book) *conv {
	c := &conv{
		s: s, out: out, id: frames.Nonce(), changed: make(chan struct{}), nudge: make(chan struct{}, 1),
		pending: map[frames.Key]*waiting{}, asked: map[frames.Key]*link{}, questions: map[frames.Key]*posed{},
	}
	c.life, c.end = context.WithCancel(s.Life)
	c.polls.looked = wait.NewLatch()
	c.to, c.permits = attempt.NewRecipient(c.life), attempt.NewPermits(s.Desk, book)
	c.subs.c, c.tools.c, c.own.c, c.polls.c, c.doubts.c = c, c, c, c, c
	return c
}

// fromClient takes one message of the client's. What takes longer than a write goes on
// elsewhere, so that the next message is not kept waiting.
func (c *conv) fromClient(f *frames.Frame, b *batchReply) {
	switch {
	case f.Bad != "":
		c.refuse(f, b)
	case f.Batch:
		c.fromBatch(f)
	case f.Method == "tools/call" && f.IsRequest():
		c.toolsCall(f, b)
	case f.Method == "tools/call":
		// Without an id nobody waits for it, and a lenient tool server would still act.
		c.s.Log.Warn("a tools/call without an id was dropped")
		f.Close()
	case f.Method == say.Listen && f.IsRequest():
		c.subs.listen(f, b)
	case f.IsRequest() && c.own.take(f, b):
	case f.IsRequest() && c.polls.early(f, b):
	case f.IsRequest():
		c.pass(f, b)
	case c.shared && (f.Method == "notifications/cancelled" || !f.IsNotification()):
		// It names a request by an id that is not the client's alone. A request is given
		// up by closing its POST, and nobody here was asked anything.
		c.s.Log.Debug("a message about a request was dropped: it says not whose", "method", f.Method)
		f.Close()
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

// refuse answers a message that does not pass.
func (c *conv) refuse(f *frames.Frame, b *batchReply) {
	id, code := f.RawID, mcpraw.CodeInvalidRequest
	if id == nil {
		id, code = []byte("null"), mcpraw.CodeParse
	}
	c.fail(id, b, code, "", "", "the message does not pass: "+f.Bad)
	f.Close()
}

// register enters a request. It is refused where its id is in use: two answers to one id
// could not be told apart.
func (c *conv) register(w *waiting) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending)-c.late >= c.s.opts.MaxRequests {
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

// taken takes a request off those under way. It reports whether it was one.
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

// drop takes a request off those under way. The lock is held.
func (c *conv) drop(key frames.Key) {
	if c.pending[key].late {
		c.late--
	}
	delete(c.pending, key)
}

// keepLate keeps a governed call that was given up for the answer that may still come, as
// long as the tool server lives that has it. Such calls are no requests of the client's any
// more; beyond as many as may be under way, an answer to one is not looked at.
func (c *conv) keepLate(w *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch key := frames.KeyOf(w.id); {
	case c.pending[key] != w || w.late:
	case w.link != c.up || c.late >= c.s.opts.MaxRequests:
		c.drop(key)
	default:
		w.late = true
		c.late++
	}
}

// pass gives a request on as it is.
func (c *conv) pass(f *frames.Frame, b *batchReply) { c.passWith(f, b, nil) }

// passWith gives a request on as it is, with arguments of it in headers where the way to
// the tool server has any.
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
	if err := c.register(w); err != nil {
		c.fail(f.RawID, b, mcpraw.CodeInvalidRequest, "", "", err.Error())
		f.Close()
		return
	}
	c.opening.Saw(f)
	w.task = c.polls.taskOf(f)
	if l := c.current(); l != nil {
		c.passTo(l, f, w)
		return
	}
	c.work.Go(func() {
		l, err := c.await(c.life)
		if err != nil {
			c.unregister(w)
			w.lose(c, err, err.Error())
			f.Close()
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
	if err := c.write(l, w, m); err != nil {
		c.unregister(w)
		err = fmt.Errorf("the tool server did not take the request: %w", err)
		w.lose(c, err, err.Error())
	}
}

// passCall gives a tools/call on untraced.
func (c *conv) passCall(f *frames.Frame, p *toolcall.Params, b *batchReply) {
	if !c.tools.mirrors(p) {
		c.pass(f, b)
		return
	}
	c.work.Go(func() { // elsewhere: the tool server may have to be asked for its definitions
		m, err := c.tools.mirrored(c.life, p)
		if err != nil {
			c.failWith(f.RawID, b, err)
			f.Close()
			return
		}
		c.passWith(f, b, m.Headers)
	})
}

// message makes a message that is passed on as it is.
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

// write writes a request and notes where it went.
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

// forward gives a notification on.
func (c *conv) forward(f *frames.Frame) {
	defer f.Close()
	l := c.current()
	if l == nil {
		return // what it was about is gone
	}
	m := c.message(f)
	m.Agreed = c.opening.Version()
	if err := l.up.Write(m); err != nil {
		c.s.Log.Warn("a notification did not reach the tool server", "method", f.Method, "error", err)
	}
}

// answerOf gives a client's answer on to the tool server that asked.
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
		// A tool server that was started since may have asked something else under this id.
		c.s.Log.Warn("an answer to a question that nobody asks was dropped")
		f.Close()
		return
	}
	c.forward(f)
}
