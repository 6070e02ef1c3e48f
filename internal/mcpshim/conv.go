package mcpshim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// outlet is the way to a client.
type outlet interface {
	// send gives a message to the client and returns once it was handed over whole.
	send(env *envelope, parts ...io.WriterTo) error
}

func (s *sink) send(_ *envelope, parts ...io.WriterTo) error { return s.write(parts...) }

// conv is one client and the tool server that it talks to.
type conv struct {
	s     *Shim
	out   outlet
	scope string

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // calls and late requests

	atWork *book // permits of calls that are with the tool server; nil = not noted

	mu       sync.Mutex
	up       *link         // nil while there is no tool server
	changed  chan struct{} // closed when up changes or a start failed
	failures uint64        // starts that failed, and tool servers that ended
	failure  error         // of the newest of them
	pending  map[idKey]*waiting
	asked    map[idKey]*link // the tool server's own requests under way
	answered bool            // the tool server has said something sensible
	opening  opening
	resumed  sync.Once
	takeOver sync.Once
	tasks    map[string]*openCall // under way, by the tool server's name for them
}

// link is one life of the tool server.
type link struct {
	up     upstream
	useful atomic.Bool // it has answered a request of the client's
	listed atomic.Bool // its tools' definitions were looked at, all of them
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
	batch  *batchReply
}

// ownPrefix begins the ids of the shim's own requests.
const ownPrefix = "tgad-"

func (s *Shim) newConv(out outlet, scope string) *conv {
	c := &conv{
		s: s, out: out, scope: scope, changed: make(chan struct{}),
		pending: map[idKey]*waiting{}, asked: map[idKey]*link{}, tasks: map[string]*openCall{},
	}
	c.life, c.end = context.WithCancel(s.life)
	return c
}

// fromClient takes one message of the client's. What takes longer than a write goes on
// elsewhere, so that the next message is not kept waiting.
func (c *conv) fromClient(f *frame, b *batchReply) {
	switch {
	case f.bad != "":
		c.refuse(f, b)
	case f.batch:
		c.fromBatch(f)
	case f.method == "tools/call" && f.isRequest():
		c.toolsCall(f, b)
	case f.method == "tools/call":
		// Without an id nobody waits for it, and a lenient tool server would still act.
		c.s.log.Warn("a tools/call without an id was dropped")
		f.close()
	case f.isRequest():
		c.pass(f, b)
	case f.method == "notifications/cancelled":
		c.cancelled(f)
	case f.isNotification():
		c.opening.saw(f)
		c.forward(f)
		if f.method == "notifications/initialized" {
			c.resume()
		}
	default:
		c.answerOf(f)
	}
}

// refuse answers a message that does not pass.
func (c *conv) refuse(f *frame, b *batchReply) {
	id, code := f.rawID, codeInvalidRequest
	if id == nil {
		id, code = []byte("null"), codeParse
	}
	c.fail(id, b, code, "", "", "the message does not pass: "+f.bad)
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
func (c *conv) pass(f *frame, b *batchReply) {
	w := &waiting{id: f.rawID, method: f.method, batch: b}
	if strings.HasPrefix(string(keyOf(f.rawID)), "s"+ownPrefix) {
		c.fail(f.rawID, b, codeInvalidRequest, "", "", "ids that begin with "+ownPrefix+" are taken")
		f.close()
		return
	}
	if err := c.register(w); err != nil {
		c.fail(f.rawID, b, codeInvalidRequest, "", "", err.Error())
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
	if err := c.write(l, w, c.message(f)); err != nil {
		c.unregister(w)
		c.fail(w.id, w.batch, codeGone, "", "", "the tool server did not take the request: "+err.Error())
	}
}

// named says, per method, which member of the params a request is about. Transports of
// revision 2026-07-28 repeat it in a header.
var named = map[string]string{"tools/call": "/name", "prompts/get": "/name", "resources/read": "/uri"}

// message makes a message that is passed on as it is.
func (c *conv) message(f *frame) *message {
	m := &message{env: &f.envelope, parts: []io.WriterTo{f}}
	if c.s.opts.URL == "" || !f.params.present() {
		return m
	}
	if params, err := f.bytes(f.params, spillBytes); err == nil {
		m.version = scalarText(at(params, "/_meta/"+pointerToken(metaVersion)))
		if p := named[f.method]; p != "" {
			m.tool = scalarText(at(params, p))
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
		c.s.log.Warn("a notification did not reach the tool server", "method", f.method, "error", err)
	}
}

// answerOf gives a client's answer on to the tool server that asked.
func (c *conv) answerOf(f *frame) {
	key := keyOf(f.rawID)
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
	if f.bad == "" {
		c.mu.Lock()
		c.answered = true
		c.mu.Unlock()
	}
	switch {
	case f.bad != "":
		c.noise(f)
	case f.batch:
		for _, e := range splitBatch(f) {
			c.fromServer(l, e)
		}
	case f.isAnswer():
		c.fromServerAnswer(l, f)
	case f.isRequest():
		if c.ask(l, f) {
			c.toClient(f)
		}
	default:
		c.toClient(f)
	}
}

// noise passes a line that is no JSON on: the client has its own way with it. What looks
// like a message and is none is dropped, for the client could see an answer in it that
// was not recorded.
func (c *conv) noise(f *frame) {
	if f.rawID != nil {
		c.mu.Lock()
		w := c.pending[keyOf(f.rawID)]
		c.mu.Unlock()
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
			c.fail(w.id, w.batch, codeGone, "", "", "the tool server's answer does not pass: "+f.bad)
			f.close()
			return
		}
	}
	if first := bytes.TrimLeft(f.head, " \t"); len(first) > 0 && first[0] != '{' && first[0] != '[' {
		c.toClient(f)
		return
	}
	c.s.log.Warn("a message of the tool server's was dropped", "why", f.bad, "bytes", f.size)
	f.close()
}

func (c *conv) fromServerAnswer(l *link, f *frame) {
	key := keyOf(f.rawID)
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
		c.s.log.Warn("an answer to a request that is not under way was dropped", "id", clip(string(f.rawID), 80))
		f.close()
	case w.own != nil:
		w.own <- f // it has room for one, and one is all that comes
	case w.call != nil:
		w.call.arrived(f)
	case w.task != nil:
		c.work.Go(func() { c.giveTask(w, f) })
	default:
		c.opening.answered(w.method, f)
		if w.method == "tools/list" {
			c.s.pins.look(f)
		}
		c.give(w.batch, f)
	}
}

// ask enters a request of the tool server's.
func (c *conv) ask(l *link, f *frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) >= c.s.opts.MaxRequests {
		c.s.log.Warn("the tool server has too many requests under way; one was dropped", "method", f.method)
		f.close()
		return false
	}
	c.asked[keyOf(f.rawID)] = l
	return true
}

func (c *conv) toClient(f *frame) { c.give(nil, f) }

// give hands a message to the client, into the batch that it answers where there is one.
func (c *conv) give(b *batchReply, f *frame) {
	defer f.close()
	_ = c.send(b, &f.envelope, f)
}

// send hands a message to the client. A client that cannot be written to is gone.
func (c *conv) send(b *batchReply, env *envelope, parts ...io.WriterTo) error {
	if b != nil && env.isAnswer() {
		whole, err := b.add(parts...)
		if err != nil || whole == nil {
			return err
		}
		env, parts = &envelope{batch: true}, []io.WriterTo{text(whole)}
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
	raw = appendString(append(raw, `,"method":`...), method)
	raw = append(append(raw, `,"params":`...), params...)
	f := newFrame(append(raw, '}'))
	c.mu.Lock()
	w.link = l
	c.pending[keyOf(w.id)] = w
	c.mu.Unlock()
	defer c.unregister(w)
	if err := l.up.write(&message{env: &f.envelope, parts: []io.WriterTo{f}, agreed: c.opening.version()}); err != nil {
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
	if got.bad != "" {
		got.close()
		return nil, errors.New(got.bad)
	}
	return got, nil
}

// current returns the tool server as it is now, nil where there is none.
func (c *conv) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// await returns a tool server, waiting for a start that is under way. It does not wait
// for a second one: who waits is told why there is none.
func (c *conv) await(ctx context.Context) (*link, error) {
	timeout := time.NewTimer(c.s.opts.StartTimeout)
	defer timeout.Stop()
	c.mu.Lock()
	seen := c.failures
	for {
		up, changed, failed, why := c.up, c.changed, c.failures != seen, c.failure
		c.mu.Unlock()
		switch {
		case up != nil:
			return up, nil
		case failed:
			return nil, errors.New("the tool server cannot be started: " + why.Error())
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, errors.New("the tool server is still being started")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
	}
}

// set makes l the tool server, or with nil says why there is none.
func (c *conv) set(l *link, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = l
	if l == nil && why != nil {
		c.failure = why
		c.failures++
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// dropped answers what a tool server that ended owes. Governed calls see its end
// themselves: what became of them is not for this function to say.
func (c *conv) dropped(l *link, why error) {
	c.mu.Lock()
	var owed []*waiting
	for key, w := range c.pending {
		if w.link == l && w.call == nil && w.own == nil {
			delete(c.pending, key)
			owed = append(owed, w)
		}
	}
	for key, asker := range c.asked {
		if asker == l {
			delete(c.asked, key)
		}
	}
	c.mu.Unlock()
	for _, w := range owed {
		c.fail(w.id, w.batch, codeGone, "", "", "the tool server is gone before it answered: "+why.Error())
	}
}
