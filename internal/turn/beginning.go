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

// beginning is what a turn begins with.
type beginning struct {
	agent   *Agent
	id      tga.ID
	session string // "" = new
	span    SpanContext
	source  message.Source

	input  []byte
	format string
	given  []message.Message

	previous *turn // of the chain, nil for its first
	chain    int
	parent   *Parent
	context  json.RawMessage
	until    tga.Millis // deadline of who handed over; 0 = none
	lender   *turn      // whose state it works on
	tidies   bool       // see turn

	root      tga.ID             // zero: this turn's own id
	depthLeft int                // with root: what is left to whom work is handed
	counted   []chain.Attachment // of the delegation, committed with the turn's beginning
}

// record is what INIT says of the turn, but for its number in the session and what the session
// has used before: who has the session's lease knows that.
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

// differs names what a turn that has begun was not begun with; "" where it was begun with just
// this. A turn that follows another, or was handed its work, was begun by no message.
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

// identify says whose turn it is, as far as the agent's manifest lets that be known.
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

// place says where the turn is in its chain and among delegations. What the chain's first turn
// decided holds for those that follow it.
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

// scope says which state the turn works on: its agent's, or what it was lent.
func (b *beginning) scope(init *initBody) {
	if l := b.lender; l != nil {
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

// limit says when the turn's time ends, and that of all that is done for its message.
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

// earlier returns the earlier of two ends; 0 is none.
func earlier(a, b tga.Millis) tga.Millis {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
