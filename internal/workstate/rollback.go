package workstate

import (
	"context"
	"maps"
	"slices"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Restore gives the state the content of a snapshot, as a transaction of its own. It is
// durable as a whole, and a crash in its middle ends with the restore carried out. The
// restore is itself a boundary, whose id is returned: a rollback to it undoes the
// restore. LOG slices stay unless o says otherwise. A resource that only the snapshot or
// only the state has is left out; but a resource in memory that nobody has registered
// gets its content in the store.
//
// SNAPSHOT_MISMATCH if the snapshot has slices that the state does not know.
// RESTORE_FAILED if a resource could not be restored; the state is then as before.
func (s *State) Restore(ctx context.Context, to *CompositeSnapshot, o RestoreOptions, tag string) (id string, err error) {
	return s.restore(ctx, to, o, tag, func(*Tx) error { return nil })
}

// restore is Restore if may permits it. may is asked once nobody else can commit.
func (s *State) restore(ctx context.Context, to *CompositeSnapshot, o RestoreOptions, tag string, may func(*Tx) error) (id string, err error) {
	if p := FromContext(ctx); p != nil && p.state == s {
		return "", tga.Errorf(tga.ValidationError, "restore inside of transaction %q", p.boundary.record.ID)
	}
	t, err := s.begin(ctx, boundaryRestore, runtime.Call{}, nil, tag)
	if err != nil {
		return "", err
	}
	id = t.boundary.record.ID
	var post map[string]*Node
	if err = may(t); err == nil {
		post, err = t.become(ctx, to, o)
	}
	if err == nil {
		// Write the intent first: after a crash from here on, [Open] carries the restore out.
		err = t.persistOpen(ctx)
	}
	if err != nil {
		return id, joined(err, t.abandon(ctx))
	}
	ctx = context.WithoutCancel(ctx)
	var failed error
	for _, name := range t.held {
		if err := s.snapshotter(name).Restore(ctx, post[name]); err != nil {
			failed = joined(failed, tga.Errorf(tga.RestoreFailed, "%s: %w", name, err))
		}
	}
	failed, restored := t.finishWith(ctx, failed == nil, post, failed, tga.RestoreFailed, tag)
	return id, joined(failed, restored, t.persistDone(ctx))
}

// become gives the transaction's branches the content of a snapshot. It returns the nodes
// that the held resources must be restored to.
func (t *Tx) become(ctx context.Context, to *CompositeSnapshot, o RestoreOptions) (map[string]*Node, error) {
	if err := t.session.Restore(to.Session, o); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(t.branches)) {
		if n := to.Resources[name]; n != nil {
			if err := t.branches[name].Restore(ctx, n); err != nil {
				return nil, tga.Errorf(tga.RestoreFailed, "%s: %w", name, err)
			}
		}
	}
	post := maps.Clone(t.pre)
	for _, name := range append(t.state.carriedInMemory(to.Resources), t.held...) {
		if n := to.Resources[name]; n != nil {
			post[name] = n
		}
	}
	root, err := t.root(ctx, post)
	if err == nil {
		t.state.amend(t.boundary, func(b *boundary) { b.setPost(root) })
	}
	return post, err
}

// Standing is an effect outside the working state that a rollback can't take back.
type Standing struct {
	Checkpoint
	Compensation string // how to make up for it; "" = can't be
}

// Plan is what a rollback will do.
type Plan struct {
	To       Checkpoint   // the state before this becomes the state
	Restored []Change     // from what is to what will be; what calls take turns at, as of its last call
	Undone   []Checkpoint // whose changes are taken back, newest first
	Standing []Standing   // of those, whose effects outside remain

	state *State
	now   *Node  // root of the state when the plan was made
	next  uint64 // number of the next boundary then
	o     RestoreOptions
}

// PlanRollback says what going back to before a call, or before any other boundary, will
// do. It changes nothing. NOT_FOUND where no boundary of that id is kept.
func (s *State) PlanRollback(ctx context.Context, id string, o RestoreOptions) (*Plan, error) {
	s.family.gate.RLock()
	defer s.family.gate.RUnlock()
	target, err := s.find(id)
	if err != nil {
		return nil, err
	}
	p := &Plan{To: target.checkpoint(), state: s, o: o}
	s.mu.Lock()
	p.now, p.next = s.root, s.next
	for _, b := range slices.Backward(s.boundaries) {
		if b.record.Number < target.record.Number || !b.record.Success || b.record.Kind == boundaryCheckpoint {
			continue
		}
		c := b.checkpoint()
		p.Undone = append(p.Undone, c)
		if b.record.Kind != boundaryCall {
			continue
		}
		ext := External{}
		if s.opts.External != nil {
			ext = s.opts.External(b.record.Server, b.record.Tool)
		}
		if !ext.None {
			p.Standing = append(p.Standing, Standing{c, ext.Compensation})
		}
	}
	s.mu.Unlock()
	then, err := s.snapshotOf(ctx, target, phasePre)
	if err != nil {
		return nil, err
	}
	is, err := snapshotOfRoot(p.now)
	if err != nil {
		return nil, err
	}
	is.Session.includes[PolicyLog] = o.DropLogs
	p.Restored = Diff(is, then)
	return p, nil
}

// Do carries the plan out and returns the id of the boundary that undoes it.
// STATE_CONFLICT where anything was begun or committed since the plan was made.
func (p *Plan) Do(ctx context.Context) (id string, err error) {
	p.state.family.gate.RLock()
	defer p.state.family.gate.RUnlock()
	to, err := p.state.PreSnapshot(ctx, p.To.ID)
	if err != nil {
		return "", err
	}
	return p.state.restore(ctx, to, p.o, "back to before "+p.To.ID, p.holds)
}

// holds refuses to carry the plan out if the state is not as the plan saw it.
func (p *Plan) holds(t *Tx) error {
	if t.boundary.record.Number != p.next || p.state.Digest() != p.now.digest {
		return tga.Errorf(tga.StateConflict, "rollback to before %q: the state has changed since the plan was made", p.To.ID)
	}
	return nil
}

// RollbackTo plans a rollback and does it.
func (s *State) RollbackTo(ctx context.Context, id string) (*Plan, error) {
	p, err := s.PlanRollback(ctx, id, RestoreOptions{})
	if err != nil {
		return nil, err
	}
	_, err = p.Do(ctx)
	return p, err
}

// Checkpoint keeps the state as it is now as a boundary, and returns its id.
func (s *State) Checkpoint(ctx context.Context, tag string) (id string, err error) {
	t, err := s.begin(ctx, boundaryCheckpoint, runtime.Call{}, nil, tag)
	if err != nil {
		return "", err
	}
	failed, restored := t.finish(ctx, true, "", tag)
	return t.boundary.record.ID, joined(failed, restored, t.persistDone(ctx))
}

// Fork begins another state of the family, with the content from before a call. session
// must know the slices of that content. The fork owns resources: both those in memory and
// those that calls take turns at get the content from before the call.
func (s *State) Fork(ctx context.Context, id string, session *Session, resources *Registry, o Options) (*State, error) {
	if s.inspected {
		return nil, tga.Errorf(tga.PermissionDenied, "the state was opened to be looked at")
	}
	s.family.forks.Lock()
	defer s.family.forks.Unlock()
	s.family.gate.RLock()
	defer s.family.gate.RUnlock()
	b, err := s.find(id)
	if err != nil {
		return nil, err
	}
	root, err := s.sideOf(ctx, b, phasePre)
	if err != nil {
		return nil, err
	}
	number, err := s.family.nextState(ctx)
	if err != nil {
		return nil, err
	}
	o.Seed = s.seed
	fork := newState(s.family, number, session, resources, o)
	if err := fork.fill(ctx, root, true); err != nil {
		return nil, err
	}
	if err := fork.create(ctx, root, b.record.ID, s.Places()); err != nil {
		return nil, err
	}
	s.family.mu.Lock()
	defer s.family.mu.Unlock()
	s.family.states[number] = fork
	return fork, nil
}

// OpenFork opens a fork that was made before. See [State.Forks]. NOT_FOUND if there is no
// such state. STATE_LOCK_ACQUIRE_FAILED if the family has it open already.
func (s *State) OpenFork(ctx context.Context, number uint32, session *Session, resources *Registry, o Options) (*State, error) {
	if s.inspected {
		return nil, tga.Errorf(tga.PermissionDenied, "the state was opened to be looked at")
	}
	s.family.forks.Lock()
	defer s.family.forks.Unlock()
	s.family.gate.RLock()
	defer s.family.gate.RUnlock()
	s.family.mu.Lock()
	open := s.family.states[number] != nil
	s.family.mu.Unlock()
	if open {
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "state %d of the family is open already", number)
	}
	numbers, err := s.Forks(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(numbers, number) {
		return nil, tga.Errorf(tga.NotFound, "the family has no state %d", number)
	}
	return s.family.open(ctx, number, session, resources, o)
}
