package mcpshim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// outlet is the way to a client.
type outlet interface {
	// send gives a message to the client and returns once it was handed over whole.
	send(env *mcpraw.Envelope, parts ...io.WriterTo) error
}

func (s *sink) send(_ *mcpraw.Envelope, parts ...io.WriterTo) error { return s.write(parts...) }

// conv is one client and the tool server that it talks to.
type conv struct {
	s     *Shim
	out   outlet
	scope string

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // calls and late requests

	atWork *book // permits of calls that are with the tool server; nil = not noted

	mu        sync.Mutex
	up        *link         // nil while there is no tool server
	changed   chan struct{} // closed when up changes or a start failed
	failures  uint64        // starts that failed, and tool servers that ended
	failure   error         // of the newest of them
	pending   map[idKey]*waiting
	asked     map[idKey]*link  // the tool server's own requests under way
	questions map[idKey]*posed // the shim's own to the client
	answered  bool             // the tool server has said something sensible
	opening   opening
	resumed   sync.Once
	takeOver  sync.Once
	tasks     map[string]*openCall // under way, by the tool server's name for them

	theirTasks atomic.Int32 // whether the tool server has tasks of its own
}

// waiting is a request that the tool server has not answered yet. Ids go through as they
// are, so it is found by the client's own id.
type waiting struct {
	id     []byte
	method string
	link   *link       // that it was written to; nil = not yet
	call   *call       // a governed tools/call
	own    chan *frame // a request of the shim's own
	task   *openCall   // that the request asks about
	sub    *subscription
	batch  *batchReply

	headers []mcpraw.ParamHeader // arguments that go into headers
	modern  bool                 // it is of a revision without a handshake
}

// ownPrefix begins the ids of the shim's own requests.
const ownPrefix = "tgad-"

func (s *Shim) newConv(out outlet, scope string) *conv {
	c := &conv{
		s: s, out: out, scope: scope, changed: make(chan struct{}),
		pending: map[idKey]*waiting{}, asked: map[idKey]*link{}, questions: map[idKey]*posed{}, tasks: map[string]*openCall{},
	}
	c.life, c.end = context.WithCancel(s.life)
	return c
}

// fromClient takes one message of the client's. What takes longer than a write goes on
// elsewhere, so that the next message is not kept waiting.
func (c *conv) fromClient(f *frame, b *batchReply) {
	switch {
	case f.Bad != "":
		c.refuse(f, b)
	case f.Batch:
		c.fromBatch(f)
	case f.Method == "tools/call" && f.IsRequest():
		c.toolsCall(f, b)
	case f.Method == "tools/call":
		// Without an id nobody waits for it, and a lenient tool server would still act.
		c.s.log.Warn("a tools/call without an id was dropped")
		f.close()
	case f.Method == listenMethod && f.IsRequest():
		c.listen(f, b)
	case f.IsRequest() && c.ownTasks(f, b):
	case f.IsRequest():
		c.pass(f, b)
	case f.Method == "notifications/cancelled":
		c.cancelled(f)
	case f.IsNotification():
		c.opening.saw(f)
		c.forward(f)
		if f.Method == "notifications/initialized" {
			c.resume()
		}
	default:
		c.answerOf(f)
	}
}

// refuse answers a message that does not pass.
func (c *conv) refuse(f *frame, b *batchReply) {
	id, code := f.RawID, codeInvalidRequest
	if id == nil {
		id, code = []byte("null"), codeParse
	}
	c.fail(id, b, code, "", "", "the message does not pass: "+f.Bad)
	f.close()
}

// register enters a request. It is refused where its id is in use: two answers to one id
// could not be told apart.
func (c *conv) register(w *waiting) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) >= c.s.opts.MaxRequests {
		return errors.New("too many requests are under way")
	}
	key := keyOf(w.id)
	if c.pending[key] != nil {
		return errors.New("a request of this id is under way")
	}
	c.pending[key] = w
	return nil
}

func (c *conv) unregister(w *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key := keyOf(w.id); c.pending[key] == w {
		delete(c.pending, key)
	}
}

// pass gives a request on as it is.
func (c *conv) pass(f *frame, b *batchReply) { c.passWith(f, b, nil) }

// passWith gives a request on as it is, with arguments of it in headers where the way to
// the tool server has any.
func (c *conv) passWith(f *frame, b *batchReply, headers []mcpraw.ParamHeader) {
	w := &waiting{id: f.RawID, method: f.Method, batch: b, headers: headers}
	if strings.HasPrefix(string(keyOf(f.RawID)), "s"+ownPrefix) {
		c.fail(f.RawID, b, codeInvalidRequest, "", "", "ids that begin with "+ownPrefix+" are taken")
		f.close()
		return
	}
	if err := c.register(w); err != nil {
		c.fail(f.RawID, b, codeInvalidRequest, "", "", err.Error())
		f.close()
		return
	}
	c.opening.saw(f)
	w.task = c.taskOf(f)
	if l := c.current(); l != nil {
		c.passTo(l, f, w)
		return
	}
	c.work.Go(func() {
		l, err := c.await(c.life)
		if err != nil {
			c.unregister(w)
			c.fail(w.id, b, codeGone, "", "", err.Error())
			f.close()
			return
		}
		c.passTo(l, f, w)
	})
}

func (c *conv) passTo(l *link, f *frame, w *waiting) {
	defer f.close()
	m := c.message(f)
	if w.modern = m.stateless(); len(w.headers) > 0 {
		if params, err := f.bytes(f.Params, maxParams); err == nil {
			m.setMirrored(w.headers, params)
		}
	}
	if err := c.write(l, w, m); err != nil {
		c.unregister(w)
		c.fail(w.id, w.batch, codeGone, "", "", "the tool server did not take the request: "+err.Error())
	}
}

// passCall gives a tools/call on untraced.
func (c *conv) passCall(f *frame, p *callParams, b *batchReply) {
	if !c.mirrors(p) {
		c.pass(f, b)
		return
	}
	c.work.Go(func() { // elsewhere: the tool server may have to be asked for its definitions
		m, err := c.mirrored(c.life, p)
		if err != nil {
			c.failWith(f.RawID, b, codeInvalidParams, "", err)
			f.close()
			return
		}
		c.passWith(f, b, m.headers)
	})
}

// message makes a message that is passed on as it is.
func (c *conv) message(f *frame) *message {
	m := &message{env: &f.Envelope, parts: []io.WriterTo{f}}
	if c.s.opts.URL == "" || !f.Params.Present() {
		return m
	}
	if params, err := f.bytes(f.Params, maxParams); err == nil {
		m.version = mcpraw.ScalarText(mcpraw.At(params, "/_meta/"+mcpraw.PointerToken(metaVersion)))
		m.name = mcpraw.NameOf(f.Method, params)
		if f.Method == "notifications/cancelled" {
			m.cancels = mcpraw.At(params, "/requestId")
		}
	}
	return m
}

// write writes a request and notes where it went.
func (c *conv) write(l *link, w *waiting, m *message) error {
	c.mu.Lock()
	if c.up != l {
		c.mu.Unlock()
		return errNotSent
	}
	w.link = l // before the write: the answer may be quicker than its return
	c.mu.Unlock()
	m.agreed = c.opening.version()
	return l.up.write(m)
}

// forward gives a notification on.
func (c *conv) forward(f *frame) {
	defer f.close()
	l := c.current()
	if l == nil {
		return // what it was about is gone
	}
	m := c.message(f)
	m.agreed = c.opening.version()
	if err := l.up.write(m); err != nil {
		c.s.log.Warn("a notification did not reach the tool server", "method", f.Method, "error", err)
	}
}

// answerOf gives a client's answer on to the tool server that asked.
func (c *conv) answerOf(f *frame) {
	if c.ownQuestion(f) {
		return
	}
	key := keyOf(f.RawID)
	c.mu.Lock()
	asker, known := c.asked[key]
	delete(c.asked, key)
	now := c.up
	c.mu.Unlock()
	if !known || asker != now {
		// A tool server that was started since may have asked something else under this id.
		c.s.log.Warn("an answer to a question that nobody asks was dropped")
		f.close()
		return
	}
	c.forward(f)
}

// fromServer takes one message of the tool server's.
func (c *conv) fromServer(l *link, f *frame) {
	if f.Bad == "" {
		c.mu.Lock()
		c.answered = true
		c.mu.Unlock()
	}
	switch {
	case f.Bad != "":
		c.noise(f)
	case f.Batch:
		for _, e := range splitBatch(f) {
			c.fromServer(l, e)
		}
	case f.IsAnswer():
		c.fromServerAnswer(l, f)
	case f.IsRequest():
		if c.ask(l, f) {
			c.toClient(f)
		}
	default:
		c.notified(f)
	}
}

// noise passes a line that is no JSON on: the client has its own way with it. What looks
// like a message and is none is dropped, for the client could see an answer in it that
// was not recorded.
func (c *conv) noise(f *frame) {
	if f.RawID != nil {
		c.mu.Lock()
		w := c.pending[keyOf(f.RawID)]
		c.mu.Unlock()
		if f.givenUp && (w == nil || w.call == nil) {
			return // nobody waits for it; the id may be another request's by now
		}
		if w != nil && c.broken(w, f) {
			return
		}
		if w != nil && w.call != nil {
			w.call.arrived(f) // the attempt reads it, finds no answer in it, and is in doubt
			return
		}
		if w != nil && w.own != nil {
			w.own <- f
			return
		}
		if w != nil {
			c.unregister(w)
			c.fail(w.id, w.batch, codeGone, "", "", "the tool server's answer does not pass: "+f.Bad)
			f.close()
			return
		}
	}
	if first := bytes.TrimLeft(f.head, " \t"); len(first) > 0 && first[0] != '{' && first[0] != '[' {
		c.toClient(f)
		return
	}
	c.s.log.Warn("a message of the tool server's was dropped", "why", f.Bad, "bytes", f.size)
	f.close()
}

func (c *conv) fromServerAnswer(l *link, f *frame) {
	key := keyOf(f.RawID)
	c.mu.Lock()
	w := c.pending[key]
	if w != nil && (w.link != l || w.call != nil) {
		// A governed call's entry stays until the call is over.
		if w.link != l {
			w = nil
		}
	} else if w != nil {
		delete(c.pending, key)
	}
	c.mu.Unlock()
	if w != nil && w.own == nil {
		l.useful.Store(true)
	}
	switch {
	case w == nil:
		c.s.log.Warn("an answer to a request that is not under way was dropped", "id", mcpraw.Clip(string(f.RawID), 80))
		f.close()
	case w.own != nil:
		w.own <- f // it has room for one, and one is all that comes
	case w.call != nil:
		w.call.arrived(f)
	case w.task != nil:
		c.work.Go(func() { c.giveTask(w, f) })
	default:
		if w.sub != nil {
			w.sub.end()
		}
		c.opening.answered(w.method, f)
		if w.method == "server/discover" {
			f = c.declare(f)
		}
		if w.method != "tools/list" {
			c.give(w.batch, f)
			return
		}
		// Elsewhere: the log is asked, and the tool server's next message is not to wait.
		c.work.Go(func() {
			c.s.pins.look(f)
			if w.modern && c.s.opts.URL != "" {
				f = c.offered(f)
			}
			c.give(w.batch, f)
		})
	}
}

// ask enters a request of the tool server's.
func (c *conv) ask(l *link, f *frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) >= c.s.opts.MaxRequests {
		c.s.log.Warn("the tool server has too many requests under way; one was dropped", "method", f.Method)
		f.close()
		return false
	}
	c.asked[keyOf(f.RawID)] = l
	return true
}

func (c *conv) toClient(f *frame) { c.give(nil, f) }

// give hands a message to the client, into the batch that it answers where there is one.
func (c *conv) give(b *batchReply, f *frame) {
	defer f.close()
	_ = c.send(b, &f.Envelope, f)
}

// send hands a message to the client. A client that cannot be written to is gone.
func (c *conv) send(b *batchReply, env *mcpraw.Envelope, parts ...io.WriterTo) error {
	if b != nil && env.IsAnswer() {
		whole, err := b.add(parts...)
		if err != nil || whole == nil {
			return err
		}
		env, parts = &mcpraw.Envelope{Batch: true}, []io.WriterTo{text(whole)}
	}
	err := c.out.send(env, parts...)
	if err != nil && c.life.Err() == nil && !errors.Is(err, errNoTaker) {
		c.s.log.Warn("the client is gone", "error", err)
		c.end()
	}
	return err
}

// request makes a request of the shim's own and waits for its answer.
func (c *conv) request(ctx context.Context, l *link, method string, params []byte) (*frame, error) {
	w := &waiting{id: []byte(`"` + ownPrefix + randomHex() + `"`), method: method, own: make(chan *frame, 1)}
	raw := append([]byte(`{"jsonrpc":"2.0","id":`), w.id...)
	raw = tga.AppendString(append(raw, `,"method":`...), method)
	raw = append(append(raw, `,"params":`...), params...)
	f := newFrame(append(raw, '}'))
	c.mu.Lock()
	w.link = l
	c.pending[keyOf(w.id)] = w
	c.mu.Unlock()
	defer c.unregister(w)
	m := c.message(f)
	m.agreed = c.opening.version()
	if err := l.up.write(m); err != nil {
		return nil, err
	}
	var got *frame
	select {
	case got = <-w.own:
	case <-l.up.done():
		select {
		case got = <-w.own:
		default:
			return nil, l.up.why()
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if got.Bad != "" {
		got.close()
		return nil, errors.New(got.Bad)
	}
	return got, nil
}
