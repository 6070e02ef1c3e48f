//go:build unix

package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// A gateway has several tool servers behind one endpoint. Each has a shim and a conversation of
// its own, exactly as behind `tgad mcp`: what is sent, recorded, in doubt or delivered is decided
// there and nowhere else. The fan stands before the conversations. It finds the one that a message
// is for, changes the name in it, and puts lists together. An answer to a call passes it as it is,
// and in the goroutine that delivers it: what the conversation takes for delivered is delivered.

// Behind is one of the tool servers of a gateway.
type Behind struct {
	Shim      *mcpfront.Shim
	Names     names.Names
	Resources names.Resources // nil is none
}

// Gate is an endpoint with several tool servers behind it, for clients that share a namespace. What is behind it and
// what its clients may do can be changed while they are there: see [Gate.Prepare].
type Gate struct {
	log    *slog.Logger
	watch  Watch
	tasks  names.Tasks
	handed handed
	// wait is how long a client waits for tool servers that are being started. What comes later is
	// told as a change of the list.
	wait time.Duration
	reap func() // of its shims, where it serves HTTP; nil where it does not

	now  atomic.Pointer[rules]
	next atomic.Pointer[rules] // being brought about: what it refuses is refused already; nil is nothing

	turn sync.Mutex // conversations begin, and changes are made, one after the other
	fans map[*fan]bool
}

// SealOfTasks is what a secret seals the names of tasks for.
const SealOfTasks = "task"

// startWait is shorter than a client's patience with its handshake.
const startWait = 10 * time.Second

// GateOptions say what the clients of a gate may do.
type GateOptions struct {
	Lists names.Lists // of the clients' names of tools
	// Resources are those that the clients may have of what the tool servers give; nil is all.
	Resources names.Resources
	Quotas    []Quota
	// Tasks are the names of tasks. Without a seal they are of use for as long as the gate is there.
	Tasks  names.Tasks
	Logger *slog.Logger // nil means nothing is said
	Watch  Watch
}

// NewGate makes an endpoint. VALIDATION_ERROR: two tool servers could have the same name, or get credentials that are
// for one of them.
func NewGate(all []Behind, o GateOptions) (*Gate, error) {
	r, err := rulesOf(all, o)
	if err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Tasks.Seal == nil {
		secret := subject.Fresh()
		o.Tasks.Seal = func(text string) string { return secret.Seal(SealOfTasks, text) }
	}
	g := &Gate{tasks: o.Tasks, log: o.Logger, watch: o.Watch.deaf(), wait: startWait, fans: map[*fan]bool{}}
	g.now.Store(r)
	return g, nil
}

func rulesOf(all []Behind, o GateOptions) (*rules, error) {
	if len(all) == 0 {
		return nil, tga.Errorf(tga.ValidationError, "a gateway needs a tool server")
	}
	of, from := map[string]names.Names{}, map[string]subject.Source{}
	for _, b := range all {
		of[b.Shim.Server()], from[b.Shim.Server()] = b.Names, b.Shim.Credentials()
	}
	server, err := names.Check(of)
	if err == nil {
		server, err = subject.Check(from)
	}
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: %w", server, err)
	}
	return &rules{all: all, lists: o.Lists, resources: o.Resources, quotas: quotasOf(o.Quotas)}, nil
}

// fan is one client, or several that share it, and the conversations that it has.
type fan struct {
	g     *Gate
	out   entry.Outlet
	of    entry.Whose
	life  context.Context
	stop  context.CancelFunc
	table atomic.Pointer[table]
	runs  sync.WaitGroup // the conversations
	work  sync.WaitGroup // lists and handshakes

	mu        sync.Mutex
	every     []*member // those that are in the table, and those that come to their end
	present   *paper.Presence
	running   bool   // the conversations are kept
	started   bool   // the tool servers are
	params    []byte // of the client's handshake; nil is none
	level     []byte // params of the newest logging/setLevel; nil is none
	greeted   bool   // the client has said that it is ready
	next      uint64
	asked     map[frames.Key]asked // requests of the client's under way
	own       map[frames.Key]*inquiry
	questions map[frames.Key]question
	owners    map[string]*member // of resources, by their URIs
	streams   map[frames.Key]*stream
	branches  map[frames.Key]*stream // by the ids at the tool servers
}

// inquiry is a request of the fan's own to a tool server.
type inquiry struct {
	method    string
	got       chan *frames.Frame
	challenge *frames.Challenge // that is the answer; under the fan's lock
}

// question is a request of a tool server's to the client.
type question struct {
	m  *member
	id []byte // the tool server's own
}

// member is the conversation with one tool server.
type member struct {
	*mcpfront.Conversation
	f     *fan
	shim  *mcpfront.Shim
	begin chan struct{} // closed when the tool server is to be started
	tried chan struct{} // closed when it is there, or could not be started
	// retired says that no table has it any more: nothing is begun with it. Under the fan's lock.
	retired bool
	freed   sync.Once
	// absent says that a client was given a list without this tool server's part.
	absent bool // under the fan's lock
	// mute says that it did not answer the newest question of the fan's own in time: the next one waits for it but
	// a moment.
	mute atomic.Bool
}

func (g *Gate) meet(out entry.Outlet, of entry.Whose) (entry.Party, error) {
	f, err := g.fan(out, of)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (g *Gate) fan(out entry.Outlet, of entry.Whose) (*fan, error) {
	g.turn.Lock()
	defer g.turn.Unlock()
	f := &fan{
		g: g, out: out, of: of, asked: map[frames.Key]asked{}, own: map[frames.Key]*inquiry{}, questions: map[frames.Key]question{}, owners: map[string]*member{},
		streams: map[frames.Key]*stream{}, branches: map[frames.Key]*stream{},
	}
	f.life, f.stop = context.WithCancel(context.Background())
	t, added, err := f.laid(g.now.Load())
	f.every = added
	if err != nil {
		f.End()
		f.free()
		return nil, err
	}
	f.table.Store(t)
	g.fans[f] = true
	return f, nil
}

// laid is the table that rules make, of the conversations that are there and of new ones.
func (f *fan) laid(r *rules) (t *table, added []*member, err error) {
	t = &table{rules: r, g: f.g}
	for _, b := range r.all {
		v := &view{names: b.Names, resources: b.Resources, t: t}
		if was := f.now().with(b.Shim); was != nil {
			v.member = was.member
		} else {
			if v.member, err = f.member(b.Shim); err != nil {
				return nil, added, err
			}
			added = append(added, v.member)
		}
		t.views = append(t.views, v)
	}
	return t, added, nil
}

func (f *fan) member(s *mcpfront.Shim) (*member, error) {
	m := &member{f: f, shim: s, begin: make(chan struct{}), tried: make(chan struct{})}
	var err error
	if m.Conversation, err = s.Sit(seat{m}, f.of); err != nil {
		return nil, err
	}
	m.Among(m.isUp, f.convs)
	return m, nil
}

// members are those of the table, and those that come to their end.
func (f *fan) members() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.every)
}

// convs are all the conversations: a client goes on from an answer of one tool server to a call of another.
func (f *fan) convs() (all []*mcpfront.Conversation) {
	for _, m := range f.members() {
		all = append(all, m.Conversation)
	}
	return all
}

// Appears says that the client is there for as long as present is.
func (f *fan) Appears(present *paper.Presence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present = present
	for _, m := range f.every {
		m.Appears(present)
	}
}

// start starts the tool servers. params are those of the client's handshake; nil is none.
func (f *fan) start(params []byte) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started {
		return false
	}
	f.started, f.params = true, params
	for _, m := range f.every {
		if !m.retired {
			m.set(params)
		}
	}
	return true
}

// set has the tool server started, with what the client has said in its handshake. The fan's lock is held.
func (m *member) set(params []byte) {
	if params != nil {
		m.Greet(params)
	}
	close(m.begin)
}

// Run keeps the tool servers until the conversation is over. One that cannot be started does not
// take the others with it.
func (f *fan) Run() error {
	f.mu.Lock()
	f.running = true
	for _, m := range f.every {
		f.keep(m)
	}
	f.mu.Unlock()
	<-f.life.Done()
	f.mu.Lock()
	f.running = false // none is begun any more
	f.mu.Unlock()
	f.runs.Wait()
	f.work.Wait()
	return nil
}

// keep keeps a tool server until its conversation is over. The fan's lock is held.
func (f *fan) keep(m *member) {
	f.runs.Go(func() {
		select {
		case <-m.begin:
			if err := m.Conversation.Run(); err != nil {
				f.g.log.Error("a tool server was given up", "tool_server", m.shim.Server(), "error", err)
			}
		case <-m.Gone():
		case <-f.life.Done():
		}
		f.mu.Lock()
		retired := m.retired
		f.mu.Unlock()
		if retired {
			f.left(m)
		} else {
			f.End() // the client is gone for one, and so for all
		}
	})
	f.runs.Go(func() {
		defer close(m.tried)
		m.Ready()
	})
}

// settled waits until each tool server is there or could not be started, for a time.
func (f *fan) settled() {
	ctx, cancel := context.WithTimeout(f.life, f.g.wait)
	defer cancel()
	for _, m := range f.now().views {
		select {
		case <-m.tried:
		case <-ctx.Done():
			return
		}
	}
}

func (f *fan) End() {
	f.stop()
	for _, m := range f.members() {
		m.Conversation.End()
	}
}

func (f *fan) Over() bool { return f.life.Err() != nil }

func (f *fan) Release() {
	f.g.turn.Lock()
	delete(f.g.fans, f)
	f.g.turn.Unlock()
	f.free()
}

func (f *fan) free() {
	for _, m := range f.members() {
		f.left(m)
	}
}

// left takes what is left of a conversation with a tool server.
func (f *fan) left(m *member) {
	m.freed.Do(m.Conversation.Release)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.every = slices.DeleteFunc(f.every, func(other *member) bool { return other == m })
}

// isUp tells the client of a tool server that is there at last.
func (m *member) isUp() {
	f := m.f
	v := f.now().with(m.shim)
	if v == nil {
		return
	}
	f.mu.Lock()
	was := m.absent
	tell := was && f.greeted
	m.absent = false
	f.mu.Unlock()
	if was {
		v.rejoin()
	}
	if tell {
		f.tell(say.ToolsChanged)
		f.tell(promptsChanged)
		if len(v.resources) > 0 {
			f.tell(resourcesChanged)
		}
	}
}

// promptsChanged is the notification that the list of prompts is another one.
const promptsChanged = "notifications/prompts/list_changed"

// tell gives the client a notification of the fan's own.
func (f *fan) tell(method string) {
	f.say(frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"` + method + `"}`)))
}

// GivenUp takes the end of a stream for what it is.
func (f *fan) GivenUp(key frames.Key) {
	if m := f.ended(key, EndGivenUp); m != nil {
		m.Conversation.GivenUp(key)
	}
	f.unlisten(key, func(b *branch) { b.m.Conversation.GivenUp(frames.KeyOf(b.id)) })
}

func (f *fan) RefusedParams(ctx context.Context, h http.Header, msg *frames.Frame) *entry.Refusal {
	if msg.Method != "tools/call" {
		return nil
	}
	f.start(nil)
	m, tool, _ := f.behind(nameOf(msg))
	if m == nil {
		return nil // and so it is refused for that
	}
	inner, err := rewrite(msg, "/name", tool)
	if err != nil {
		return nil
	}
	return m.Conversation.RefusedParams(ctx, h, inner)
}

// nameOf is the member name of a request's params.
func nameOf(f *frames.Frame) string { return textOf(f, "/name") }

// textOf is the string at a place in a request's params.
func textOf(f *frames.Frame, pointer string) string {
	if !f.Params.Present() {
		return ""
	}
	params, err := f.Bytes(f.Params, toolcall.MaxParams)
	if err != nil {
		return ""
	}
	return mcpraw.Text(mcpraw.At(params, pointer))
}

// rewrite is a message with another string at a place in its params.
func rewrite(f *frames.Frame, pointer, text string) (*frames.Frame, error) {
	if !f.Params.Present() {
		return nil, tga.Errorf(tga.ValidationError, "want params").At("/params")
	}
	raw, err := f.Bytes(mcpraw.Span{From: 0, To: f.Size}, toolcall.MaxParams+frames.SpillBytes)
	if err != nil {
		return nil, err
	}
	from, to, ok := mcpraw.Locate(raw[f.Params.From:f.Params.To], pointer)
	if !ok {
		return nil, tga.Errorf(tga.ValidationError, "the member is required").At("/params" + pointer)
	}
	at := mcpraw.Span{From: f.Params.From + int64(from), To: f.Params.From + int64(to)}
	return frames.Splice(raw, at, tga.AppendString(nil, text)), nil
}
