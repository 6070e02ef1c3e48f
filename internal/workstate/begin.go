package workstate

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// begin makes a transaction: it takes the turns at the resources in uses, and branches
// every other part. A nil uses means all resources that calls take turns at. A
// transaction inside another can use only resources that the outer one holds.
func (s *State) begin(ctx context.Context, kind string, call runtime.Call, uses []string, tag string) (*Tx, error) {
	t := &Tx{state: s, call: call, branches: map[string]Branch{}, turns: map[string]turn{}, pre: map[string]*Node{}, began: s.opts.Clock().UTC()}
	if p := FromContext(ctx); p != nil && p.state == s {
		t.parent = p
	}
	id, err := idOf(call)
	if err != nil {
		return nil, err
	}
	if err := t.enter(); err != nil {
		return nil, err
	}
	begun := false
	defer func() { // also after a panic of a resource
		if !begun {
			t.leave()
		}
	}()
	t.keep = kind == boundaryRestore
	var root *Node
	if err = t.takeTurns(ctx, uses); err == nil {
		root, err = t.branch(ctx)
	}
	if err == nil {
		err = t.admit(ctx)
	}
	if err != nil {
		return nil, err
	}
	begun = true
	t.replay, _ = ctx.Value(recordingKey{}).(Recording)
	seed := s.seedOf(id)
	if t.replay.Seed != [2]uint64{} {
		seed = t.replay.Seed
	}
	t.rand = rand.New(rand.NewPCG(seed[0], seed[1]))
	t.boundary = &boundary{record: boundaryRecord{
		Version: tga.WorkingStateVersion, Kind: kind, ID: id, Server: call.Server, Tool: call.Tool, Tag: tag,
		Open: true, Began: t.began.UnixNano(), Held: t.held, Seed: seed,
	}}
	if !call.TraceID.IsZero() {
		t.boundary.record.TraceID = call.TraceID.String()
	}
	if t.parent != nil {
		t.boundary.record.Parent = t.parent.boundary.record.ID
	}
	t.boundary.setPre(root)
	s.remember(t.boundary)
	return t, nil
}

func idOf(call runtime.Call) (string, error) {
	if call.ToolCallID.IsZero() {
		return newID()
	}
	return call.ToolCallID.String(), nil
}

// enter counts the transaction as one in progress, until [Tx.leave].
func (t *Tx) enter() error {
	if t.state.inspected {
		return tga.Errorf(tga.PermissionDenied, "the state was opened to be looked at")
	}
	if err := t.state.family.known(); err != nil {
		return err
	}
	if p := t.parent; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.over() {
			return tga.Errorf(tga.StateConflict, "the transaction %q that this one is to run inside of has ended", p.boundary.record.ID)
		}
		p.inside++
	}
	t.state.family.gate.RLock()
	return nil
}

// leave releases the turns, the token and the gate, so that others can go on.
func (t *Tx) leave() {
	t.passTurns()
	if t.token {
		t.token = false
		t.state.family.token.pass()
	}
	t.state.family.gate.RUnlock()
	if p := t.parent; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.inside--
	}
}

// takeTurns waits for its turn at each resource in uses. It takes them in the order of
// their names, so that no two transactions wait for each other.
func (t *Tx) takeTurns(ctx context.Context, uses []string) error {
	from, missing := t.state.turns, "the state has no such exclusive resource"
	if t.parent != nil {
		from, missing = t.parent.turns, "the transaction around the call does not hold it"
	}
	if uses == nil {
		uses = slices.Collect(maps.Keys(from))
	}
	uses = slices.Compact(slices.Sorted(slices.Values(uses)))
	for _, name := range uses {
		turn := from[name]
		err := tga.Errorf(tga.PermissionDenied, "%s on %s: Options.Uses names %s, but %s", t.call.Tool, t.call.Server, name, missing)
		if turn != nil {
			if cause := turn.take(ctx); cause == nil {
				t.held = append(t.held, name)
				t.turns[name] = make(chan struct{}, 1)
				continue
			} else {
				err = tga.Errorf(tga.StateLockAcquireFailed, "%s on %s: waiting for %s, which another call uses: %w", t.call.Tool, t.call.Server, name, cause)
			}
		}
		t.passTurns()
		return err
	}
	return nil
}

func (t *Tx) passTurns() {
	from := t.state.turns
	if t.parent != nil {
		from = t.parent.turns
	}
	for _, name := range t.held {
		from[name].pass()
	}
	t.held = nil
}

// branch takes snapshots of the held resources and branches of the others, with no commit
// in between. It returns the root of what it saw.
func (t *Tx) branch(ctx context.Context) (*Node, error) {
	for _, name := range t.held {
		n, err := t.state.look(ctx, name)
		if err != nil {
			return nil, err
		}
		t.pre[name] = n
	}
	above := t.state.session
	if t.parent == nil {
		// Do not show a commit that is not durable yet: a call would act on a state that
		// a crash can still take away.
		if err := t.state.family.token.take(ctx); err != nil {
			return nil, tga.Errorf(tga.StateLockAcquireFailed, "waiting for another call's commit: %w", err)
		}
		if t.token = t.keep; !t.keep {
			defer t.state.family.token.pass()
		}
	} else {
		t.parent.mu.Lock()
		defer t.parent.mu.Unlock()
		above = t.parent.session
	}
	t.session = above.branch()
	for _, e := range t.state.resources.entries {
		if e.branch == nil {
			continue
		}
		if t.parent != nil {
			t.branches[e.name] = t.parent.branches[e.name].Branch()
		} else {
			t.branches[e.name] = e.branch.Branch()
		}
	}
	return t.root(ctx, t.pre)
}

// admit asks the resources that admit calls.
func (t *Tx) admit(ctx context.Context) error {
	if t.call.Tool == "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.branches)) {
		if a, ok := t.branches[name].(Admitter); ok {
			if err := a.Admit(ctx, t.call); err != nil {
				return err
			}
		}
	}
	return nil
}

// look takes a snapshot of a held resource. If an earlier restore of the resource failed,
// look repeats that restore first.
func (s *State) look(ctx context.Context, name string) (*Node, error) {
	r := s.snapshotter(name)
	s.mu.Lock()
	must, broken := s.broken[name]
	s.mu.Unlock()
	if broken {
		if err := r.Restore(ctx, must.to); err != nil {
			return nil, tga.Errorf(tga.RestoreFailed, "%s is still to be restored: %w", name, err)
		}
		if err := s.repaired(ctx, name); err != nil {
			return nil, err
		}
	}
	n, err := r.Snapshot(ctx)
	if err != nil {
		return nil, tga.Errorf(codeOr(err, tga.GenericStateError), "snapshot of %s: %w", name, err)
	}
	return n, nil
}

// repaired notes that a resource is restored: the records of the repair's boundaries no
// longer name it, and a record that names none is closed. The resource counts as broken
// until that is durable. A restart that still found it in a record would restore it, and
// so take back what later calls changed.
func (s *State) repaired(ctx context.Context, name string) error {
	s.repairs.Lock()
	defer s.repairs.Unlock()
	var records []boundaryRecord
	var list []chain.Attachment
	s.mu.Lock()
	of := s.broken[name].of
	for _, b := range of {
		r := b.record
		r.Held = slices.DeleteFunc(slices.Clone(r.Held), func(n string) bool { return n == name })
		r.Open = len(r.Held) > 0
		records = append(records, r)
		if slices.Contains(s.boundaries, b) { // if it is forgotten, the store has no record
			list = append(list, s.family.item(s.number, r.Number, r))
		}
	}
	s.mu.Unlock()
	if err := s.family.append(ctx, list); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range of {
		b.record.Held, b.record.Open = records[i].Held, records[i].Open
	}
	delete(s.broken, name)
	return nil
}

func (s *State) snapshotter(name string) Snapshotter {
	for _, e := range s.resources.entries {
		if e.name == name {
			return e.snapshot
		}
	}
	return nil
}

// root returns the root of what the transaction sees. held has the nodes of the resources
// that it holds. Resources that others hold count with their last committed content.
func (t *Tx) root(ctx context.Context, held map[string]*Node) (*Node, error) {
	nodes, err := t.state.committed()
	if err != nil {
		return nil, err
	}
	if t.parent != nil {
		maps.Copy(nodes, t.parent.pre)
	}
	maps.Copy(nodes, held)
	for name, b := range t.branches {
		if nodes[name], err = b.Snapshot(ctx); err != nil {
			return nil, err
		}
	}
	return rootOf(t.session.node(), nodes), nil
}

// committed returns the nodes of the resources in the committed root.
func (s *State) committed() (map[string]*Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		return map[string]*Node{}, nil
	}
	_, nodes, err := partsOfRoot(s.root)
	return nodes, err
}
