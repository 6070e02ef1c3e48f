package workstate

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Snapshotter is working state beside the session. Calls that use it run one after
// another, unless it is a [Brancher] too.
type Snapshotter interface {
	// Snapshot returns the content as an immutable node. Equal content gives nodes of
	// equal digest. What the node refers to outside, such as files in a directory of
	// the resource's own, is durable when Snapshot returns.
	Snapshot(ctx context.Context) (*Node, error)
	// Restore makes the content what n says, and returns when that is durable. It may be
	// interrupted anywhere and begun again.
	Restore(ctx context.Context, n *Node) error
}

// Brancher is a Snapshotter in memory that gives each call a branch of its own. Its
// Snapshot and Restore neither wait nor fail on nodes of its own making.
type Brancher interface {
	Snapshotter
	// Branch begins a branch. The branch is of the Brancher's own type, so that a tool
	// can't tell it from the resource itself.
	Branch() Branch
}

// Branch is one call's view of a Brancher. A branch that is not merged leaves nothing. If its
// Check depends on reads, it has a method MergeReads() too, which is called instead of Merge for a
// call inside another one that failed: it makes the branch's reads those of its parent.
type Branch interface {
	Brancher
	// Check refuses the branch with STATE_CONFLICT if another branch has changed, in the
	// parent, something that this branch read or wrote. With ignoreReads only its writes
	// count. No merge into the same parent happens between Check and Merge.
	Check(ignoreReads bool) error
	// Merge applies the branch's changes to its parent. If it panics, the call fails, and what was
	// merged is taken back by Restore.
	Merge()
}

// readMerger is a [Branch] whose Check depends on reads.
type readMerger interface{ MergeReads() }

// Admitter is a resource that is asked before a call is dispatched: it returns an error
// to refuse it, or books it into the call's own branch. Branches implement it.
type Admitter interface {
	Admit(ctx context.Context, call runtime.Call) error
}

// Collector is a resource that keeps content of its own outside the store. Collect drops
// the content to which none of the live nodes refers. All of them came from its Snapshot.
type Collector interface {
	Collect(ctx context.Context, live []*Node) error
}

// Conflict returns a STATE_CONFLICT that names what conflicts, or nil if names is empty.
func Conflict(names ...string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return tga.Errorf(tga.StateConflict, "changed by another call since this one began: %s", strings.Join(names, ", "))
}

// Registry holds resources by type. It is filled before a State is made of it.
type Registry struct{ entries []entry }

type entry struct {
	name     string
	resource any
	snapshot Snapshotter // nil for a resource without rollback
	branch   Brancher    // nil where calls take turns
}

// Add enters a resource under the type T, which may be an interface. VALIDATION_ERROR
// where there is one already.
func Add[T any](r *Registry, resource T) error {
	return r.AddAs(nameOf(reflect.TypeFor[T]()), resource)
}

// AddAs enters a resource under the name that a type of another program has in
// snapshots: see [State.Places]. VALIDATION_ERROR where there is one already.
func (r *Registry) AddAs(name string, resource any) error {
	at, found := slices.BinarySearchFunc(r.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	if found {
		return tga.Errorf(tga.ValidationError, "a resource of type %s is registered already", name)
	}
	e := entry{name: name, resource: resource}
	e.snapshot, _ = any(resource).(Snapshotter)
	if e.branch, _ = any(resource).(Brancher); e.branch == nil && e.snapshot != nil {
		e.snapshot = contained{e.snapshot}
	}
	r.entries = slices.Insert(r.entries, at, e)
	return nil
}

// contained makes an error of a panic of a resource that calls take turns at, and of a snapshot that
// is none. A transaction that did not return would keep its turn for ever.
type contained struct{ Snapshotter }

func (c contained) Snapshot(ctx context.Context) (n *Node, err error) {
	err = guarded(func() (err error) {
		n, err = c.Snapshotter.Snapshot(ctx)
		return err
	})
	if err == nil && n == nil {
		err = tga.Errorf(tga.GenericStateError, "it returned no node")
	}
	return n, err
}

func (c contained) Restore(ctx context.Context, n *Node) error {
	return guarded(func() error { return c.Snapshotter.Restore(ctx, n) })
}

// Get returns the resource of type T; ok is false where there is none.
func Get[T any](r *Registry) (resource T, ok bool) {
	name := nameOf(reflect.TypeFor[T]())
	for _, e := range r.entries {
		if e.name == name {
			resource, ok = e.resource.(T)
		}
	}
	return resource, ok
}

// exclusive returns the names of the resources that calls take turns at.
func (r *Registry) exclusive() (names []string) {
	for _, e := range r.entries {
		if e.snapshot != nil && e.branch == nil {
			names = append(names, e.name)
		}
	}
	return names
}
