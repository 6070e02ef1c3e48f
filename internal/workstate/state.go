package workstate

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Options configure a State. The zero value is the safest.
type Options struct {
	// Policy is asked before a call touches anything. An error or a panic refuses the
	// call with POLICY_VIOLATION, or with the error's own code. Nil refuses nothing.
	Policy func(ctx context.Context, call runtime.Call) error
	// Uses returns which of the resources that calls take turns at a tool may touch, as
	// the names of their types in snapshots. Nil, or a nil answer, means all of them.
	Uses func(server, tool string) []string
	// External says what a tool does outside the working state, for rollback plans. Nil
	// means that every tool has effects that nothing can take back.
	External func(server, tool string) External
	// IgnoreReads lets a call commit although another call changed something that it read
	// and did not write. Committed calls are then no longer serializable.
	IgnoreReads bool
	// Observe is told of every finished call. Its error or panic is logged and changes
	// nothing.
	Observe func(ctx context.Context, done ToolInvoked) error
	// Logger gets what an operator should see; nil discards it.
	Logger *slog.Logger
	// Clock and Seed feed a tool's [Tx.Now] and [Tx.Rand]. A nil Clock is time.Now. A
	// state that is opened again keeps its first Seed.
	Clock func() time.Time
	Seed  uint64
	// Ring is how many boundaries a state keeps; zero means 100. MaxAge and MaxBytes drop
	// more of them, oldest first; zero means no such limit. MaxBytes counts the bytes
	// that a boundary added to the store.
	Ring     int
	MaxAge   time.Duration
	MaxBytes int64
}

// External is what a tool does outside the working state.
type External struct {
	None         bool   // nothing
	Compensation string // how to make up for it, in words or as a tool's name; "" = can't be
}

// DefaultRing is how many boundaries a state keeps if its options do not say.
const DefaultRing = 100

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Ring <= 0 {
		o.Ring = DefaultRing
	}
	return o
}

// State is the root of everything that can be rolled back: a session and the resources
// beside it. It is changed by transactions alone: those that [Transact] makes of tool
// calls, [State.Update], and restores. Its methods may be called from any number of
// goroutines.
type State struct {
	family    *family
	number    uint32 // within the family; 0 is the one that was not forked
	opts      Options
	session   *Session
	resources *Registry
	turns     map[string]turn // of the resources that calls take turns at
	inspected bool            // see [Inspect]

	repairs sync.Mutex // held while a repair becomes durable

	mu         sync.Mutex
	root       *Node             // committed and durable
	carried    map[string]*Node  // resources in root that nobody has registered
	broken     map[string]repair // resources that must be restored before they are used
	boundaries []*boundary       // oldest first
	next       uint64            // number of the next boundary
	seed       uint64
	head       headRecord // as it was stored last

	erasure *chain.StateErasure // of a state that was erased, and not begun anew
	erased  []uint64            // numbers of items that are left of it
}

// New makes a state in memory: a call is committed when it returns, and nothing outlives
// the process. The state owns session and resources from now on: fill them before, and
// change them only by transactions afterwards.
func New(ctx context.Context, session *Session, resources *Registry, o Options) (*State, error) {
	s := newState(&family{token: make(turn, 1), calls: map[tga.ID]*Tx{}, states: map[uint32]*State{}}, 0, session, resources, o)
	var err error
	s.root, err = s.capture(ctx)
	s.head.Places = resources.places()
	s.family.states[0] = s
	return s, err
}

func newState(f *family, number uint32, session *Session, resources *Registry, o Options) *State {
	o = o.withDefaults()
	session.schema.clock = o.Clock
	s := &State{
		family: f, number: number, opts: o, session: session, resources: resources, seed: o.Seed, next: 1,
		turns: map[string]turn{}, carried: map[string]*Node{}, broken: map[string]repair{},
	}
	for _, name := range resources.exclusive() {
		s.turns[name] = make(turn, 1)
	}
	return s
}

// repair is a restore that must be repeated before anybody uses the resource. In the
// store, the records of its boundaries stay open and name the resource among the held
// ones, so that a restart repeats the restore too. See [State.repaired].
type repair struct {
	to *Node
	of []*boundary
}

// turn is a lock that one transaction holds at a time; taking it can be cancelled.
type turn chan struct{}

// take waits for the turn until ctx ends.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) pass() { <-t }

// rootData is the data of a state's root node. Its kids are the session and then the
// resources in this order.
type rootData struct {
	Resources []string `json:"resources"`
	Version   int      `json:"version"`
}

// rootOf makes a root node of a session and resources.
func rootOf(session *Node, resources map[string]*Node) *Node {
	d, kids := rootData{Resources: []string{}, Version: tga.StateRootVersion}, []*Node{session}
	for name := range resources {
		d.Resources = append(d.Resources, name)
	}
	slices.Sort(d.Resources)
	for _, name := range d.Resources {
		kids = append(kids, resources[name])
	}
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and a number always have a JSON form
	}
	return NewNode(data, kids...)
}

// partsOfRoot returns the session and the resources of a root node.
func partsOfRoot(n *Node) (session *Node, resources map[string]*Node, err error) {
	var d rootData
	if err := strict(n.data, &d); err != nil || d.Version != 1 || len(n.kids) != len(d.Resources)+1 {
		return nil, nil, tga.Errorf(tga.StateChecksumMismatch, "node %s is no state", n.digest)
	}
	resources = map[string]*Node{}
	for i, name := range d.Resources {
		resources[name] = n.kids[i+1]
	}
	return n.kids[0], resources, nil
}

// capture takes a new snapshot of every resource and returns the root. No transaction may
// be in progress.
func (s *State) capture(ctx context.Context) (*Node, error) {
	nodes := map[string]*Node{}
	for name, n := range s.carried {
		nodes[name] = n
	}
	for _, e := range s.resources.entries {
		if e.snapshot == nil {
			continue
		}
		n, err := e.snapshot.Snapshot(ctx)
		if err != nil {
			return nil, tga.Errorf(codeOr(err, tga.GenericStateError), "snapshot of %s: %w", e.name, err)
		}
		nodes[e.name] = n
	}
	return rootOf(s.session.node(), nodes), nil
}

// View runs f with a view of the committed state. Changes that f makes are dropped.
// Resources that calls take turns at are not part of the view.
func (s *State) View(ctx context.Context, f func(tx *Tx) error) error {
	t := &Tx{state: s, branches: map[string]Branch{}, turns: map[string]turn{}, pre: map[string]*Node{}}
	if _, err := t.branch(ctx); err != nil {
		return err
	}
	return f(t)
}

// ID returns the id under which the state's family is stored; zero for one in memory.
func (s *State) ID() tga.ID { return s.family.id }

// Number returns the state's number within its family: 0 for the first, more for forks.
func (s *State) Number() uint32 { return s.number }

// Digest returns the digest of the committed state. Two states of equal content have the
// same digest. A resource that calls take turns at counts as its last call left it.
func (s *State) Digest() tga.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.root.digest
}

// Update runs f as a transaction of its own. If Update returns nil, all changes of f are
// committed and durable; if it returns an error, none is. The program around the tools
// changes the state with Update.
func (s *State) Update(ctx context.Context, tag string, f func(ctx context.Context, tx *Tx) error) error {
	tx, err := s.begin(ctx, boundaryUpdate, runtime.Call{}, nil, tag)
	if err != nil {
		return err
	}
	if err := tx.persistOpen(ctx); err != nil {
		return joined(err, tx.abandon(ctx))
	}
	cause := guarded(func() error { return f(context.WithValue(ctx, txKey{}, tx), tx) })
	failed, restored := tx.finish(ctx, cause == nil, codeOr(cause, ""), text(cause))
	err = joined(cause, failed, restored, tx.persistDone(ctx))
	s.family.collectIfDue()
	return err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// seedOf derives a call's seed, so that a call that is sent again draws the same.
func (s *State) seedOf(id string) [2]uint64 {
	sum := tga.Sum(append(binary.BigEndian.AppendUint64(nil, s.seed), id...))
	return [2]uint64{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", tga.Errorf(tga.GenericStateError, "no randomness for an id: %w", err)
	}
	return id.String(), nil
}
