package interleave

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

const opAppend = "appends"

// gated is the store with gates. An actor waits at a gate before each step that others can
// see, or whose order with the steps of others matters. An actor that holds the lease of a
// trace reads it without a gate, because nobody else can change it.
type gated struct {
	runtime.Store
	w       *world
	holders map[chain.Lease]*life
}

// Shared implements [runtime.Store].
func (g *gated) Shared() bool { return g.w.Daemons > 1 }

// meets reports whether several actors may want the lease of an id. An id that is not on disk is a new trace's, which
// nobody else can want, or that of a stream: daemons that share a store lock streams by their leases.
func (g *gated) meets(id tga.ID) bool {
	none := idOf(0, 0)
	return g.w.disk.Has(id) || g.Shared() && !bytes.Equal(id[:9], none[:9])
}

func (g *gated) Acquire(ctx context.Context, id tga.ID) (chain.Lease, error) {
	l := lifeOf(ctx)
	if g.meets(id) {
		l.do("acquires " + short(id))
	}
	lease, err := g.Store.Acquire(ctx, id)
	l.woken(ctx)
	if err == nil {
		l.leases[id], g.holders[lease] = true, l
	}
	l.learn("acquire", uint64(lease.Epoch), code(err))
	return lease, err
}

// Overtake has no gate of its own, because the actor has read the record just before. An overtaken
// actor no longer holds the lease, so it needs gates for its reads again.
func (g *gated) Overtake(ctx context.Context, id tga.ID, lentOnly bool) (chain.Lease, error) {
	l := lifeOf(ctx)
	lease, err := g.Store.Overtake(ctx, id, lentOnly)
	l.woken(ctx)
	if err == nil {
		for _, a := range g.w.actors {
			delete(a.now.leases, id)
		}
		l.leases[id], g.holders[lease] = true, l
	}
	l.learn("overtake", uint64(lease.Epoch), code(err))
	return lease, err
}

// woken is called after a call that may have waited. The actor that woke this one is still
// running, so this one waits at a gate.
func (l *life) woken(ctx context.Context) {
	if _, waits := ctx.Deadline(); waits {
		l.do(arrives)
	}
}

func (g *gated) Release(lease chain.Lease) {
	// A killed actor releases its leases while another one is already running.
	l := g.holders[lease]
	if l == nil || l.dying {
		return
	}
	if g.meets(lease.TraceID) {
		l.do("releases " + short(lease.TraceID))
	}
	delete(g.holders, lease)
	delete(l.leases, lease.TraceID)
	g.Store.Release(lease)
}

// Current has no gate: the send has one, and whoever is overtaken between this check and the
// send is not stopped by anything.
func (g *gated) Current(lease chain.Lease) bool {
	l, is := g.w.running, g.Store.Current(lease)
	if l.fit = (chain.Lease{}); is {
		l.fit = lease
	}
	l.learn("current", flag(is))
	return is
}

func (g *gated) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	l := lifeOf(ctx)
	l.do(opAppend)
	g.w.lists(b)
	done, err := g.Store.Append(ctx, lease, b)
	if err == nil {
		l.keeps()
		g.w.unique(b.Artifacts)
		g.w.counts(l, lease.TraceID, b)
		for _, a := range b.Artifacts {
			if a.Artifact.Type == tga.EffectType {
				g.w.relies(l, lease.TraceID, a.Artifact)
			}
		}
	}
	if n := len(b.Artifacts); err == nil && n > 0 && b.Artifacts[n-1].Artifact.Type == tga.EffectType {
		g.w.ends(lease.TraceID, b.Artifacts[n-1].Artifact)
		g.w.asModel(l, lease.TraceID, b.Artifacts[n-1].Artifact)
	}
	if l.last {
		l.do("dies")
	}
	l.learn("append", digest(done.Head.Digest), code(err))
	return done, err
}

func (g *gated) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	l := lifeOf(ctx)
	if !l.leases[id] {
		l.do("loads " + short(id))
	}
	t, err := g.Store.Load(ctx, id)
	if err == nil {
		l.learn("load", digest(t.Head.Digest), digest(t.NoteHead.Digest))
	} else {
		l.learn("no load", code(err))
	}
	return t, err
}

func (g *gated) Record(ctx context.Context, key ledger.Key) (*ledger.Record, error) {
	l := lifeOf(ctx)
	l.do("reads the record of " + key.Key)
	r, err := g.Store.Record(ctx, key)
	if r == nil {
		l.learn("no record", code(err))
		return nil, err
	}
	b, err := r.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	l.learn("record", maphash.Bytes(seed, b))
	return r, nil
}

// Attachment waits only at the gate arrives: a reader of a row that others write holds its lock or
// its lease. But the reader may have been woken for that, while the other actor is still running.
// Another daemon has no such lock of a begin id.
func (g *gated) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error) {
	l, asked := ctx.Value(lifeKey{}).(*life)
	switch {
	case asked && kind == chain.AttachBeginID && g.Shared():
		l.do("reads its begin")
	case asked:
		l.do(arrives)
	}
	value, err := g.Store.Attachment(ctx, kind, key)
	if asked {
		l.learn("attachment", maphash.Bytes(seed, value), code(err))
	}
	return value, err
}

func (g *gated) Await(ctx context.Context, key ledger.Key, seen ledger.Record) error {
	l := lifeOf(ctx)
	l.do("waits for " + key.Key)
	l.learn("waiting")
	err := g.Store.Await(ctx, key, seen)
	l.do(arrives)
	l.learn("waited", code(err))
	return err
}

func (g *gated) Holder(id tga.ID) ledger.Liveness {
	l := g.w.running
	l.do("asks who holds " + short(id))
	is := g.Store.Holder(id)
	l.learn("holder", uint64(is))
	return is
}

func (g *gated) OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error] {
	l := lifeOf(ctx)
	l.do("lists open traces")
	return func(yield func(chain.OpenTrace, error) bool) {
		for o, err := range g.Store.OpenTraces(ctx) {
			l.learn("open", binary.BigEndian.Uint64(o.TraceID[8:]), uint64(o.State), code(err))
			if !yield(o, err) {
				return
			}
		}
	}
}

func short(id tga.ID) string { return fmt.Sprintf("t%x.%d", id[14], id[15]) }

// message is one send on its way to the tool server.
type message struct {
	runtime.Call
	from    string
	flying  bool // it may still arrive
	acted   bool // the server received it
	answer  string
	waiting bool // somebody waits for its answer
	by      *life
	permit  bool // its sender has a permit, and outlives the process that gave it
	own     bool // its sender keeps the log of the call itself, and nobody permits it
	sent    time.Time
	result  chan error
}

// network is the network between the process and the tool server, and the server itself. It is
// the world outside: a crash of the process does not undo what happened there.
type network struct {
	w        *world
	messages []*message
	effects  map[string]int    // by key: how often something happened
	args     map[string]string // of the first effect
	first    map[string]time.Time
}

var errReset = errors.New("the connection was reset")

// Dispatch implements [runtime.Dispatcher].
func (n *network) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	l := lifeOf(ctx)
	l.do(fmt.Sprintf("sends %s, attempt %d", short(call.TraceID), call.Attempt))
	if err := ctx.Err(); err != nil {
		return runtime.Reply{}, fmt.Errorf("%w: %w", runtime.ErrNotSent, err) // it was too slow to connect
	}
	n.w.sending(call, l.fit.TraceID == call.TraceID)
	return n.wait(ctx, l, n.send(call, l.script.name))
}

// send puts a message on the network.
func (n *network) send(call runtime.Call, from string) *message {
	m := &message{Call: call, from: from, flying: true, sent: time.Now(), result: make(chan error, 1)}
	n.messages = append(n.messages, m)
	return m
}

// wait waits for the answer of a message, or for an error of the transport.
func (n *network) wait(ctx context.Context, l *life, m *message) (runtime.Reply, error) {
	m.waiting, m.by, l.calls = true, l, true
	l.learn("sent", uint64(m.Attempt))
	var err error
	select {
	case err = <-m.result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.do(arrives)
	m.waiting, l.calls = false, false
	l.learn("answer "+m.answer, flag(err != nil))
	if err != nil {
		return runtime.Reply{}, err
	}
	reply := runtime.Reply{Status: tga.StatusSuccess, Result: []byte(m.answer)}
	if n.w.Losses > 0 {
		reply.Changes = []tga.StateChange{thing}
	}
	return reply, nil
}

// atWork reports whether the sender waits for the answer, or has it and has not reported it yet. A
// sender whose permit is stale does not count.
func (m *message) atWork() bool {
	if m.by == nil || time.Since(m.sent) >= runtime.DefaultSendTimeout {
		return false
	}
	of := m.by.memory
	return m.waiting || m.permit && (of["message"] == m.name() || of["outcome"] != "" && of["trace"] == m.TraceID.String())
}

func (m *message) name() string { return fmt.Sprint(m.from, short(m.TraceID), m.Attempt) }

// byName finds a message, nil where there is none.
func (n *network) byName(name string) *message {
	for _, m := range n.messages {
		if m.name() == name {
			return m
		}
	}
	return nil
}

// look returns what became of the sends of a trace.
func (n *network) look(trace tga.ID) (ran bool, answer string, flying bool) {
	for _, m := range n.messages {
		if m.TraceID == trace {
			ran, flying = ran || m.acted, flying || m.flying
			if m.acted {
				answer = m.answer
			}
		}
	}
	return ran, answer, flying
}

// Probe implements [runtime.Prober]: the tool says what it has done. It does not fence: a
// message that is still on its way may be executed later.
func (n *network) Probe(ctx context.Context, call runtime.Call) (runtime.Probed, error) {
	l := lifeOf(ctx)
	l.do("asks the tool about " + short(call.TraceID))
	ran, answer, _ := n.look(call.TraceID)
	l.learn("asked", flag(ran))
	if !ran {
		return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
	}
	return runtime.Probed{Answer: ledger.ProbeRan, Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(answer)}}, nil
}

// moves lists what the network and the server may do next; busy says that an actor can do
// something.
func (n *network) moves(busy bool) (list []move) {
	for _, m := range n.messages {
		if busy && n.unseen(m) {
			continue
		}
		name := func() string { return fmt.Sprintf("of %s, attempt %d", short(m.TraceID), m.Attempt) }
		if m.flying {
			list = append(list, move{func() string { return "the tool receives the call " + name() }, func() { n.receive(m) }, single, nil})
			if !m.waiting {
				list = append(list, move{func() string { return "the network loses the call " + name() }, func() { m.flying = false }, single, nil})
			}
		}
		if !m.waiting || len(m.result) > 0 {
			continue
		}
		if m.acted {
			list = append(list, move{func() string { return "the answer " + name() + " arrives" }, func() { m.result <- nil }, single, m.by})
		}
		if n.w.left.Resets > 0 {
			list = append(list, move{func() string { return "the connection " + name() + " is reset" }, func() { n.w.left.Resets--; m.result <- errReset }, single, m.by})
		}
		if m.flying && n.w.left.Refusals > 0 {
			list = append(list, move{func() string { return "the connection " + name() + " is refused" }, func() {
				n.w.left.Refusals--
				m.flying = false
				m.result <- fmt.Errorf("%w: connection refused", runtime.ErrNotSent)
			}, single, m.by})
		}
	}
	return list
}

func (n *network) busy() bool {
	for _, m := range n.messages {
		if m.flying {
			return true
		}
	}
	return false
}

// age drops messages that have been on their way for too long. A licence with a window assumes
// such a bound (docs/SEMANTICS.md). Under other licences a message may arrive at any time.
func (n *network) age() {
	for _, m := range n.messages {
		age := time.Since(m.sent)
		switch n.w.Policy.Licence.Kind {
		case ledger.DedupeKey:
			m.flying = m.flying && age <= runtime.DefaultSendTimeout+margin
		case ledger.Probe:
			m.flying = m.flying && age <= n.w.Policy.Licence.MaxInFlight
		}
	}
}

// crash ends the connections of the process. Messages on their way may still arrive.
func (n *network) crash() {
	for _, m := range n.messages {
		// An executor that lives on hears of its send in its next life.
		was := m.result
		m.waiting, m.result = false, make(chan error, 1)
		if len(was) > 0 {
			m.result <- <-was
		}
	}
}

// receive is the tool server. It behaves as its licence attests, and remembers what it did.
func (n *network) receive(m *message) {
	m.flying, m.acted = false, true
	if n.effects == nil {
		n.effects, n.args, n.first = map[string]int{}, map[string]string{}, map[string]time.Time{}
	}
	again := n.effects[m.Key] > 0
	if again && n.args[m.Key] != string(m.Args) {
		n.w.broken("key %s has effects of two requests, %s and %s", m.Key, n.args[m.Key], m.Args)
	}
	n.args[m.Key] = string(m.Args)
	// The tool's clock is its own: it neither stands still nor jumps.
	forgot := again && time.Since(n.first[m.Key]) >= window
	if !again {
		n.first[m.Key] = time.Now()
	}
	switch kind := n.w.Policy.Licence.Kind; {
	case kind == ledger.ReadOnly, kind == ledger.DedupeArgs, kind == ledger.DedupeKey && !forgot:
		n.effects[m.Key] = 1 // once, or as good as once
	default:
		n.effects[m.Key]++
	}
	if n.effects[m.Key] > 1 {
		n.w.broken("key %s has %d effects", m.Key, n.effects[m.Key])
	}
	m.answer = fmt.Sprintf(`{"done":%q,"times":%d}`, m.Key, n.effects[m.Key])
	n.w.happened()
}
