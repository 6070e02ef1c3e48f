package workstate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// finish ends a transaction: it merges the changes into the enclosing transaction or the
// state, or undoes them. failed says why a transaction that was to succeed did not:
// STATE_CONFLICT, BUDGET_EXCEEDED, or the error of a resource. err is RESTORE_FAILED: a
// held resource could not be restored, and must be before anybody uses it again.
//
// An outermost transaction holds the token from here until [Tx.settle].
func (t *Tx) finish(ctx context.Context, success bool, code tga.Code, summary string) (failed, err error) {
	ctx = context.WithoutCancel(ctx) // an undo that is begun is done
	post := map[string]*Node{}
	if success {
		post, failed = t.afterwards(ctx)
	}
	return t.finishWith(ctx, success && failed == nil, post, failed, code, summary)
}

// afterwards takes snapshots of the held resources as the call left them.
func (t *Tx) afterwards(ctx context.Context) (map[string]*Node, error) {
	post := map[string]*Node{}
	for _, name := range t.held {
		n, err := t.state.snapshotter(name).Snapshot(ctx)
		if err != nil {
			return nil, tga.Errorf(codeOr(err, tga.GenericStateError), "snapshot of %s after %s: %w", name, t.call.Tool, err)
		}
		post[name] = n
	}
	return post, nil
}

func (t *Tx) finishWith(ctx context.Context, success bool, post map[string]*Node, failed error, code tga.Code, summary string) (_, err error) {
	if t.parent == nil {
		if !t.token {
			if err := t.state.family.token.take(ctx); err != nil { // ctx does not end
				return nil, err
			}
			t.token = true
		}
		t.mu.Lock()
		t.undo = t.state.point(ctx)
		t.mu.Unlock()
	} else {
		t.parent.mu.Lock()
		defer t.parent.mu.Unlock()
	}
	if success {
		failed = t.check()
	}
	if success && failed == nil && t.parent != nil && t.parent.over() {
		failed = tga.Errorf(tga.StateConflict, "the transaction that this one ran inside of has ended")
	}
	if success && failed == nil {
		failed = t.merge(ctx)
	}
	if success = success && failed == nil; !success {
		if failed != nil {
			code, summary = codeOr(failed, tga.GenericStateError), failed.Error()
		}
		post, err = t.pre, t.restoreHeld(ctx)
	} else {
		code = "" // the caller's is for the other case
	}
	t.log(success, code)
	t.session.merge(!success)
	if !success {
		t.mergeReads()
	}
	if err != nil && t.parent != nil {
		t.parent.doom = err // what stands there is neither before nor after this one
	}
	t.end(ctx, success, post, code, summary)
	return failed, err
}

// merge merges the branches. If one panics, some may be merged already: then the transaction fails. An outermost one takes
// back what was merged; one inside another has no copy of what was before, and the other must not commit.
func (t *Tx) merge(ctx context.Context) error {
	failed := guarded(func() error {
		for _, b := range t.branches {
			b.Merge()
		}
		return nil
	})
	switch {
	case failed == nil:
	case t.parent == nil:
		t.unmerge(ctx)
	default:
		t.parent.doom = failed
	}
	return failed
}

// unmerge gives the parts in memory the content that they had before the transaction was merged.
func (t *Tx) unmerge(ctx context.Context) {
	t.state.session.set(t.undo.session)
	for _, e := range t.state.resources.entries {
		if e.branch == nil {
			continue
		}
		if err := guarded(func() error { return e.branch.Restore(context.WithoutCancel(ctx), t.undo.nodes[e.name]) }); err != nil {
			t.state.opts.Logger.Error("a commit that failed is not taken back", "resource", e.name, "error", err)
		}
	}
}

// mergeReads makes what a failed transaction has read reads of the one that it ran inside of.
func (t *Tx) mergeReads() {
	for name, b := range t.branches {
		switch r := b.(type) {
		case *KV:
			r.failed()
		case readMerger:
			if err := guarded(func() error { r.MergeReads(); return nil }); err != nil {
				t.state.opts.Logger.Error("the reads of a failed call are lost", "resource", name, "error", err)
			}
		}
	}
}

// check asks all parts whether the transaction may commit. Nothing conflicts with a restore, which
// has the token from its beginning, and a limit that was lowered since does not forbid it.
func (t *Tx) check() error {
	if t.keep {
		return t.doomed()
	}
	errs := []error{t.doomed(), t.session.check(t.state.opts.IgnoreReads)}
	for _, name := range slices.Sorted(maps.Keys(t.branches)) {
		errs = append(errs, guarded(func() error { return t.branches[name].Check(t.state.opts.IgnoreReads) }))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// doomed says why the transaction can't commit, whatever its changes are.
func (t *Tx) doomed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doom == nil && t.inside > 0 {
		return tga.Errorf(tga.StateConflict, "%d transactions inside this one have not ended", t.inside)
	}
	return t.doom
}

// over says that the transaction has ended. The caller holds its lock.
func (t *Tx) over() bool { return t.stage != stageBegun }

// log appends the record of a finished call to its LOG slice.
func (t *Tx) log(success bool, code tga.Code) {
	if t.boundary.record.Kind != boundaryCall {
		return
	}
	if err := Slice[ToolInvoked](t.session).Append(t.invoked(success, code)); err != nil {
		t.state.opts.Logger.Warn("a call is not in the log slice", "call", t.boundary.record.ID, "error", err)
	}
}

func (t *Tx) invoked(success bool, code tga.Code) ToolInvoked {
	return ToolInvoked{
		TraceID: t.call.TraceID.String(), ToolCallID: t.boundary.record.ID, Server: t.call.Server, Tool: t.call.Tool,
		Success: success, Code: string(code), At: tga.MillisOf(t.state.opts.Clock()),
	}
}

// restoreHeld gives the held resources their content from before the transaction. A
// resource that cannot be restored becomes broken, with [tga.RestoreFailed].
func (t *Tx) restoreHeld(ctx context.Context) error {
	var errs []error
	for _, name := range t.held {
		if err := t.state.snapshotter(name).Restore(ctx, t.pre[name]); err != nil {
			t.breaks(name)
			errs = append(errs, tga.Errorf(tga.RestoreFailed, "%s: %w", name, err))
		} else if err := t.state.repaired(ctx, name); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// breaks makes a held resource broken.
func (t *Tx) breaks(name string) {
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	r := repair{t.pre[name], s.broken[name].of}
	if !slices.Contains(r.of, t.boundary) {
		r.of = append(r.of, t.boundary)
	}
	s.broken[name] = r
}

// close sets in the transaction's record how it ended. The record stays open if a held
// resource must still be restored, and then names those alone: a restart must not restore
// the others, which later calls may change. The caller holds the state's lock.
func (t *Tx) close(success bool, code tga.Code, summary string) {
	r := &t.boundary.record
	r.Success, r.Code, r.Summary = success, string(code), clip.Bytes(summary, maxSummary)
	left := slices.DeleteFunc(slices.Clone(t.held), func(name string) bool {
		_, broken := t.state.broken[name]
		return !broken
	})
	if r.Open = len(left) > 0; r.Open {
		r.Held = left
	}
}

// end completes the boundary's record, and computes the root that becomes the state's
// once the transaction is durable.
func (t *Tx) end(ctx context.Context, success bool, post map[string]*Node, code tga.Code, summary string) {
	root, err := t.outer().root(ctx, post)
	if err != nil {
		// All nodes of the root exist already, and snapshots of parts in memory do not fail.
		panic(fmt.Sprintf("workstate: the state after %s can't be named: %v", t.boundary.record.ID, err))
	}
	t.mu.Lock()
	t.merged, t.stage = root, stageMerged
	times := t.times
	t.mu.Unlock()
	t.state.amend(t.boundary, func(b *boundary) {
		r := &b.record
		t.close(success, code, summary)
		r.ElapsedNs = int64(t.state.opts.Clock().Sub(t.began))
		for _, at := range times {
			r.Times = append(r.Times, at.UnixNano())
		}
		if b.post, r.Post = nil, ""; success {
			b.setPost(root)
		}
	})
}

// outer returns a read-only view of what the transaction was merged into.
func (t *Tx) outer() *Tx {
	if t.parent != nil {
		return &Tx{state: t.state, parent: t.parent, session: t.parent.session, branches: t.parent.branches}
	}
	out := &Tx{state: t.state, session: t.state.session, branches: map[string]Branch{}}
	for _, e := range t.state.resources.entries {
		if e.branch != nil {
			out.branches[e.name] = asBranch{e.branch}
		}
	}
	return out
}

// asBranch makes a [Branch] of a root's Brancher, for reading only.
type asBranch struct{ Brancher }

func (asBranch) Check(bool) error { panic("workstate: a root is not checked") }
func (asBranch) Merge()           { panic("workstate: a root is not merged") }

// point remembers the committed content in memory.
func (s *State) point(ctx context.Context) *rollbackPoint {
	p := &rollbackPoint{session: s.session.content(), nodes: map[string]*Node{}}
	for _, e := range s.resources.entries {
		if e.branch != nil {
			n, err := e.branch.Snapshot(ctx)
			if err != nil {
				panic(fmt.Sprintf("workstate: snapshot of %s in memory: %v", e.name, err)) // see [Brancher]
			}
			p.nodes[e.name] = n
		}
	}
	return p
}

// settle ends a transaction. If an outermost transaction was merged and durable is true,
// the store has it, and its root becomes the state's. If durable is false, its changes in
// memory are taken back.
func (t *Tx) settle(ctx context.Context, durable bool) {
	t.mu.Lock()
	was := t.stage
	t.stage = stageSettled
	t.mu.Unlock()
	switch {
	case was == stageSettled:
		return
	case was == stageBegun || t.parent != nil:
	case durable:
		t.state.mu.Lock()
		t.state.root, t.state.head.Root = t.merged, t.merged.digest.String()
		t.state.mu.Unlock()
		t.state.forget(t.evict...)
		t.state.family.evicted.Add(int64(len(t.evict)))
	default:
		t.unmerge(ctx)
	}
	t.leave()
}

// abandon ends a transaction that did nothing, or whose commit certainly did not become
// durable.
func (t *Tx) abandon(ctx context.Context) error {
	err := t.takeBack(ctx)
	t.settle(ctx, false)
	if !t.opened {
		t.state.forget(t.boundary)
	}
	return err
}

// takeBack restores the held resources of a transaction that was merged.
func (t *Tx) takeBack(ctx context.Context) error {
	var err error
	ctx = context.WithoutCancel(ctx)
	t.mu.Lock()
	merged := t.stage == stageMerged
	t.mu.Unlock()
	if merged {
		err = t.restoreHeld(ctx)
		if t.parent != nil {
			// Its changes are among the parent's already, and its record is not.
			t.parent.mu.Lock()
			t.parent.doom = tga.Errorf(tga.GenericStateError, "a call inside this one was not recorded")
			t.parent.mu.Unlock()
		}
	}
	return err
}

func joined(errs ...error) error {
	var found []error
	for _, err := range errs {
		if err != nil {
			found = append(found, err)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return errors.Join(found...)
}

// guarded runs f and turns a panic into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = tga.Errorf(tga.ToolError, "panic: %v", p)
		}
	}()
	return f()
}

// codeOr returns the code in err's chain, or code.
func codeOr(err error, code tga.Code) tga.Code {
	if c := tga.CodeOf(err); c != "" {
		return c
	}
	return code
}
