//go:build unix

package mcpshim

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/names"
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
	Shim      *Shim
	Names     names.Names
	Resources names.Resources // nil is none
}

// Gate is an endpoint with several tool servers behind it, for clients that share a namespace.
type Gate struct {
	all   []Behind
	lists names.Lists
	// resources are those that the clients may have of the servers'; nil is all.
	resources names.Resources
	quotas    []quota
	log       *slog.Logger
	watch     Watch
	// wait is how long a client waits for tool servers that are being started. What comes later is
	// told as a change of the list.
	wait time.Duration
}

// startWait is shorter than a client's patience with its handshake.
const startWait = 10 * time.Second

// GateOptions say what the clients of a gate may do.
type GateOptions struct {
	Lists names.Lists // of the clients' names of tools
	// Resources are those that the clients may have of what the tool servers give; nil is all.
	Resources names.Resources
	Quotas    []Quota
	Logger    *slog.Logger // nil means nothing is said
	Watch     Watch
}

// NewGate makes an endpoint. VALIDATION_ERROR: two tool servers could have the same name.
func NewGate(all []Behind, o GateOptions) (*Gate, error) {
	if len(all) == 0 {
		return nil, tga.Errorf(tga.ValidationError, "a gateway needs a tool server")
	}
	of := map[string]names.Names{}
	for _, b := range all {
		of[b.Shim.opts.Server] = b.Names
	}
	if server, err := names.Check(of); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "tool server %q: %w", server, err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gate{all: all, lists: o.Lists, resources: o.Resources, quotas: quotasOf(o.Quotas), log: o.Logger, watch: o.Watch.deaf(), wait: startWait}, nil
}

// fan is one client, or several that share it, and the conversations that it has.
type fan struct {
	g       *Gate
	out     outlet
	life    context.Context
	stop    context.CancelFunc
	members []*member
	work    sync.WaitGroup // lists and handshakes

	mu        sync.Mutex
	started   bool
	greeted   bool // the client has said that it is ready
	next      uint64
	asked     map[frames.Key]asked // requests of the client's under way
	own       map[frames.Key]chan *frames.Frame
	questions map[frames.Key]question
	owners    map[string]*member // of resources, by their URIs
	streams   map[frames.Key]*stream
	branches  map[frames.Key]*stream // by the ids at the tool servers
}

// question is a request of a tool server's to the client.
type question struct {
	m  *member
	id []byte // the tool server's own
}

// member is the conversation with one tool server.
type member struct {
	*alone
	f         *fan
	names     names.Names
	resources names.Resources
	begin     chan struct{} // closed when the tool server is to be started
	tried     chan struct{} // closed when it is there, or could not be started
	// absent says that a client was given a list without this tool server's part.
	absent bool // under the fan's lock
	// mute says that it did not answer the newest question of the fan's own in time: the next one waits for it but
	// a moment.
	mute atomic.Bool
}

func (g *Gate) meet(out outlet, of whose) (party, error) {
	f, err := g.fan(out, of)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (g *Gate) fan(out outlet, of whose) (*fan, error) {
	f := &fan{
		g: g, out: out, asked: map[frames.Key]asked{}, own: map[frames.Key]chan *frames.Frame{}, questions: map[frames.Key]question{}, owners: map[string]*member{},
		streams: map[frames.Key]*stream{}, branches: map[frames.Key]*stream{},
	}
	f.life, f.stop = context.WithCancel(context.Background())
	for _, b := range g.all {
		m := &member{f: f, names: b.Names, resources: b.Resources, begin: make(chan struct{}), tried: make(chan struct{})}
		c, err := b.Shim.sit(seat{m}, of)
		if err != nil {
			f.end()
			f.release()
			return nil, err
		}
		m.alone = c
		m.lasting, m.rose, m.kin = true, m.isUp, f.owed
		f.members = append(f.members, m)
	}
	return f, nil
}

// owed are the answers of all the conversations that may not be noted yet: a client goes on from
// an answer of one tool server to a call of another.
func (f *fan) owed() (all []*delivery) {
	for _, m := range f.members {
		all = append(all, m.s.owed(m.conv)...)
	}
	return all
}

// start starts the tool servers. params are those of the client's handshake; nil is none.
func (f *fan) start(params []byte) (first bool) {
	f.mu.Lock()
	first = !f.started
	f.started = true
	f.mu.Unlock()
	if !first {
		return false
	}
	for _, m := range f.members {
		if params != nil {
			m.opening.greet(params)
		}
		close(m.begin)
	}
	return true
}

// run keeps the tool servers until the conversation is over. One that cannot be started does not
// take the others with it.
func (f *fan) run() error {
	var all sync.WaitGroup
	for _, m := range f.members {
		all.Go(func() {
			defer f.end() // the client is gone for one, and so for all
			select {
			case <-m.begin:
			case <-f.life.Done():
				return
			}
			if err := m.alone.run(); err != nil {
				f.g.log.Error("a tool server was given up", "tool_server", m.s.opts.Server, "error", err)
			}
		})
		all.Go(func() {
			defer close(m.tried)
			m.first()
		})
	}
	all.Wait()
	f.work.Wait()
	return nil
}

// settled waits until each tool server is there or could not be started, for a time.
func (f *fan) settled() {
	ctx, cancel := context.WithTimeout(f.life, f.g.wait)
	defer cancel()
	for _, m := range f.members {
		select {
		case <-m.tried:
		case <-ctx.Done():
			return
		}
	}
}

func (f *fan) end() {
	f.stop()
	for _, m := range f.members {
		m.alone.end()
	}
}

func (f *fan) over() bool { return f.life.Err() != nil }

func (f *fan) release() {
	for _, m := range f.members {
		m.alone.release()
	}
}

// isUp tells the client of a tool server that is there at last.
func (m *member) isUp() {
	f := m.f
	f.mu.Lock()
	was := m.absent
	tell := was && f.greeted
	m.absent = false
	f.mu.Unlock()
	if was {
		m.rejoin()
	}
	if tell {
		f.tell(toolsChanged)
		f.tell(promptsChanged)
		if len(m.resources) > 0 {
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

// givenUp takes the end of a stream for what it is.
func (f *fan) givenUp(key frames.Key) {
	if m := f.ended(key, EndGivenUp); m != nil {
		m.alone.givenUp(key)
	}
	f.unlisten(key, func(b *branch) { b.m.alone.givenUp(frames.KeyOf(b.id)) })
}

func (f *fan) refusedParams(ctx context.Context, h http.Header, msg *frames.Frame) *refusal {
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
	return m.alone.refusedParams(ctx, h, inner)
}

// behind finds the tool that a client's name stands for; no member where the client has no such tool.
func (f *fan) behind(name string) (m *member, tool string, err error) {
	for _, m := range f.members {
		tool, ok := m.names.Behind(name)
		if !ok {
			continue
		}
		if m.s.ownTool(tool) == nil && !m.names.Permit(tool) || !f.g.lists.Permit(name) {
			return nil, "", tga.Errorf(tga.PolicyViolation, "the gateway does not let this client have %q. Nothing was sent", name)
		}
		return m, tool, nil
	}
	if name == "" {
		return nil, "", tga.Errorf(tga.NotFound, "the request has no name, or none that can be read").At("/params/name")
	}
	return nil, "", tga.Errorf(tga.NotFound, "there is no %q at this gateway", name)
}

// nameOf is the member name of a request's params.
func nameOf(f *frames.Frame) string {
	if !f.Params.Present() {
		return ""
	}
	params, err := f.Bytes(f.Params, maxParams)
	if err != nil {
		return ""
	}
	return mcpraw.Text(mcpraw.At(params, "/name"))
}

// rewrite is a message with another string at a place in its params.
func rewrite(f *frames.Frame, pointer, text string) (*frames.Frame, error) {
	if !f.Params.Present() {
		return nil, tga.Errorf(tga.ValidationError, "want params").At("/params")
	}
	raw, err := f.Bytes(mcpraw.Span{From: 0, To: f.Size}, maxParams+frames.SpillBytes)
	if err != nil {
		return nil, err
	}
	from, to, ok := mcpraw.Locate(raw[f.Params.From:f.Params.To], pointer)
	if !ok {
		return nil, tga.Errorf(tga.ValidationError, "the member is required").At("/params" + pointer)
	}
	at := mcpraw.Span{From: f.Params.From + int64(from), To: f.Params.From + int64(to)}
	return splice(raw, at, tga.AppendString(nil, text)), nil
}
