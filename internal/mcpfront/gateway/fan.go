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
// its own, exactly as behind `tgad mcp`. Only the conversation decides what is sent, recorded, in
// doubt or delivered. The fan is between the client and the conversations. It finds the
// conversation that a message is for, changes the name in the message, and merges lists. An answer
// to a call passes through the fan unchanged and in the goroutine that delivers it, so an answer
// that the conversation counts as delivered is delivered.

// Behind is one of the tool servers of a gateway.
type Behind struct {
	Shim      *mcpfront.Shim
	Names     names.Names
	Resources names.Resources // nil is none
}

// Gate is an endpoint with several tool servers behind it, for clients that share a namespace. Its tool servers, and
// what its clients may do, can be changed while clients are connected: see [Gate.Prepare].
type Gate struct {
	log    *slog.Logger
	watch  Watch
	tasks  names.Tasks
	handed handed
	// wait is how long a client waits for tool servers that are starting. A tool server that starts
	// later is announced as a change of the lists.
	wait time.Duration
	reap func() // Reap of its shims if the gate serves HTTP, else nil

	now  atomic.Pointer[rules]
	next atomic.Pointer[rules] // rules of a change under way: what they refuse is refused already; nil is no change

	turn sync.Mutex // serializes changes and the beginning of conversations
	fans map[*fan]bool
}

// SealOfTasks is the purpose under which a secret seals the names of tasks.
const SealOfTasks = "task"

// startWait is shorter than a client's patience with its handshake.
const startWait = 10 * time.Second

// GateOptions say what the clients of a gate may do.
type GateOptions struct {
	Lists names.Lists // which tools the clients may call, by the clients' names
	// Resources are the resources of the tool servers that the clients may have; nil is all.
	Resources names.Resources
	Quotas    []Quota
	// Tasks makes the names of tasks. Without a seal the names work only as long as the gate lives.
	Tasks  names.Tasks
	Logger *slog.Logger // nil discards all records
	Watch  Watch
}

// NewGate makes an endpoint. The error is VALIDATION_ERROR if names of two tool servers could collide, or if two could
// get credentials that are for one of them.
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

// fan is one client, or several that share it, with its conversations.
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
	every     []*member // members of the table, and those that are ending
	present   *paper.Presence
	running   bool   // the conversations run
	started   bool   // the tool servers were told to start
	params    []byte // params of the client's handshake; nil is none
	level     []byte // params of the newest logging/setLevel; nil is none
	greeted   bool   // the client has said that it is ready
	next      uint64
	asked     map[frames.Key]asked // requests of the client that are under way
	own       map[frames.Key]*inquiry
	questions map[frames.Key]question
	owners    map[string]*member // owners of resources, by URI
	streams   map[frames.Key]*stream
	branches  map[frames.Key]*stream // streams by the ids of their branches
}

// inquiry is a request of the fan itself to a tool server.
type inquiry struct {
	method    string
	got       chan *frames.Frame
	challenge *frames.Challenge // set if the answer is a challenge; guarded by the fan's lock
}

// question is a request of a tool server to the client.
type question struct {
	m  *member
	id []byte // the tool server's own id
}

// member is the conversation with one tool server.
type member struct {
	*mcpfront.Conversation
	f     *fan
	shim  *mcpfront.Shim
	begin chan struct{} // closed when the tool server is to start
	tried chan struct{} // closed when the tool server has started or has failed to
	// retired says that no table has the member any more, so no new request goes to it. The fan's lock guards it.
	retired bool
	freed   sync.Once
	// absent says that a client was given a list without this tool server's part.
	absent bool // guarded by the fan's lock
	// mute says that the tool server did not answer the fan's newest request in time. The next request waits for it
	// only a fraction of the usual time.
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

// laid makes the table of rules. It keeps the conversations that exist and begins new ones (added).
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

// members returns the members of the table, and those that are ending.
func (f *fan) members() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.every)
}

// convs returns all conversations: a client may make a call to one tool server because of another one's answer.
func (f *fan) convs() (all []*mcpfront.Conversation) {
	for _, m := range f.members() {
		all = append(all, m.Conversation)
	}
	return all
}

// Appears sets the lock that shows that the client lives.
func (f *fan) Appears(present *paper.Presence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present = present
	for _, m := range f.every {
		m.Appears(present)
	}
}

// start starts the tool servers. params are the params of the client's handshake; nil is none.
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

// set lets the tool server start, with the params of the client's handshake. The caller holds the fan's lock.
func (m *member) set(params []byte) {
	if params != nil {
		m.Greet(params)
	}
	close(m.begin)
}

// Run runs the conversations until the client's is over. A tool server that cannot be started does
// not affect the others.
func (f *fan) Run() error {
	f.mu.Lock()
	f.running = true
	for _, m := range f.every {
		f.keep(m)
	}
	f.mu.Unlock()
	<-f.life.Done()
	f.mu.Lock()
	f.running = false // from now on no conversation is started
	f.mu.Unlock()
	f.runs.Wait()
	f.work.Wait()
	return nil
}

// keep runs a member's conversation until it is over. The caller holds the fan's lock.
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
			f.End() // the client of one conversation is gone, so all conversations end
		}
	})
	f.runs.Go(func() {
		defer close(m.tried)
		m.Ready()
	})
}

// settled waits until each tool server has started or has failed to, but at most Gate.wait.
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

// left releases a member's conversation and removes the member.
func (f *fan) left(m *member) {
	m.freed.Do(m.Conversation.Release)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.every = slices.DeleteFunc(f.every, func(other *member) bool { return other == m })
}

// isUp tells the client of a tool server that has started, if a list was given without it.
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

// promptsChanged is the notification that the list of prompts has changed.
const promptsChanged = "notifications/prompts/list_changed"

// tell sends the client a notification of the fan itself.
func (f *fan) tell(method string) {
	f.say(frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"` + method + `"}`)))
}

// GivenUp handles the end of a response stream: the client has given the request up.
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
		return nil // the call is refused later, for its name
	}
	inner, err := rewrite(msg, "/name", tool)
	if err != nil {
		return nil
	}
	return m.Conversation.RefusedParams(ctx, h, inner)
}

// nameOf is the member "name" of a request's params.
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

// rewrite returns a message with another string at a place in its params.
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
