package workstate

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Policy says what a rollback does to a slice.
type Policy uint8

// The policies. The zero Policy is the safe one.
const (
	PolicyState Policy = iota // rolled back
	PolicyLog                 // append-only, kept by a rollback
	PolicyCache               // rolled back with a failed call, emptied by a restore
)

var policyNames = [...]string{PolicyState: "state", PolicyLog: "log", PolicyCache: "cache"}

// String returns the policy's name in snapshots.
func (p Policy) String() string { return policyNames[p] }

func parsePolicy(name string) (Policy, error) {
	if i := slices.Index(policyNames[:], name); i >= 0 {
		return Policy(i), nil
	}
	return 0, tga.Errorf(tga.ValidationError, "slice policy %q: not one of %s", name, strings.Join(policyNames[:], ", "))
}

// Session is a set of typed slices, see [Slice]. A Session is a root, or a branch of
// another Session: changes in a branch are not visible outside until it is merged. Its
// methods may be called from any number of goroutines.
type Session struct {
	schema *schema
	parent *Session

	mu      sync.Mutex
	base    slicesOf // of a branch: the parent's when it began
	now     slicesOf
	looked  map[string]bool     // STATE slices read
	written map[string]bool     // STATE and CACHE slices written
	logged  map[string][][]byte // appended to LOG slices
}

// slicesOf is the content of a session. It is replaced, never changed.
type slicesOf map[string]*list

func (s slicesOf) list(name string) *list {
	if l := s[name]; l != nil {
		return l
	}
	return emptyList
}

func (s slicesOf) with(name string, l *list) slicesOf {
	s = maps.Clone(s)
	s[name] = l
	return s
}

// schema is what is known of a session's slices; branches share it.
type schema struct {
	mu       sync.Mutex
	slices   map[string]Policy
	reducers map[reflect.Type][]reducer
	clock    func() time.Time
}

// reducer makes a slice's next items of an event.
type reducer func(s *Session, event any) error

// NewSession makes a session that knows the LOG slices of calls and prompts.
func NewSession() *Session {
	s := &Session{
		schema: &schema{slices: map[string]Policy{}, reducers: map[reflect.Type][]reducer{}, clock: time.Now},
		now:    slicesOf{},
	}
	for _, t := range []reflect.Type{reflect.TypeFor[ToolInvoked](), reflect.TypeFor[PromptRendered](), reflect.TypeFor[PromptExecuted]()} {
		s.schema.slices[nameOf(t)] = PolicyLog
	}
	return s
}

// ToolInvoked is the built-in record of a finished call, kept in a LOG slice.
type ToolInvoked struct {
	TraceID    string     `json:"trace_id"`
	ToolCallID string     `json:"tool_call_id"`
	Server     string     `json:"server"`
	Tool       string     `json:"tool"`
	Success    bool       `json:"success"`
	Code       string     `json:"code,omitempty"` // why it failed
	At         tga.Millis `json:"at"`
}

// PromptRendered and PromptExecuted are records of a harness, kept in LOG slices.
type PromptRendered struct {
	Prompt string     `json:"prompt"`
	Digest tga.Digest `json:"digest"` // of the rendered text
	At     tga.Millis `json:"at"`
}

// PromptExecuted says that a rendered prompt was answered.
type PromptExecuted struct {
	Prompt string     `json:"prompt"`
	Digest tga.Digest `json:"digest"` // of the answer
	At     tga.Millis `json:"at"`
}

// policy returns the policy of a slice. A slice that nobody registered is STATE.
func (c *schema) policy(name string) Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.slices[name]; !ok {
		c.slices[name] = PolicyState
	}
	return c.slices[name]
}

func (c *schema) known(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.slices[name]
	return ok
}

func (c *schema) register(name string, p Policy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.slices[name]; ok && was != p {
		return tga.Errorf(tga.ValidationError, "slice %s is registered as %s, not %s", name, was, p)
	}
	c.slices[name] = p
	return nil
}

func (c *schema) policies() map[string]Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.slices)
}

// Dispatch hands an event to the reducers of its type, in the order of their
// registration. The first error ends it; what earlier reducers did then stays.
func (s *Session) Dispatch(event any) error {
	s.schema.mu.Lock()
	reducers := slices.Clone(s.schema.reducers[reflect.TypeOf(event)])
	s.schema.mu.Unlock()
	if len(reducers) == 0 {
		return tga.Errorf(tga.NotFound, "no reducer is registered for events of type %T", event)
	}
	for _, r := range reducers {
		if err := r(s, event); err != nil {
			return err
		}
	}
	return nil
}

// read returns the content of a slice.
func (s *Session) read(name string) *list {
	p := s.schema.policy(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parent != nil && p == PolicyState {
		s.looked[name] = true
	}
	return s.now.list(name)
}

// append adds items to a slice.
func (s *Session) append(name string, items [][]byte) {
	p := s.schema.policy(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.with(name, s.now.list(name).append(items))
	if s.parent == nil {
		return
	}
	if p == PolicyLog {
		s.logged[name] = append(s.logged[name], items...)
		return
	}
	s.written[name] = true
}

// replace makes items the whole content of a slice.
func (s *Session) replace(name string, items [][]byte) error {
	p := s.schema.policy(name)
	if p == PolicyLog {
		return tga.Errorf(tga.ValidationError, "slice %s is a log: it is only appended to", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.with(name, listOf(items))
	if s.parent != nil {
		s.written[name] = true
	}
	return nil
}

// branch begins a branch of s.
func (s *Session) branch() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Session{
		schema: s.schema, parent: s, base: s.now, now: s.now,
		looked: map[string]bool{}, written: map[string]bool{}, logged: map[string][][]byte{},
	}
}

// check refuses the branch if another branch has changed a slice in the parent that this
// one has read or written. CACHE slices are left out, because they can be made again. LOG slices are
// left out too: every call appends to one, and an append depends on nothing.
func (s *Session) check(ignoreReads bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parent.mu.Lock()
	defer s.parent.mu.Unlock()
	touched := map[string]bool{}
	for name := range s.written {
		touched[name] = s.schema.policy(name) == PolicyState
	}
	if !ignoreReads {
		maps.Copy(touched, s.looked)
	}
	var out []string
	for name, counts := range touched {
		if counts && !s.parent.now.list(name).same(s.base.list(name)) {
			out = append(out, "slice "+name)
		}
	}
	return Conflict(out...)
}

// merge moves the branch's changes into the parent: all of them, or only those to LOG
// slices. Its reads count as the parent's in any case, because what it answers follows from
// them, also if it failed. The caller has checked for conflicts and prevents new ones until merge returns.
func (s *Session) merge(logsOnly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parent.mu.Lock()
	defer s.parent.mu.Unlock()
	p := s.parent
	next := maps.Clone(p.now)
	if !logsOnly {
		for name := range s.written {
			next[name] = s.now.list(name)
		}
	}
	for name, items := range s.logged {
		if p.now[name] == s.base[name] {
			next[name] = s.now[name]
		} else {
			next[name] = next.list(name).append(items)
		}
	}
	p.now = next
	if p.parent == nil {
		return
	}
	for name, items := range s.logged {
		p.logged[name] = append(p.logged[name], items...)
	}
	maps.Copy(p.looked, s.looked)
	if !logsOnly {
		maps.Copy(p.written, s.written)
	}
}

// content returns the session's whole content; set puts such a content back.
func (s *Session) content() slicesOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *Session) set(c slicesOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parent != nil {
		for name, l := range c {
			if !s.now.list(name).same(l) {
				s.written[name] = true
			}
		}
		for name, l := range s.now {
			if c[name] == nil && l.count > 0 {
				s.written[name] = true
			}
		}
	}
	s.now = c
}

// sliceHeader is a slice in the data of a session's node; its list is the kid of the
// same position.
type sliceHeader struct {
	Type   string `json:"type"`
	Policy string `json:"policy"`
}

// node returns the whole session as a node. Empty slices are left out.
func (s *Session) node() *Node {
	policies := s.schema.policies()
	s.mu.Lock()
	defer s.mu.Unlock()
	headers, kids := []sliceHeader{}, []*Node{}
	for _, name := range slices.Sorted(maps.Keys(s.now)) {
		if l := s.now[name]; l.count > 0 {
			headers = append(headers, sliceHeader{name, policies[name].String()})
			kids = append(kids, l.node())
		}
	}
	data, err := json.Marshal(headers)
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return NewNode(data, kids...)
}

// sessionFrom reads the content and the policies of a session's node.
func sessionFrom(n *Node) (slicesOf, map[string]Policy, error) {
	var headers []sliceHeader
	if err := strict(n.data, &headers); err != nil || len(headers) != len(n.kids) {
		return nil, nil, tga.Errorf(tga.StateChecksumMismatch, "node %s is no session", n.digest)
	}
	content, policies := slicesOf{}, map[string]Policy{}
	for i, h := range headers {
		l, err := listFrom(n.kids[i])
		if err != nil {
			return nil, nil, err
		}
		if policies[h.Type], err = parsePolicy(h.Policy); err != nil {
			return nil, nil, err
		}
		content[h.Type] = l
	}
	return content, policies, nil
}
