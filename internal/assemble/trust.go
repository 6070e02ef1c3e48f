package assemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/outcome"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// buildTrust makes the verifiers, probers, supervisors and keys that the runtime uses.
func (t *Tools) buildTrust(o Options, cur *current) (runtime.Trust, error) {
	c := t.config
	trust := runtime.Trust{
		Outcome: t.rules.Outcome, Inverse: t.rules.Inverse, Schema: t.schema,
		SelfApproval: c.Approval.Self, RequireCapability: c.Capability.Required,
	}
	// Probes and verifications bypass the breaker and the concurrency limit. The calls that they
	// ask about are often the reason that these refuse.
	of := func(id string) runtime.Dispatcher {
		if n := t.nodes[id]; n != nil && n.mcp != nil {
			return question{cur, id}
		}
		return nil
	}
	verifiers := map[string]runtime.Verifier{}
	for i := range c.Verifiers {
		v := &c.Verifiers[i]
		made, err := verifierKinds[v.Type](c, v, of)
		if err != nil {
			return trust, fmt.Errorf("verifier of %q: %w", v.ResourceType, err)
		}
		verifiers[v.ResourceType] = made
	}
	trust.Verifier = func(kind string) runtime.Verifier { return verifiers[kind] }
	probers := make([]runtime.Prober, len(c.Probers))
	for i := range c.Probers {
		p := &c.Probers[i]
		made, err := proberKinds[p.Type](c, p, of)
		if err != nil {
			return trust, fmt.Errorf("prober of %s on %q: %w", p.Tool, p.Server, err)
		}
		probers[i] = made
	}
	trust.Prober = func(server, tool string) runtime.Prober {
		if n := c.ProberOf(server, tool); n >= 0 {
			return probers[n]
		}
		return nil
	}
	supervisors, err := remoteSupervisors(c, o)
	if err != nil {
		return trust, err
	}
	trust.Supervisor = func(who string) runtime.TokenChecker {
		if s := supervisors[who]; s != nil {
			return s
		}
		return nil
	}
	if c.Capability.KeyFile == "" {
		return trust, nil
	}
	keys, err := OpenKeys(c, o)
	if err != nil {
		return trust, err
	}
	trust.Capabilities = keys
	return trust, nil
}

// Keys are the keys of the file under [capability]. The file is read again when it has changed, so
// a rotated or deleted key counts from the next approval on.
type Keys struct {
	*capability.Ring
	path string

	mu   sync.Mutex
	read os.FileInfo // of the file as it was read
}

// OpenKeys opens the file of keys, and makes it if there is none. VALIDATION_ERROR: the
// configuration names no file.
func OpenKeys(c *config.Config, o Options) (*Keys, error) {
	k := &c.Capability
	if k.KeyFile == "" {
		return nil, tga.Errorf(tga.ValidationError, "the configuration has no key_file under [capability]")
	}
	path := c.KeyFile()
	var skew *time.Duration
	if k.Skew != nil {
		skew = &k.Skew.D
	}
	ring, err := capability.Open(path, k.Issuer, k.Audience, capability.Options{
		StoreDir: o.Store, Lifetime: k.Lifetime.D, Skew: skew, Clock: o.Clock,
	})
	if err != nil {
		return nil, err
	}
	// Leave read nil, so that the first use reads the file again: a Stat here could be of another
	// file than the one that was opened.
	return &Keys{Ring: ring, path: path}, nil
}

// Mint is [capability.Ring.Mint] with the current keys of the file.
func (k *Keys) Mint(ctx context.Context, g runtime.Grant) (string, error) {
	if err := k.refresh(); err != nil {
		return "", err
	}
	return k.Ring.Mint(ctx, g)
}

// Check is [capability.Ring.Check] with the current keys of the file.
func (k *Keys) Check(ctx context.Context, token string, g runtime.Grant) error {
	if err := k.refresh(); err != nil {
		return err
	}
	return k.Ring.Check(ctx, token, g)
}

// refresh reads the file again if it has changed. If it cannot be read, no token is accepted: its
// owner may have removed it to revoke what its keys signed.
func (k *Keys) refresh() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.path)
	if err != nil {
		return tga.Errorf(tga.CapabilityInvalid, "the key file: %w", err)
	}
	if r := k.read; r != nil && os.SameFile(r, info) && r.ModTime().Equal(info.ModTime()) && r.Size() == info.Size() {
		return nil
	}
	if err := k.Reload(); err != nil {
		return tga.Errorf(tga.CapabilityInvalid, "the key file has changed: %w", err)
	}
	k.read = info // from before the read, so that a change during it is noticed next time
	return nil
}

// listHolds is how long a server's list of tools is used before it is asked again.
const listHolds = time.Second

// listed is an MCP server with a cache of its list of tools.
type listed struct {
	*mcp.Server

	turn  chan struct{} // holds one element while a caller has the fields below
	asked time.Time
	tools map[string]tga.Digest // of the definitions
}

func newListed(s *mcp.Server) *listed { return &listed{Server: s, turn: make(chan struct{}, 1)} }

// schema is [runtime.Trust.Schema]: the digest of the exact bytes of a tool's definition in its
// server's tools/list; zero for a server that does not speak MCP. TOOL_SCHEMA_CHANGED: the server
// lists no such tool.
func (t *Tools) schema(ctx context.Context, server, tool string) (tga.Digest, error) {
	n := t.nodes[server]
	if n == nil || n.mcp == nil {
		return tga.Digest{}, nil
	}
	return n.mcp.schema(ctx, tool)
}

// schema returns the digest of a tool's definition. It asks the server if its last list is too old.
func (s *listed) schema(ctx context.Context, tool string) (tga.Digest, error) {
	// Another caller may be asking a server that hangs: do not wait for it past the own deadline.
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return tga.Digest{}, ctx.Err()
	}
	if s.tools == nil || time.Since(s.asked) > listHolds {
		asked := time.Now()
		tools, err := s.ListTools(ctx)
		if err != nil {
			return tga.Digest{}, err
		}
		s.asked, s.tools = asked, map[string]tga.Digest{}
		for _, tool := range tools {
			s.tools[tool.Name] = tga.Sum(tool.Definition)
		}
	}
	digest, ok := s.tools[tool]
	if !ok {
		return digest, tga.Errorf(tga.ToolSchemaChanged, "the server lists no tool of that name")
	}
	return digest, nil
}

// placer puts the idempotency key at the place in the arguments where a tool expects it.
type placer struct {
	next runtime.Dispatcher
	cur  *current
}

func (p *placer) place(call runtime.Call) (runtime.Call, error) {
	at := p.cur.tools().rules.Key(call.Server, call.Tool).Argument
	if at == "" {
		return call, nil
	}
	args, err := outcome.PlaceArgument(call.Args, at, call.Key)
	if err != nil {
		return call, err
	}
	call.Args = args
	return call, nil
}

// Check refuses a call whose arguments have no room for the key. It does not check the call of a
// remote executor, which puts the key into the arguments itself.
func (p *placer) Check(ctx context.Context, call runtime.Call) error {
	if !call.Remote {
		var err error
		if call, err = p.place(call); err != nil {
			return err
		}
	}
	return runtime.Check(ctx, p.next, call)
}

// Prepare prepares the call with the key in its arguments, as it will be sent.
func (p *placer) Prepare(ctx context.Context, call runtime.Call) ([]chain.Attachment, error) {
	call, err := p.place(call)
	if err != nil {
		return nil, err
	}
	if next, ok := p.next.(runtime.Preparer); ok {
		return next.Prepare(ctx, call)
	}
	return nil, nil
}

// Dispatch sends the call with the key in its arguments.
func (p *placer) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	call, err := p.place(call)
	if err != nil {
		return runtime.Reply{}, errors.Join(runtime.ErrNotSent, err)
	}
	return p.next.Dispatch(ctx, call)
}
