package interleave

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	goruntime "runtime"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/tgad/tgad/internal/memstore"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// bounds say how often each kind of fault may happen in a schedule, and of how many daemons.
type bounds struct {
	Daemons  int // of one shared store; 0 is one that nobody shares
	Crashes  int // of the process that has the store
	Resets   int // sends whose answer is lost; what was sent may still arrive
	Refusals int // sends that fail before any byte left, as the transport says
	Ticks    int // times that the virtual clock passes every time-out
	Steps    int // steps of the wall clock, forward and back
	Deaths   int // of the processes of shims
	Rules    int // starts with the operator's next rules
	Changes  int // of the tool's definition
	Losses   int // of what the tool has changed
}

func (b bounds) String() string {
	var s []string
	for _, x := range []struct {
		n         int
		one, more string
	}{
		{b.Daemons, "daemon", "daemons"}, {b.Crashes, "crash", "crashes"}, {b.Resets, "reset", "resets"}, {b.Refusals, "refusal", "refusals"},
		{b.Ticks, "tick", "ticks"}, {b.Steps, "clock step", "clock steps"}, {b.Deaths, "death", "deaths"},
		{b.Rules, "new rule", "new rules"}, {b.Changes, "new definition", "new definitions"}, {b.Losses, "loss", "losses"},
	} {
		switch {
		case x.n == 1:
			s = append(s, "1 "+x.one)
		case x.n > 1:
			s = append(s, fmt.Sprint(x.n, " ", x.more))
		}
	}
	return strings.Join(s, ", ")
}

// scenario is a set of actors, and the bounds for them.
type scenario struct {
	Name   string
	Policy runtime.Policy
	Actors []script
	// Rules are the operator's rules, one for each start of the process. Without rules
	// everything is allowed and nobody is asked.
	Rules []rule
	bounds
}

// script is what an actor does. After a crash of the process that serves the actor, run is
// called again. The actor's memory survives that crash.
type script struct {
	name   string
	run    func(a *life)
	looks  bool // it sees what has become of a message
	relies bool // it relies on what is recorded as if it had just happened
	begins bool // it begins one call under one name, however often it asks
	model  bool // what it settles, a model has decided
}

// move is one thing that can happen next.
type move struct {
	name func() string
	do   func()
	kind kind
	// who is the one actor that may run because of the move; nil if none does.
	who *life
}

// kind says what is known about a move before it is made.
type kind byte

const (
	// others is a move about which nothing is known: time passes.
	others kind = iota
	// single is a move after which at most one actor runs, and others only if that actor
	// wakes them.
	single
	// crash is the end of the process: only what outlives it matters.
	crash
	// crashAppended is a crash just after an append of one actor became durable.
	crashAppended
)

// world is one execution: the disk, the process, the tool server, and the actors.
type world struct {
	scenario
	start time.Time // of the bubble's clock
	wall  time.Duration
	disk  *memstore.Disk
	store *memstore.Store
	gate  *gated             // the store as those meet it who append to it themselves
	rts   []*runtime.Runtime // of each daemon
	left  bounds
	life  int // of the process, from 1

	ctx     context.Context
	cancel  context.CancelFunc
	actors  []*actor
	running *life // who passed a gate last
	net     network

	ruleAt     int // which of the rules
	definition int // of the tool: how often it was changed
	lost       int // which of [finds] a look finds
	votes      votes

	sent      map[string]bool
	abandoned map[tga.ID]bool
	answers   []answer
	looked    map[tga.ID]int           // sends that were made when a person looked who then said what it saw
	ended     map[tga.ID]int           // sends that were made when the effect was appended
	alive     map[string]bool          // the processes of shims
	meant     map[string]int           // by arguments: how often a client of a shim means the call
	shown     map[tga.ID]string        // the answer of which trace was shown, and for which call
	given     map[tga.ID]bool          // a shim said of these that they were delivered
	isNoted   map[tga.ID]string        // the daemon answered that without an error: for which call
	minted    map[tga.ID]*tga.Artifact // what was appended
	whole     bool                     // nothing is reduced
	bad       string
	talk      bool     // say each move
	said      []string // what was said
}

// epoch is where the wall clock of each execution starts.
var epoch = time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)

func newWorld(s scenario, whole bool) *world {
	w := &world{scenario: s, start: time.Now(), disk: new(memstore.Disk), left: s.bounds, sent: map[string]bool{}, abandoned: map[tga.ID]bool{}}
	w.looked, w.ended = map[tga.ID]int{}, map[tga.ID]int{}
	w.alive, w.meant, w.shown = map[string]bool{}, map[string]int{}, map[tga.ID]string{}
	w.given, w.isNoted = map[tga.ID]bool{}, map[tga.ID]string{}
	w.minted = map[tga.ID]*tga.Artifact{}
	w.votes = newVotes()
	w.whole = whole
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.net.w = w
	w.boot()
	for i, sc := range s.Actors {
		a := &actor{w: w, id: i + 1, script: sc, memory: map[string]string{}}
		w.actors = append(w.actors, a)
		a.spawn()
	}
	return w
}

// clock is the wall clock. It has no monotonic reading; the bubble has the monotonic time.
func (w *world) clock() time.Time { return epoch.Add(time.Since(w.start) + w.wall) }

// boot starts the process that has the store, or the processes that share it. These crash together: what one of them knows of the
// others is in the store.
func (w *world) boot() {
	w.life++
	w.store = memstore.Open(w.disk, w.clock)
	w.gate = &gated{Store: w.store, w: w, holders: map[chain.Lease]*life{}}
	trust := runtime.Trust{Prober: func(string, string) runtime.Prober { return &w.net }}
	if w.Changes > 0 {
		trust.Schema = w.defined
	}
	if w.Losses > 0 {
		trust.Verifier = func(string) runtime.Verifier { return w }
	}
	w.rts = nil
	for range max(w.Daemons, 1) {
		w.rts = append(w.rts, w.daemon(trust))
	}
}

// daemon makes the runtime of a daemon.
func (w *world) daemon(trust runtime.Trust) *runtime.Runtime {
	rt, err := runtime.New(w.gate, &w.net, ruled{w.rule()}, runtime.Options{
		Policy:  func(string, string) runtime.Policy { return w.Policy },
		AgentID: idOf(0xff, 0),
		Clock:   w.clock,
		// The time that really passes, without steps of the wall clock.
		Monotonic: func() time.Duration { return time.Since(w.start) },
		NewID:     func() tga.ID { return w.running.newID() },
		Rand:      random{w},
		Lock:      w.lock,
		Trust:     trust,
	})
	if err != nil {
		panic(err)
	}
	return rt
}

// crash ends the process. What was not appended is lost, and the calls that the process was
// serving end. Clients and executors live on.
func (w *world) crash() {
	w.left.Crashes--
	w.restart()
}

// crashInto is a crash after which the process starts with the operator's next rules.
func (w *world) crashInto() {
	w.left.Rules--
	w.ruleAt++
	w.restart()
}

func (w *world) restart() {
	w.net.crash()
	for _, a := range w.actors {
		close(a.now.gate)
	}
	w.boot()
	w.actors = slices.DeleteFunc(w.actors, func(a *actor) bool { return a.process })
	for _, a := range w.actors {
		if a.over {
			a.now = &life{actor: a, gate: make(chan bool)} // nobody
		} else {
			a.spawn()
		}
	}
	// Like a daemon at its start, continue each open trace from its state.
	r := &actor{w: w, id: 0x80 + w.life, script: script{name: "recovery", run: recovery}, memory: map[string]string{}, process: true}
	w.actors = append(w.actors, r)
	r.spawn()
}

// end ends the execution and everybody in it.
func (w *world) end() {
	w.cancel()
	for _, a := range w.actors {
		close(a.now.gate)
	}
	w.store = memstore.Open(w.disk, w.clock) // ends the old store, in which somebody may still wait
}

// moves lists what can happen next, in an order that depends on the state alone.
func (w *world) moves() (list []move) {
	for _, a := range w.actors {
		if l := a.now; l.at != "" {
			list = append(list, move{func() string { return a.script.name + ": " + l.at }, func() { l.gate <- true }, single, l})
		}
	}
	for _, a := range w.actors {
		if l := a.now; l.mayDie != nil && w.left.Deaths > 0 && (l.at != "" || l.waits != "") {
			list = append(list, move{text("the process of " + a.script.name + " dies"), l.mayDie, single, l})
		}
	}
	list = append(list, w.net.moves(len(list) > 0)...)
	if w.left.Ticks > 0 && w.blocked() {
		list = append(list, move{text("40 s pass"), func() { w.left.Ticks--; time.Sleep(tick); w.net.age() }, others, nil})
	}
	if w.left.Steps > 0 && len(list) > 0 {
		list = append(list,
			move{text("the wall clock steps 2 h forward"), func() { w.left.Steps--; w.wall += 2 * time.Hour }, single, nil},
			move{text("the wall clock steps 2 h back"), func() { w.left.Steps--; w.wall -= 2 * time.Hour }, single, nil})
	}
	if w.left.Losses > 0 && len(list) > 0 && len(w.net.effects) > 0 {
		list = append(list, move{text("what the tool did is lost"), func() { w.left.Losses--; w.lost++ }, single, nil})
	}
	if w.left.Changes > 0 && len(list) > 0 {
		list = append(list, move{text("the tool is defined anew"), func() { w.left.Changes--; w.definition++ }, single, nil})
	}
	if w.blocked() || w.net.busy() {
		if w.left.Crashes > 0 {
			list = append(list, w.crashes("crash", w.crash)...)
		}
		if w.left.Rules > 0 {
			list = append(list, w.crashes("crash, and a start with the rule "+w.Rules[w.ruleAt+1].String(), w.crashInto)...)
		}
	}
	return list
}

// crashes are the ways in which the process can end now.
func (w *world) crashes(name string, crashes func()) []move {
	list := []move{{text(name), crashes, crash, nil}}
	for _, a := range w.actors {
		// An append that was under way may be durable although its caller was never told.
		if l := a.now; l.at == opAppend {
			list = append(list, move{text(name + ", and the append of " + a.script.name + " is durable"), func() {
				l.last = true
				l.gate <- true
				synctest.Wait()
				crashes()
			}, crashAppended, l})
		}
	}
	return list
}

// make makes a move.
func (w *world) make(m move) {
	if w.talk {
		w.said = append(w.said, m.name())
	}
	m.do()
}

func text(s string) func() string { return func() string { return s } }

// broken notes the first property that does not hold.
func (w *world) broken(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// actor is a client of the process, or the process's own recovery.
type actor struct {
	w      *world
	id     int
	script script
	memory map[string]string // of the client or executor: it survives crashes of the process
	// process says that the actor is the process's own and dies with it.
	process bool

	now    *life
	lives  int
	over   bool
	seen   uint64 // hash of what it has learnt in this life
	minted minted
	kept   minted // what of it something may still hold
}

// minted is how many ids and random numbers an actor has made.
type minted struct{ ids, random uint32 }

// life is one goroutine of an actor, from a start of the process to its crash.
type life struct {
	*actor
	at     string    // the gate at which it waits; "" while it waits for somebody else, or has ended
	calls  bool      // it waits for an answer from the network, and for nobody else
	gate   chan bool // closed when the process died
	leases map[tga.ID]bool
	dying  bool // the process that served it is gone
	last   bool // its append is applied, and then the process dies
	ctx    context.Context
	stop   context.CancelFunc
	fit    chain.Lease // the lease that it last found to be current
	mayDie func()      // its process may die here; nil where it may not
	waits  string      // the message whose answer it waits for there
	found  int         // 1 + which of [finds] it found in this call; 0 where it has not looked
}

// rt is the daemon that the actor asks. After a crash it asks another one, if there are several.
func (l *life) rt() *runtime.Runtime { return l.w.rts[(l.id+l.lives)%len(l.w.rts)] }

// lifeKey is the context key for the life whose call the context belongs to.
type lifeKey struct{}

func lifeOf(ctx context.Context) *life { return ctx.Value(lifeKey{}).(*life) }

// spawn starts a life of the actor.
func (a *actor) spawn() {
	a.lives++
	l := &life{actor: a, gate: make(chan bool), leases: map[tga.ID]bool{}}
	a.now, a.seen = l, uint64(a.lives)
	l.ctx, l.stop = context.WithCancel(context.WithValue(a.w.ctx, lifeKey{}, l))
	go func() {
		l.do(arrives)
		defer l.stop()
		a.script.run(l)
		a.over = true
		delete(a.memory, "tries")
	}()
}

// arrives is the gate of an actor that begins or was woken. What it does up to its next gate
// concerns nobody else, so the actor passes at once. But only one actor passes at a time,
// because each makes its own ids and random bytes.
const arrives = "arrives"

// do waits at a gate, before something happens to the store or a tool, until the explorer
// lets the actor pass. If the process dies instead, the goroutine ends.
func (l *life) do(what string) {
	l.at = what
	pass := <-l.gate
	if l.at = ""; !pass {
		l.dying = true
		goruntime.Goexit()
	}
	l.w.running = l
}

// learn adds something to what the actor knows. The time is part of it, because a time-out or
// a window may begin there.
func (a *actor) learn(what string, more ...uint64) {
	h := maphash.String(seed, what) ^ a.seen*0x9e3779b97f4a7c15
	h = mix(h, uint64(time.Since(a.w.start)), uint64(a.w.wall))
	a.seen = mix(h, more...)
}

// code returns a number for the code of an error.
func code(err error) uint64 { return maphash.String(seed, string(tga.CodeOf(err))) }

// digest returns the first bytes of a digest as a number.
func digest(d tga.Digest) uint64 { return binary.LittleEndian.Uint64(d[:]) }

func (a *actor) newID() tga.ID {
	a.minted.ids++
	return idOf(a.id, a.minted.ids)
}

// idOf is the n-th id of an actor.
func idOf(actor int, n uint32) tga.ID {
	id := tga.ID{0x01, 0x9b, 0xc0, 0, 0, 0, 0x70, 0, 0x80}
	binary.BigEndian.PutUint32(id[10:], n)
	id[14], id[15] = byte(actor), byte(n)
	return id
}

// random gives each actor its own bytes, so that an actor's nonces do not depend on what
// other actors do.
type random struct{ w *world }

func (r random) Read(b []byte) (int, error) {
	a := r.w.running
	clear(b)
	a.minted.random++
	for i := range min(len(b), 4) {
		b[i] = byte(a.minted.random >> (8 * i))
	}
	if len(b) > 4 {
		b[4] = byte(a.id)
	}
	return len(b), nil
}
