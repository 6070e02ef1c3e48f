package tools

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// Options configure a [Resolver]. A zero field means its default, except for Servers.
type Options struct {
	// Servers are the tool servers that calls can be sent to, by tool_server. A nil Lister is a
	// server that cannot list its tools. A tool of any other server is unavailable.
	Servers map[string]Lister
	// Delegate reports whether an agent of that name can be delegated to, and its id. If Delegate
	// is nil, every name is valid and is the id.
	Delegate func(agent string) (id string, ok bool)

	// TTL is how long a list is used; 0 = 5 min. A failure is remembered for RetryAfter
	// (0 = 10 s), at most TTL. Timeout bounds the wait for one server's list; 0 = 10 s.
	TTL, RetryAfter, Timeout time.Duration

	// Pinned returns the recorded digest of a tool's input schema, with which the first list of
	// this process is compared. If Pinned is nil, only lists of this process are compared with
	// each other.
	Pinned func(server, tool string) (tga.Digest, bool)
	// LeaveOutChanged leaves out a tool whose definition changed, until [Resolver.Accept].
	// Without it a change is a warning for as long as the list that shows it is used, and later
	// lists are compared with the new definition.
	LeaveOutChanged bool

	MaxTools       int // tools of a list, and of an agent; 0 = 1,000
	MaxSchema      int // bytes of an input schema; 0 = 256 KiB
	MaxDescription int // bytes; 0 = 64 KiB
	MaxBytes       int // of an agent's schemas and descriptions together; 0 = 4 MiB
	MaxArgs        int // bytes of a call's arguments; 0 = [tga.DefaultMaxBytes]
	MaxCompiled    int // compiled schemas that are kept; 0 = 1,024

	Clock func() time.Time // nil = time.Now
}

func (o Options) withDefaults() Options {
	o.TTL = cmp.Or(o.TTL, 5*time.Minute)
	o.RetryAfter = cmp.Or(o.RetryAfter, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxTools = cmp.Or(o.MaxTools, 1000)
	o.MaxSchema = cmp.Or(o.MaxSchema, 256<<10)
	o.MaxDescription = cmp.Or(o.MaxDescription, 64<<10)
	o.MaxBytes = cmp.Or(o.MaxBytes, 4<<20)
	o.MaxArgs = cmp.Or(o.MaxArgs, tga.DefaultMaxBytes)
	o.MaxCompiled = cmp.Or(o.MaxCompiled, 1024)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

// Resolver finds the tools of agents. Its methods may be called by many goroutines.
type Resolver struct {
	opts    Options
	sources map[string]*source
	schemas *compiled
}

var _ turn.Resolver = (*Resolver)(nil)

// New makes a Resolver. It asks no server yet. VALIDATION_ERROR for a negative limit or for a
// server whose name no call can have.
func New(o Options) (*Resolver, error) {
	o = o.withDefaults()
	for _, n := range []int64{int64(o.TTL), int64(o.RetryAfter), int64(o.Timeout), int64(o.MaxTools),
		int64(o.MaxSchema), int64(o.MaxDescription), int64(o.MaxBytes), int64(o.MaxArgs), int64(o.MaxCompiled)} {
		if n < 0 {
			return nil, tga.Errorf(tga.ValidationError, "tools: negative limit %d", n)
		}
	}
	r := &Resolver{opts: o, sources: map[string]*source{}, schemas: newCompiled(o.MaxCompiled)}
	for name, lister := range o.Servers {
		if !tga.CleanName(name) {
			return nil, tga.Errorf(tga.ValidationError, "tool server %.140q: want %s", name, tga.CleanNameForm)
		}
		r.sources[name] = &source{name: name, lister: lister, opts: &r.opts, before: map[string]seen{}}
	}
	return r, nil
}

// Invalidate says that a server's tools changed (MCP notifications/tools/list_changed): the next
// Resolve asks the server again. A list that is under way is not remembered.
func (r *Resolver) Invalidate(server string) {
	if s := r.sources[server]; s != nil {
		s.invalidate()
	}
}

// Accept accepts the definitions that a server has now, so they are no longer reported as
// changed.
func (r *Resolver) Accept(server string) {
	if s := r.sources[server]; s != nil {
		s.accept()
	}
}

// answer is one server's answer to one Resolve.
type answer struct {
	list *listing
	err  error
}

// Resolve implements [turn.Resolver]. It asks all servers at once.
func (r *Resolver) Resolve(ctx context.Context, agent *turn.Agent) ([]turn.Tool, []turn.Warning, error) {
	answers := r.ask(ctx, agent.Tools)
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("resolve the tools of %s: %w", agent.Name, context.Cause(ctx))
	}
	res := &resolution{r: r, agent: agent, answers: answers, names: newNames(), told: map[string]bool{}}
	for i := range agent.Tools {
		res.spec(i)
	}
	if res.untold > 0 {
		res.warnings = append(res.warnings, turn.Warning{Tool: clip.Runes(agent.Name, 128), Code: tga.LimitExceeded, Reason: fmt.Sprintf("%d more warnings", res.untold)})
	}
	return res.tools, res.warnings, nil
}

// ask gets the lists that specs need.
func (r *Resolver) ask(ctx context.Context, specs []turn.ToolSpec) map[string]answer {
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		answers = map[string]answer{}
		asked   = map[string]bool{}
	)
	for i := range specs {
		server := serverOf(&specs[i])
		s := r.sources[server]
		if asked[server] || s == nil || s.lister == nil || specs[i].Delegation != nil {
			continue
		}
		asked[server] = true
		wg.Go(func() {
			list, err := s.list(ctx)
			mu.Lock()
			defer mu.Unlock()
			answers[server] = answer{list, err}
		})
	}
	wg.Wait()
	return answers
}

// DefaultFunctions is the tool_server of function tools for which the manifest names none.
const DefaultFunctions = "function"

func serverOf(spec *turn.ToolSpec) string {
	if spec.Server == "" && spec.Transport == turn.OverFunction {
		return DefaultFunctions
	}
	return spec.Server
}
