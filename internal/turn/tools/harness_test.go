package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime/mcp"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type mcpTool = mcp.Tool

// shelf is a tool server that counts how often it is asked. before, if set, runs inside each
// list.
type shelf struct {
	mu     sync.Mutex
	asked  int
	tools  []mcp.Tool
	err    error
	before func(ctx context.Context, n int) error
}

func (s *shelf) ListTools(ctx context.Context) ([]mcp.Tool, error) {
	s.mu.Lock()
	s.asked++
	n, before := s.asked, s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, n); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools, s.err
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *shelf) set(tools ...mcp.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = tools
}

func define(name, schema string) mcp.Tool {
	return mcp.Tool{Name: name, Definition: fmt.Appendf(nil, `{"name":%q,"description":"does %s","inputSchema":%s}`, name, name, schema)}
}

// clock is a hand-driven clock.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Unix(1_700_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newResolver(t *testing.T, o Options) *Resolver {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func resolve(t *testing.T, r *Resolver, specs ...turn.ToolSpec) ([]turn.Tool, []turn.Warning) {
	t.Helper()
	tools, warnings, err := r.Resolve(context.Background(), &turn.Agent{Name: "a", Tools: specs})
	if err != nil {
		t.Fatal(err)
	}
	return tools, warnings
}

func discover(server string, only ...string) turn.ToolSpec {
	return turn.ToolSpec{Transport: turn.OverMCP, Server: server, Discover: true, Only: only}
}

func namesOf(tools []turn.Tool) []string {
	var n []string
	for _, t := range tools {
		n = append(n, t.Name)
	}
	return n
}

// codes returns "tool CODE" of each warning.
func codes(warnings []turn.Warning) []string {
	var c []string
	for _, w := range warnings {
		c = append(c, w.Tool+" "+string(w.Code))
	}
	return c
}

func withSchema(schema string) *turn.Tool {
	return &turn.Tool{Name: "t", InputSchema: json.RawMessage(schema), SchemaDigest: tga.Sum([]byte(schema))}
}
