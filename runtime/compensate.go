package runtime

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// compensations undoes settled effects.
type compensations struct {
	store    Store
	results  *results
	inverses func(call *tga.ToolCall, effect *tga.ToolEffect, result []byte) (Inverse, bool, error) // [Trust.Inverse]; nil has none
	calls    driver
}

// Compensate undoes the settled effect of a trace by the call that the tool's
// configuration names. That call is governed like any other: requested, decided, sent once by
// its key, recorded. Its trace and key are derived from the undone call's id, so a repeated
// Compensate, also after a crash, goes on with the same call. The undone trace's outcome
// becomes compensated in the same batch that records the effect of the undoing call.
//
// It returns like [Runtime.Call], about the undoing trace. STATE_INVALID_TRANSITION
// if there is nothing to undo: the trace is not settled, changed nothing, was served
// from another trace or abandoned; NOT_FOUND if the tool has no inverse.
func (rt *Runtime) Compensate(ctx context.Context, trace tga.ID, who string) (res Result, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.compensate", trace, "", "")
	defer span.end(&res, &err)
	if n := len(who); n < 1 || n > 255 {
		return Result{TraceID: trace}, tga.Errorf(tga.ValidationError, "who has %d bytes, want 1..255", n).At("/who").In(trace)
	}
	return rt.compensations.undo(ctx, trace, who, nil)
}

// undo does what Compensate does; key is the key of the timer that it ends, nil for none.
func (cp *compensations) undo(ctx context.Context, trace tga.ID, who string, key []byte) (Result, error) {
	t, err := cp.store.Load(ctx, trace)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	if by := compensatedBy(t); !by.IsZero() {
		res, err := cp.results.of(ctx, by)
		res.Replayed = true
		return res, err
	}
	req, err := cp.undoing(ctx, t)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	req.Submitter = who
	if err := cp.follow(ctx, &req, key == nil); err != nil {
		return Result{TraceID: req.TraceID}, err
	}
	l, err := cp.calls.start(ctx, req)
	if err != nil {
		return Result{TraceID: req.TraceID}, err
	}
	defer cp.store.Release(l.lease)
	if key != nil {
		l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachTimer, Key: key})
	}
	return cp.calls.finish(ctx, l)
}

// follow makes the request a new attempt if earlier ones certainly did not run. Its trace is the one that a timer
// makes for a new attempt. Only a person makes an undoing again that was refused before it was sent: a timer would make
// a trace of each of its tries, as long as the reason is there.
func (cp *compensations) follow(ctx context.Context, req *Request, person bool) error {
	for {
		t, err := cp.store.Load(ctx, req.TraceID)
		if errors.Is(err, tga.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case t.Effect == nil && t.Head.State == tga.Failed && person: // it was erased
			record, err := cp.store.Record(ctx, req.ledgerKey())
			if err != nil || record != nil && record.TraceID == t.ID && !record.Class.Releases() {
				return err
			}
		case t.Effect == nil: // it is open or was denied
			return nil
		case ledger.NeverSent(t.Call) && !(person && t.Effect.Meta[tga.MetaReplayedFrom] == nil):
			return nil
		case !ledger.NeverSent(t.Call) && !ledger.ClassOf(t.Effect).Releases():
			return nil
		}
		req.TraceID, req.Retry = retryID(t), true
	}
}

// undoing makes the request that undoes a trace.
func (cp *compensations) undoing(ctx context.Context, t *chain.Trace) (Request, error) {
	refuse := func(code tga.Code, format string, args ...any) (Request, error) {
		return Request{}, tga.Errorf(code, "compensate: "+format, args...).In(t.ID)
	}
	if t.Request == nil {
		return refuse(tga.StateInvalidTransition, "the trace is erased, and with it what would undo it")
	}
	if t.Effect == nil || t.Call == nil || ledger.NeverSent(t.Call) {
		return refuse(tga.StateInvalidTransition, "the trace is %s and has no effect of its own", t.Head.State)
	}
	record, err := cp.store.Record(ctx, ledger.KeyOf(t.Namespace, t.Call))
	if err != nil {
		return Request{}, err
	}
	switch {
	case record == nil || record.TraceID != t.ID || record.Status != ledger.Settled:
		return refuse(tga.StateInvalidTransition, "its key is not settled by it")
	case record.Abandoned:
		return refuse(tga.StateInvalidTransition, "the call was abandoned: whether there is anything to undo is unknown")
	case record.Class != ledger.ClassCommitted && record.Class != ledger.ClassCompensatable && record.Class != ledger.ClassCompensated:
		return refuse(tga.StateInvalidTransition, "its outcome is %v: there is nothing to undo", record.Class)
	}
	inverse, ok, err := cp.inverse(t)
	if err != nil {
		return Request{}, err
	}
	if (isRedacted(t.Request) || isRedacted(t.Effect)) && bytes.Contains(inverse.Args, []byte("[REDACTED:")) {
		return refuse(tga.NotFound, "%s on %s needs what was redacted: its effect stands", t.Call.Call.Call.ToolName, t.Call.Call.Call.ToolServer)
	}
	if !ok {
		return refuse(tga.NotFound, "%s on %s has no inverse: its effect stands", t.Call.Call.Call.ToolName, t.Call.Call.Call.ToolServer)
	}
	id := derivedID("tgad compensation v1", t.ID, tga.Sum(t.Call.ID[:]))
	return Request{
		TraceID: id, Server: inverse.Server, Tool: inverse.Tool, Args: inverse.Args,
		Key: "undo-" + t.Call.ID.String(), Namespace: t.Namespace, PlanID: t.Request.PlanID,
		AgentID: t.Request.Request.AgentID, Risk: tga.RiskWrite,
		Intent: "undo call " + t.Call.ID.String() + " of trace " + t.ID.String(),
		own:    tga.Meta{tga.MetaCompensates: t.ID.String()},
	}, nil
}

func (cp *compensations) inverse(t *chain.Trace) (Inverse, bool, error) {
	f := cp.inverses
	if f == nil {
		return Inverse{}, false, nil
	}
	var result []byte
	for _, d := range t.Documents {
		if d.Pointer == tga.PointerResult {
			result = d.Data
		}
	}
	in, ok, err := f(t.Call.Call, t.Effect.Effect, result)
	if err != nil {
		return in, ok, tga.Errorf(codeOr(err, tga.ValidationError), "the inverse of %s on %s: %w", t.Call.Call.Call.ToolName, t.Call.Call.Call.ToolServer, err).In(t.ID)
	}
	return in, ok, nil
}

// compensatedBy returns the trace that undid t's effect, zero if none did.
func compensatedBy(t *chain.Trace) tga.ID {
	for i := range t.Notes {
		if t.Notes[i].Kind != tga.NoteCompensated {
			continue
		}
		if u, err := ledger.ParseUndone(t.Notes[i].Body); err == nil {
			return u.TraceID
		}
	}
	return tga.ID{}
}

// holdOrigin takes the lease of the trace that this one undoes, so that one batch can
// settle both when the tool has answered: the answer must not wait for a lease then.
func (rt *Runtime) holdOrigin(ctx context.Context, l *loop) (release func(), err error) {
	of := l.request.Meta.String(tga.MetaCompensates)
	if of == "" || l.head.State.Terminal() {
		return func() {}, nil
	}
	id, err := tga.ParseID(of)
	if err != nil {
		return nil, tga.Errorf(tga.StateRecoveryFailed, "meta.compensates: %w", err).In(l.lease.TraceID)
	}
	waitCtx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	// What a person says about the undoing call does not wait for the run that sends it, and that holds this lease too.
	if l.origin, err = rt.store.Overtake(waitCtx, id, !l.state.Terminal()); err != nil {
		return nil, tga.Errorf(codeOr(err, tga.StateLockAcquireFailed), "the trace %s that is to be undone is held: %w", id, err).In(l.lease.TraceID)
	}
	return func() { rt.store.Release(l.origin) }, nil
}

// undone returns the part of the batch that settles the trace which this one undoes. It is nil
// unless the batch has the effect of a successful undoing.
func (l *loop) undone() (*chain.Also, error) {
	if l.origin.TraceID.IsZero() || l.effect == nil || !ledger.ClassOf(l.effect).Done() || ledger.NeverSent(l.call) ||
		!slices.ContainsFunc(l.staged, func(a chain.NewArtifact) bool { return a.Artifact == l.effect }) {
		return nil, nil
	}
	body, err := ledger.Undone{EffectDigest: l.effect.Digest, TraceID: l.lease.TraceID}.Body()
	if err != nil {
		return nil, err
	}
	return &chain.Also{Lease: l.origin, Notes: []chain.NewNote{{Kind: tga.NoteCompensated, Who: whoRuntime, Body: body}}}, nil
}

// takesNone reports whether an append failed because a trace that has ended takes no note any more: it was
// erased or archived.
func takesNone(err error, trace tga.ID) bool {
	var e *tga.Error
	return errors.As(err, &e) && e.Code == tga.StateInvalidTransition && e.TraceID == trace
}

// undoable returns why the trace that l undoes cannot take the note of its undoing, as long as nothing is
// sent: without the note, the undone record would be served for ever as one that stands. While this run holds
// the lease of that trace, nobody erases or archives it. It returns an error if that cannot be found out.
func (cp *compensations) undoable(ctx context.Context, l *loop) (why, err error) {
	id := l.origin.TraceID
	if id.IsZero() {
		return nil, nil
	}
	t, err := cp.store.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	if readable(t) == nil {
		// The store tells an archived trace from another one when something is appended. This changes nothing.
		gone := chain.Attachment{Kind: chain.AttachStream, Key: keyspace.ExecutorKey(id)}
		if _, err = cp.store.Append(ctx, l.origin, chain.Batch{Attachments: []chain.Attachment{gone}}); err == nil || !takesNone(err, id) {
			return nil, err
		}
	}
	return tga.Errorf(tga.StateInvalidTransition, "trace %s was erased or archived: its undoing cannot be recorded with it", id), nil
}

// PlanStep is one effect in a rollback plan.
type PlanStep struct {
	TraceID       tga.ID
	Server, Tool  string
	Settled       time.Time // when the effect was recorded; zero where there is none
	State         tga.State
	Class         ledger.Class
	CanUndo       bool
	Inverse       Inverse // with CanUndo
	CompensatedBy tga.ID  // trace that undid it already
	Why           string  // why it cannot be undone, or need not be
}

// RollbackPlan says what undoing a set of traces would do, the newest effect first,
// and which effects cannot be undone. It changes nothing.
func (rt *Runtime) RollbackPlan(ctx context.Context, traces []tga.ID) ([]PlanStep, error) {
	return rt.compensations.plan(ctx, traces)
}

// newestFirst orders effects for their undoing. Times are in milliseconds. Of two effects in the same millisecond,
// the one whose call began later, and so has the greater id, comes first.
func newestFirst(a, b PlanStep) int {
	return cmp.Or(b.Settled.Compare(a.Settled), bytes.Compare(b.TraceID[:], a.TraceID[:]))
}

func (cp *compensations) plan(ctx context.Context, traces []tga.ID) ([]PlanStep, error) {
	plan := make([]PlanStep, 0, len(traces))
	for _, id := range traces {
		t, err := cp.store.Load(ctx, id)
		if err != nil {
			return nil, err
		}
		s := PlanStep{TraceID: id, State: t.Head.State, CompensatedBy: compensatedBy(t)}
		if t.Request != nil {
			s.Server, s.Tool = t.Request.Request.Proposal.ToolServer, t.Request.Request.Proposal.ToolName
		}
		if t.Effect != nil {
			s.Class, s.Settled = ledger.ClassOf(t.Effect), t.Effect.TS.Time()
		}
		if s.CompensatedBy.IsZero() {
			req, err := cp.undoing(ctx, t)
			var coded *tga.Error
			switch {
			case err == nil:
				s.CanUndo, s.Inverse = true, Inverse{req.Server, req.Tool, req.Args}
			case errors.Is(err, tga.StoreUnavailable) || !errors.As(err, &coded):
				return nil, err
			default:
				s.Why = coded.Message
			}
		} else {
			s.Why = "undone by trace " + s.CompensatedBy.String()
		}
		plan = append(plan, s)
	}
	slices.SortFunc(plan, newestFirst)
	return plan, nil
}
