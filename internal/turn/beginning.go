package turn

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// beginning holds the inputs of a turn that begins.
type beginning struct {
	agent   *Agent
	id      tga.ID
	session string // "" = new
	span    SpanContext
	source  message.Source

	input  []byte
	format string
	given  []message.Message

	previous *turn // turn of the chain; nil for the chain's first turn
	chain    int
	parent   *Parent
	context  json.RawMessage
	until    tga.Millis // deadline of the turn's invocation; 0 = none
	lender   *turn      // the turn whose state it works on; nil = its own state
	tidies   bool       // see [turn]

	root      tga.ID             // invocation of the person's message; zero: this turn's own id
	depthLeft int                // with root: how deep this turn may still delegate
	counted   []chain.Attachment // count of the delegation, committed with the turn's first records
}

// record returns the INIT body of the turn. It does not set the turn's number in the session and
// the tokens that the session has used before: only the holder of the session's lease knows them.
func (b *beginning) record(o *Options, pod string, started time.Time) initBody {
	a := b.agent
	init := initBody{
		AgentID: cmp.Or(a.ID, a.Name), AgentName: a.Name, AgentVersion: cmp.Or(a.Version, "0.0.0"),
		InvocationID: b.id, Chain: b.chain, SessionID: b.session, InstanceID: o.Instance,
		StartedAt: tga.MillisOf(started), InvocationStarted: tga.MillisOf(started), SpanContext: b.span, Parent: b.parent,
		Source: cmp.Or(b.source, message.FromUser),
		Input:  b.input, Format: b.format, Given: b.given, Context: b.context,
	}
	b.identify(&init, o, pod)
	b.place(&init, o.MaxDepth)
	b.scope(&init)
	b.limit(&init, started)
	return init
}

// differs compares this beginning with the turn that has begun under the same id. It returns a
// JSON Pointer to the first difference, "" if there is none. A turn that follows another turn, or
// that was begun by a delegation, differs in its message.
func (b *beginning) differs(was *initBody, secret [32]byte) string {
	same := bytes.Equal(was.Input, b.input)
	if !was.Received.IsZero() {
		same = was.Received == keyedDigest(secret, b.input)
	}
	switch {
	case was.AgentName != b.agent.Name:
		return "/agent"
	case b.session != "" && b.session != was.SessionID && !b.agent.Identity.NewSession:
		return "/session_id"
	case was.Chain != b.chain || was.Parent != nil || !same || was.Source != cmp.Or(b.source, message.FromUser):
		return "/message"
	case was.Format != b.format:
		return "/format"
	}
	return ""
}

// identify sets the trace context, the session and the instance of the turn, as far as the
// agent's manifest permits to pass them on.
func (b *beginning) identify(init *initBody, o *Options, pod string) {
	by := b.agent.Identity
	if by.NoTraceContext {
		init.SpanContext.Traceparent, init.SpanContext.Tracestate = "", ""
	}
	if by.NoBaggage {
		init.SpanContext.Baggage = ""
	}
	if init.SessionID == "" || by.NewSession && b.previous == nil {
		init.SessionID = o.Runtime.NewID().String()
	}
	switch by.Scope {
	case PerPod:
		init.InstanceID = pod
	case PerRequest:
		init.InstanceID = o.Runtime.NewID().String()
	}
}

// place sets the turn's place in its chain and among delegations. A turn that follows inherits
// what the chain's first turn decided.
func (b *beginning) place(init *initBody, depth int) {
	if p := b.previous; p != nil {
		id, head := p.id(), p.j.head
		init.Previous, init.PreviousHead = &id, &head
		init.Root, init.DepthLeft = p.init.Root, p.init.DepthLeft
		init.InvocationID, init.InvocationStarted, init.InstanceID = p.init.InvocationID, p.init.InvocationStarted, p.init.InstanceID
		init.Parent, init.Context = p.init.Parent, p.init.Context
		init.CallsBefore = p.init.CallsBefore + len(p.inferred.Answer.Said.ToolCalls)
		return
	}
	init.Root, init.DepthLeft = b.root, b.depthLeft
	if b.root.IsZero() {
		init.Root, init.DepthLeft = b.id, depth
	}
	if most := b.agent.Constraints.MaxDepth; most > 0 {
		init.DepthLeft = min(init.DepthLeft, most)
	}
}

// scope sets the state that the turn works on: that of its agent, or the state that it was lent.
func (b *beginning) scope(init *initBody) {
	l := b.lender
	if p := b.previous; l == nil && p != nil && p.init.Lent {
		l = p // it follows a turn on lent state, and the lender is not at hand
	}
	if l != nil {
		init.Mode, init.Isolation, init.ScopeID, init.Lent = l.init.Mode, l.init.Isolation, l.init.ScopeID, true
		return
	}
	a := b.agent
	init.Mode = cmp.Or(a.State.Mode, state.Session)
	init.Isolation = cmp.Or(a.State.Isolation, state.Serializable)
	switch init.Mode {
	case state.Session:
		init.ScopeID = a.Name + "\x00" + init.SessionID
	case state.Persistent:
		init.ScopeID = a.Name
	default:
		init.ScopeID = b.id.String()
	}
}

// limit sets the turn's deadline, and the deadline of all the work for its message.
func (b *beginning) limit(init *initBody, started time.Time) {
	c := b.agent.Constraints
	init.Until = b.until
	if c.MaxExecution > 0 && b.previous == nil {
		init.Until = earlier(init.Until, tga.MillisOf(started.Add(c.MaxExecution)))
	}
	if c.Timeout > 0 {
		init.Deadline = tga.MillisOf(started.Add(c.Timeout))
	}
	init.Deadline = earlier(init.Deadline, init.Until)
}

// earlier returns the earlier of two deadlines; 0 means none.
func earlier(a, b tga.Millis) tga.Millis {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
