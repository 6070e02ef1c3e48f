// Package workstate makes every tool call a transaction over the working state of an agent:
// the typed slices of its session, and its resources, such as files, a budget and
// databases. A call that succeeds leaves all its changes, a call that fails leaves none,
// and the state can go back to before any recent call.
//
// A [State] is the single root. [Transact] puts it around a [runtime.Dispatcher]; the
// loop of package runtime does not know it. A tool finds its call's own view with
// [FromContext].
//
// # Usage
//
// A program puts its resources into a [Registry], opens the state on the store, and makes the
// runtime with the state's store and a dispatcher from [Transact].
//
//	err := workstate.Add(resources, workstate.NewKV())
//	…
//	state, err := workstate.Open(ctx, db, id, workstate.NewSession(), resources, workstate.Options{})
//	…
//	rt, err := runtime.New(state.Store(), workstate.Transact(tools, state), supervisor, options)
//
// In a tool, [FromContext] gives the call's transaction: [Use] finds a resource in it, and [Slice]
// a slice of the session. State.List shows the checkpoints of recent calls, State.PlanRollback
// what a rollback to one of them would change, and State.RollbackTo does it. Without a store,
// [New] makes a state that ends with the process.
//
// Packages hostdir and sqlitefile below this one are resources: a directory and a database.
// docs/STATE.md says what holds for a state, what is durable when, and what cannot be undone.
//
// The types are aliases of the types of an internal package.
package workstate

import (
	"context"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// A state, and what a program does with it.
type (
	// State is the working state of an agent.
	State = workstate.State
	// Options configure a state.
	Options = workstate.Options
	// External describes the effects that a tool has outside the working state.
	External = workstate.External
	// ToolInvoked is a call that has ended, for the observer in [Options].
	ToolInvoked = workstate.ToolInvoked
	// Checkpoint is a point that a state can go back to.
	Checkpoint = workstate.Checkpoint
	// Plan is what a rollback would change.
	Plan = workstate.Plan
	// RestoreOptions say how a state goes back.
	RestoreOptions = workstate.RestoreOptions
	// SnapshotOptions say what a snapshot of the whole state contains.
	SnapshotOptions = workstate.SnapshotOptions
	// CompositeSnapshot is a snapshot of the whole state.
	CompositeSnapshot = workstate.CompositeSnapshot
)

// What a state holds: slices of values, and resources.
type (
	// Session has the slices.
	Session = workstate.Session
	// TypedSlice is the slice of one type.
	TypedSlice[T any] = workstate.TypedSlice[T]
	// Registry has the resources.
	Registry = workstate.Registry
	// KV is a resource: keys with values.
	KV = workstate.KV
	// Budget is a resource that bounds what calls use.
	Budget = workstate.Budget
	// Usage is what a call used, and what a budget allows.
	Usage = workstate.Usage
	// Tx is a call's own view of the state.
	Tx = workstate.Tx
	// Tool is a function as a tool: see [Func].
	Tool = workstate.Tool
	// Tools are functions as a dispatcher, by name.
	Tools = workstate.Tools
)

// What a program implements for a resource of its own.
type (
	// Snapshotter is a resource that calls use one after another.
	Snapshotter = workstate.Snapshotter
	// Brancher is a resource of which each call gets a branch of its own.
	Brancher = workstate.Brancher
	// Branch is a call's own branch of a resource.
	Branch = workstate.Branch
	// Collector is a resource that keeps content outside the store, and can delete unused content.
	Collector = workstate.Collector
	// Node is a piece of a snapshot, known by its digest.
	Node = workstate.Node
)

// What happens to a slice when the state goes back: see Register of [TypedSlice].
const (
	PolicyState = workstate.PolicyState // rolled back
	PolicyLog   = workstate.PolicyLog   // append-only, kept by a rollback
	PolicyCache = workstate.PolicyCache // rolled back with a failed call, emptied by a restore
)

// ErrFailed is a tool's own failure that comes with a value.
var ErrFailed = workstate.ErrFailed

// New makes a state in memory: a call is committed when it returns, and nothing outlives
// the process. From now on session and resources belong to the state: the caller may fill them
// before, and only transactions change them afterwards.
func New(ctx context.Context, session *Session, resources *Registry, o Options) (*State, error) {
	return workstate.New(ctx, session, resources, o)
}

// Open opens the state with this id in a store. If there is none, it makes one from the
// content of session and resources. The state has the lease of its id until it is closed. If
// somebody else has that lease: STATE_LOCK_ACQUIRE_FAILED.
//
// Slices and resources in memory get their stored content. A resource that calls use one
// after another, such as a directory, is left as it is, unless a transaction that used it did
// not end. Then it is restored to its content before that transaction; if a restore was under
// way, that restore is completed. The content that was found is kept as a boundary of its own.
func Open(ctx context.Context, store runtime.Store, id tga.ID, session *Session, resources *Registry, o Options) (*State, error) {
	return workstate.Open(ctx, store, id, session, resources, o)
}

// Transact makes each call of next a transaction over s. The changes of a call are undone if
// the answer is not a success, if next returns an error or panics, and if the call can't
// commit. For a state with a store, the runtime must be made on the store that the state
// returns.
func Transact(next runtime.Dispatcher, s *State) runtime.Dispatcher {
	return workstate.Transact(next, s)
}

// FromContext returns the transaction that the caller runs in, nil outside of one.
func FromContext(ctx context.Context) *Tx { return workstate.FromContext(ctx) }

// Use returns the resource of type T as the transaction sees it: its own branch, or the
// resource itself, if calls use it one after another and it is this call's turn. NOT_FOUND if
// there is no such resource; PERMISSION_DENIED if the call may not use it.
func Use[T any](t *Tx) (T, error) { return workstate.Use[T](t) }

// Slice returns the slice of T in s. It exists for every T; one that was never
// registered is rolled back ([PolicyState]).
func Slice[T any](s *Session) TypedSlice[T] { return workstate.Slice[T](s) }

// Reduce registers a reducer of the slice of T for events of type E: f is given the
// items and an event and returns the items that follow.
func Reduce[T, E any](s *Session, f func(items []T, event E) []T) { workstate.Reduce(s, f) }

// NewSession makes a session that knows the slices of calls and prompts.
func NewSession() *Session { return workstate.NewSession() }

// Add enters a resource under the type T, which may be an interface. VALIDATION_ERROR
// if there is a resource of that type already.
func Add[T any](r *Registry, resource T) error { return workstate.Add(r, resource) }

// NewKV returns an empty map.
func NewKV() *KV { return workstate.NewKV() }

// NewBudget returns a budget of which nothing is spent. A zero field of limit means no
// limit.
func NewBudget(limit Usage) *Budget { return workstate.NewBudget(limit) }

// WithEvaluation names the evaluation (a run or a customer, for example) that the calls made under ctx are charged
// to. Each evaluation has the limits of a [Budget] for itself; without a name a call is charged to "".
func WithEvaluation(ctx context.Context, name string) context.Context {
	return workstate.WithEvaluation(ctx, name)
}

// NewNode makes a node. The caller must not use data and kids afterwards.
func NewNode(data []byte, kids ...*Node) *Node { return workstate.NewNode(data, kids...) }

// Conflict returns a STATE_CONFLICT that names what conflicts, nil without a name. A [Branch] that
// cannot commit returns it.
func Conflict(names ...string) error { return workstate.Conflict(names...) }

// Func makes a tool from a function. Arguments with a member that P does not have are
// refused. The answer is the JSON form of the value that f returns, or for an error a failure
// with the error's code, or TOOL_ERROR. [ErrFailed] is a failure with a value. If the context
// has ended, an error of f is returned as an error: nobody knows what f did outside.
func Func[P any](f func(ctx context.Context, params P) (any, error)) Tool { return workstate.Func(f) }
