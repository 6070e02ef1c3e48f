package assemble

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/optional"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// node is one tool server that this process calls: its sessions, its child process, its breaker and
// its concurrency limit. It outlives the [Tools] that it was made for if the next Tools describe the
// server in the same words.
type node struct {
	made  madeOf
	stack runtime.Dispatcher
	mcp   *listed             // nil if the server speaks another protocol
	grpc  optional.GRPCServer // nil if the server speaks another protocol
	close func() error

	breakers tripped

	// under counts the calls and other requests under way. It grows only while the node is in use, under
	// the lock of its [current]. So once another node has replaced this one, it only falls.
	under sync.WaitGroup
}

// tripped has the namespaces in which the breaker of a server is not closed.
type tripped struct {
	mu sync.Mutex
	in map[string]bool
}

// change is [dispatch.BreakerOptions].OnChange.
func (t *tripped) change(namespace, state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state == "closed" {
		delete(t.in, namespace)
		return
	}
	if t.in == nil {
		t.in = map[string]bool{}
	}
	t.in[namespace] = true
}

func (t *tripped) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.in)
}

// madeOf is everything that determines a node. It has the content of the files beside the
// configuration, and not only their names.
type madeOf struct {
	server                     config.Server
	dir, workspace, aside, set string
	setDigest                  tga.Digest // of the descriptor set
	headers                    map[string]string
	env                        []string
}

// madeOfServer reads what a server of a file is made of.
func madeOfServer(c *config.Config, s *config.Server) (m madeOf, err error) {
	m = madeOf{server: s.Read(), dir: c.Path(s.Dir), workspace: c.Path(s.Workspace), aside: c.Path(s.WorkspaceSnapshots), set: c.Path(s.DescriptorSet)}
	m.server.Trusted = false // [Tools.trusted] has it; a change of it needs no new node
	if m.headers, err = headers(c, s); err != nil {
		return m, err
	}
	if m.env, err = Environment(c, s); err != nil {
		return m, err
	}
	if m.set != "" {
		raw, err := os.ReadFile(m.set)
		if err != nil {
			return m, tga.Errorf(tga.ValidationError, "descriptor_set: %w", err)
		}
		m.setDigest = tga.Sum(raw)
	}
	return m, nil
}

func (m *madeOf) equal(o *madeOf) bool { return reflect.DeepEqual(m, o) }

// current has the current [Tools]. A caller that uses one of their nodes calls enter, so that a node
// which is replaced is closed only after its last use.
type current struct {
	mu  sync.RWMutex
	now *Tools
}

func (c *current) tools() *Tools {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.now
}

// enter returns a tool server, nil if there is none of that name. The caller calls leave when it no
// longer uses the server.
func (c *current) enter(server string) (n *node, leave func()) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n = c.now.nodes[server]; n == nil {
		return nil, func() {}
	}
	n.under.Add(1)
	return n, n.under.Done
}

// like returns the current node of a server if it is equal to m, else nil.
func (c *current) like(server string, m *madeOf) *node {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.now == nil {
		return nil
	}
	if n := c.now.nodes[server]; n != nil && n.made.equal(m) {
		return n
	}
	return nil
}

// question sends requests that are no calls, such as probes, to the MCP server that has the name now.
type question struct {
	cur    *current
	server string
}

// Dispatch implements [runtime.Dispatcher].
func (q question) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	n, leave := q.cur.enter(q.server)
	defer leave()
	if n == nil || n.mcp == nil {
		return runtime.Reply{}, fmt.Errorf("no MCP server %q is configured any more: %w", q.server, runtime.ErrNotSent)
	}
	return n.mcp.Dispatch(ctx, call)
}

// take makes other Tools current, and returns the nodes that are out of use now.
func (c *current) take(next *Tools) (left []*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.now
	c.now = next
	if was == nil {
		return nil
	}
	next.inherit(was)
	for id, n := range was.nodes {
		if next.nodes[id] != n {
			left = append(left, n)
		}
	}
	return left
}

// inherit copies the suggestions of servers whose hints the new configuration still trusts.
func (t *Tools) inherit(was *Tools) {
	was.mu.Lock()
	defer was.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, p := range was.suggested {
		n := t.nodes[at[0]]
		if n != nil && n == was.nodes[at[0]] && t.trusts(at[0]) || n == nil && t.hintsCount(at[0]) {
			t.suggested[at] = p
		}
	}
}

// closeNodes ends the sessions and children of nodes, concurrently: a child may take long to end.
func closeNodes(nodes map[string]*node) error {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range slices.Collect(maps.Values(nodes)) {
		if n.close != nil {
			all.Go(func() { errs[i] = n.close() })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}
