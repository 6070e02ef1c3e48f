package workstate

import (
	"context"
	"errors"
	"fmt"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Transact returns a dispatcher that makes every call to next a transaction over s.
//
// The order is: next looks the tool up and parses the arguments, if it is a
// [runtime.Checker]; the policy is asked; the deadline is checked; the budget is charged;
// the state before the call becomes durable; the call runs; its changes are committed or
// undone; observers are told; the answer is returned. If a step before the call refuses,
// the call ends and nothing was done.
//
// The changes are undone if the answer is not a success, if next returns an error or
// panics, and if the call can't commit. If it can't commit, the answer is a failure with
// STATE_CONFLICT or BUDGET_EXCEEDED and keeps what the tool said. A panic is a failure
// with TOOL_ERROR. An error of next is returned as it is and means to package runtime
// what it always means; after the deadline its code is TOOL_TIMEOUT.
//
// For a state with a store, the runtime must be made on [State.Store].
func Transact(next runtime.Dispatcher, s *State) runtime.Dispatcher { return &transact{next, s} }

type transact struct {
	next  runtime.Dispatcher
	state *State
}

// Check implements [runtime.Checker].
func (d *transact) Check(ctx context.Context, call runtime.Call) error {
	return runtime.Check(ctx, d.next, call)
}

// Prepare implements [runtime.Preparer]: what it returns commits with EXECUTING.
func (d *transact) Prepare(ctx context.Context, call runtime.Call) (list []chain.Attachment, err error) {
	t, err := d.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	prepared := false
	defer func() {
		if !prepared { // an error, or a panic of the other Prepare, which goes on
			list, err = nil, joined(err, t.abandon(ctx))
		}
	}()
	if list, err = t.attachments(ctx); err != nil {
		return nil, err
	}
	if p, ok := d.next.(runtime.Preparer); ok {
		more, err := p.Prepare(ctx, call)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	d.state.family.prepared(t)
	prepared = true
	return list, nil
}

// prepared keeps a transaction until its call is dispatched.
func (f *family) prepared(t *Tx) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[t.call.TraceID] = t
}

// begin checks a call and begins its transaction.
func (d *transact) begin(ctx context.Context, call runtime.Call) (*Tx, error) {
	s := d.state
	if s.family.store != nil {
		s.family.mu.Lock()
		_, leased := s.family.leased[call.TraceID]
		old := s.family.calls[call.TraceID]
		delete(s.family.calls, call.TraceID)
		s.family.mu.Unlock()
		if !leased {
			return nil, tga.Errorf(tga.GenericStateError, "the runtime was not made on the state's Store").In(call.TraceID)
		}
		if old != nil { // prepared, and then not begun: the run looks at the key again
			if err := old.giveUp(ctx, tga.ToolError, "the call was not sent"); err != nil {
				return nil, err
			}
		}
	}
	if err := runtime.Check(ctx, d.next, call); err != nil {
		return nil, err
	}
	if s.opts.Policy != nil {
		if err := guarded(func() error { return s.opts.Policy(ctx, call) }); err != nil {
			code := codeOr(err, tga.PolicyViolation)
			if code == tga.ToolError {
				code = tga.PolicyViolation // the policy panicked: it did not permit
			}
			return nil, tga.Errorf(code, "%s on %s: %w", call.Tool, call.Server, err).In(call.TraceID)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, tga.Errorf(tga.ToolTimeout, "%s on %s: no time is left: %w", call.Tool, call.Server, err).In(call.TraceID)
	}
	var uses []string
	if s.opts.Uses != nil {
		uses = s.opts.Uses(call.Server, call.Tool)
	}
	return s.begin(ctx, boundaryCall, call, uses, "")
}

// take returns the transaction that Prepare began. It begins a new one for a call that is
// sent again, and for a dispatcher that is used without a runtime.
func (d *transact) take(ctx context.Context, call runtime.Call) (*Tx, error) {
	f := d.state.family
	f.mu.Lock()
	t := f.calls[call.TraceID]
	f.mu.Unlock()
	if t != nil && t.opened && t.state == d.state {
		return t, nil
	}
	t, err := d.begin(ctx, call)
	if err != nil {
		return nil, err
	}
	if err := t.persistOpen(ctx); err != nil {
		return nil, joined(err, t.abandon(ctx))
	}
	if f.store != nil {
		f.prepared(t)
	}
	return t, nil
}

// Dispatch implements [runtime.Dispatcher].
func (d *transact) Dispatch(ctx context.Context, call runtime.Call) (runtime.Reply, error) {
	t, err := d.take(ctx, call)
	if err != nil {
		return runtime.Reply{}, notSent(call, err)
	}
	reply, err := d.run(context.WithValue(ctx, txKey{}, t), call)
	if err != nil {
		return runtime.Reply{}, d.undone(ctx, t, call, err)
	}
	reply = d.concluded(ctx, t, reply)
	list, err := t.attachments(ctx)
	switch {
	case d.state.family.store == nil:
		t.settle(ctx, true)
	case err != nil:
		// The nodes could not be written ahead. An effect without its boundary would
		// claim a state that is stored nowhere. So the call is left in doubt.
		return runtime.Reply{}, err // Release gives the transaction up
	}
	reply.Attachments = append(reply.Attachments, list...)
	return reply, nil
}

// notSent marks a refusal as [runtime.ErrNotSent]: the call reached no tool.
func notSent(call runtime.Call, cause error) error {
	// One %w: the error type has one cause.
	return tga.Errorf(codeOr(cause, tga.ToolError), "%w", fmt.Errorf("%w: %w", runtime.ErrNotSent, cause)).In(call.TraceID)
}

// run sends the call and turns a panic into a failed result.
func (d *transact) run(ctx context.Context, call runtime.Call) (reply runtime.Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply, err = runtime.Reply{Status: tga.StatusFailure, ErrorCode: string(tga.ToolError), ErrorMessage: clip.Bytes(fmt.Sprintf("panic: %v", p), 200)}, nil
		}
	}()
	return d.next.Dispatch(ctx, call)
}

// undone ends the transaction of a call that has no answer.
func (d *transact) undone(ctx context.Context, t *Tx, call runtime.Call, cause error) error {
	code := codeOr(cause, tga.ToolError)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(cause, runtime.ErrNotSent) {
		code = tga.ToolTimeout
		cause = tga.Errorf(code, "%s on %s: no answer before the deadline: %w", call.Tool, call.Server, cause).In(call.TraceID)
	}
	_, restored := t.finish(ctx, false, code, cause.Error())
	done := t.persistDone(ctx)
	d.state.family.mu.Lock()
	delete(d.state.family.calls, call.TraceID)
	d.state.family.mu.Unlock()
	d.observe(ctx, t.invoked(false, code))
	t.report(done)
	return joined(cause, restored)
}

// concluded ends the transaction of a call that was answered, and returns the answer. If
// the transaction did not commit, the answer becomes a failure.
func (d *transact) concluded(ctx context.Context, t *Tx, reply runtime.Reply) runtime.Reply {
	success := reply.Status == tga.StatusSuccess
	code := tga.Code(reply.ErrorCode)
	if !success && code == "" {
		code = tga.ToolError
	}
	failed, restored := t.finish(ctx, success, code, reply.Summary)
	if cause := joined(failed, restored); cause != nil {
		// The tool's own answer is kept: what it did outside stands.
		code = codeOr(cause, tga.GenericStateError)
		success = false
		reply.Status, reply.ErrorCode, reply.ErrorMessage = tga.StatusFailure, string(code), clip.Bytes(cause.Error(), 200)
		reply.Class = 0
	}
	d.observe(ctx, t.invoked(success, code))
	return reply
}

// observe tells the observer. Its error or panic is only logged: the outcome is decided.
func (d *transact) observe(ctx context.Context, done ToolInvoked) {
	o := d.state.opts
	if o.Observe == nil {
		return
	}
	if err := guarded(func() error { return o.Observe(ctx, done) }); err != nil {
		o.Logger.Warn("an observer of tool calls failed", "call", done.ToolCallID, "tool", done.Tool, "error", err)
	}
}
