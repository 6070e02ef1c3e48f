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

// node is one tool server that this process reaches: its sessions, its child process, its breaker
// and its places. It outlives the [Tools] that it was made for, where those that follow describe it
// in the same words.
type node struct {
	made  madeOf
	stack runtime.Dispatcher
	mcp   *listed             // nil where it speaks another protocol
	grpc  optional.GRPCServer // likewise
	close func() error

	breakers tripped

	// under counts the calls and questions under way. They are added while the node is in use and
	// under the lock of its [current]: once another has taken its place it only falls.
	under sync.WaitGroup
}

// tripped knows in which namespaces the breaker of a server is not closed.
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

// madeOf is all that a node is made of: files beside the configuration are what they held.
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
	m.server.Trusted = false // asked for by name
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

// current is which [Tools] hold. Whoever uses one of their nodes enters it, so that a node which
// another takes the place of is closed after its last use.
type current struct {
	mu  sync.RWMutex
	now *Tools
}

func (c *current) tools() *Tools {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.now
}

// enter returns a tool server, nil where there is none of that name. leave is called when its use
// is over.
func (c *current) enter(server string) (n *node, leave func()) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n = c.now.nodes[server]; n == nil {
		return nil, func() {}
	}
	n.under.Add(1)
	return n, n.under.Done
}

// like returns the node in use that is made of the same, nil where there is none.
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

// question reaches an MCP server for what is asked beside calls: the one that has the name now.
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

// take makes other Tools those that hold, and returns the nodes that are out of use now.
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

// inherit takes over what servers have suggested, of those that the file still believes.
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

// closeNodes ends the sessions and children of nodes, at once: one that does not heed it is waited for.
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
