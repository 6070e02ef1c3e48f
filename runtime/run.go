package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// loop is one run over one trace, under its lease.
//
// What a run has decided but not yet committed is staged: nothing outside may depend
// on it. Request, decision and call can thus share one sync, because nothing touches
// the world between them.
type loop struct {
	store  Store
	timers *timers // woken when a timer that this run set is durable
	lease  chain.Lease
	policy Policy
	head   chain.Head // durable
	// trace is the durable trace as this run read it under its lease, or as its newest append
	// left it; nil if that is not known. See [loop.known].
	trace  *chain.Trace
	state  tga.State // after head and staged
	staged []chain.NewArtifact

	request, decision, call, effect *tga.Artifact      // durable or staged
	submitter                       string             // who submitted the request
	asker                           string             // who relies on the answer of this run
	decider                         string             // remote supervisor that appended the decision; "" = decided here
	sender                          Origin             // of the newest attempt, when the run began
	callID                          tga.ID             // of the call, chosen before it is minted
	notes                           []chain.NewNote    // commit with what is staged
	attachments                     []chain.Attachment // likewise
	prepared                        []chain.Attachment // likewise, and dropped when the call is unstaged
	whole, answer                   []byte             // whole arguments and answer, if only a redacted form is stored
	namespace                       string
	deadline                        tga.Millis // 0 = none
	begun                           tga.Millis // ts of the genesis entry; 0 = not durable yet

	// attempt is a durable attempt, marked under this lease, that has not been sent;
	// 0 is none. It alone permits a send, or handing a permit to a remote executor.
	attempt uint32
	// decided is when the attempt in hand was decided on, and within how long after that its
	// send may begin; 0 = no bound.
	decided clock.Reading
	within  time.Duration
	// attempted is the licence that the newest attempt was made under; nil if there is no attempt or the log names no licence.
	attempted *ledger.Licence
	// rested is the attempt after which this run has waited, so that the next one is due.
	// cleared is the attempt of which the tool server says that no attempt so far ran or ever will.
	rested, cleared uint32
	// resends counts the licensed re-sends of this run. doubt is the reason why the newest
	// send has no answer.
	resends int
	doubt   error
	// doubtSince is when the call came into doubt; 0 = it is not in doubt, or the time is not known.
	doubtSince tga.Millis
	// doubtBefore is why the newest attempt of an earlier run has no answer; "" = not known.
	doubtBefore string
	// rests is the Retry-After that the tool server gave when the newest attempt ended in doubt,
	// at restsSince.
	rests      time.Duration
	restsSince tga.Millis
	// span is the traceparent of the current step, "" without tracing.
	span string
	// looks counts how often the key changed between reading its record and the append.
	looks int
	// unused is a key that was looked up just before this run and had no record; see
	// [loop.record].
	unused ledger.Key
	// supervised is set if this run asked the supervisor about the request, and has not
	// waited since.
	supervised bool
	// helped is the last trace that this run tried to finish because it had reserved the key.
	helped tga.ID
	// awaited is the last trace for whose outcome this run waited: this run gets the same outcome.
	awaited tga.ID
	// remote is set if a remote executor sends the call: see [Runtime.Begin].
	remote *remote

	// confirms is set if a settled record is confirmed before it is served, and
	// confirmation is the finding.
	confirms     bool
	confirmation *Confirmation
	// timer is when the trace's outstanding timer is due; 0 = it has none.
	timer tga.Millis
	// origin is the lease of the trace that this one undoes; zero for an ordinary call.
	origin chain.Lease
}

// driver is the loop as the types see it that begin or end a call.
type driver interface {
	// start makes the loop of a fresh call.
	start(ctx context.Context, req Request) (*loop, error)
	// drive runs a loop; an error says why its trace is not terminal.
	drive(ctx context.Context, l *loop) error
	// finish is drive, and returns the result of the trace.
	finish(ctx context.Context, l *loop) (Result, error)
	// run is drive for a call that a remote executor sends. It does not check whether another
	// run has overtaken this one: the next append finds that out.
	run(ctx context.Context, l *loop) error
	// settled returns the result of a run that reached a terminal state.
	settled(ctx context.Context, l *loop, wasTerminal bool) (Result, error)
}

// run drives a trace from its current state to a terminal state, or until it must
// wait. A fresh call and a recovered call run this same loop; they differ only in the state
// that they enter with. Recovery writes nothing else than this loop writes, so after a crash
// at any point the loop simply runs again.
func (rt *Runtime) run(ctx context.Context, l *loop) error {
	release, err := rt.holdOrigin(ctx, l)
	if err != nil {
		return err
	}
	defer release()
	for {
		ctx, span := rt.spans.step(ctx, l)
		switch l.state {
		case tga.Pending:
			// W1: nothing was decided. Ask, and stage the decision.
			err = rt.decide(ctx, l)

		case tga.Authorized:
			if l.awaitsExecutor() {
				// A remote executor began the call, and sends it when it calls Begin again.
				return rt.leaveToExecutor(ctx, l)
			}
			// W2: nothing was sent. Ask the ledger about the key: reserve it and mark
			// attempt 1, both durable before anything is sent; or serve, wait, refuse.
			err = rt.reserve(ctx, l)

		case tga.Executing:
			switch {
			case l.attempt == 0:
				// W3, W4: this run has no attempt in hand. Only the ledger and the
				// operator's licence can give it one.
				err = rt.license(ctx, l)
			case l.remote != nil:
				// The attempt goes to a remote executor with its permit; this process
				// sends nothing.
				return nil
			default:
				err = rt.send(ctx, l)
			}

		case tga.Completed, tga.Failed, tga.Denied:
			// W5: terminal. The staged artifacts become durable before anybody is answered,
			// even if the caller no longer waits: an answer of a tool is evidence.
			err = rt.commit(context.WithoutCancel(ctx), l)
			span.end(l, err)
			return err

		default:
			return tga.Errorf(tga.StateRecoveryFailed, "run: trace in state %d", l.state).In(l.lease.TraceID)
		}
		span.end(l, err)
		if err != nil {
			return err
		}
	}
}

// reserve continues an AUTHORIZED trace. It ends in EXECUTING with attempt 1 in hand, or
// serves a recorded effect, or refuses the call, or waits for another trace that has the key.
func (rt *Runtime) reserve(ctx context.Context, l *loop) error {
	if rt.clock.pastDeadline(l) {
		return rt.ends.refuse(ctx, l, tga.ToolTimeout, "the deadline passed before the call was sent")
	}
	key, err := rt.mint.key(l)
	if err != nil {
		// When the request was made, the tool was a read tool. Without this end the call would wait for ever.
		return rt.ends.refuse(ctx, l, tga.CodeOf(err), "%w", err)
	}
	record, err := l.record(ctx, key)
	if err != nil {
		return err
	}
	if err := sameSubject(ctx, rt.store, key.Key, l.request.Meta.String(tga.MetaSubject), record); err != nil {
		// The other call reserved the key after this one was begun.
		return rt.ends.refuse(ctx, l, tga.CodeOf(err), "%w", err)
	}
	q := rt.queries.of(l, record)
	d := ledger.Decide(q)
	switch d.Action {
	case ledger.Send:
		return rt.take(ctx, l, record, d.Attempt)
	case ledger.Serve:
		return rt.records.serve(ctx, l, record)
	case ledger.Wait, ledger.Doubt:
		if again, err := rt.leaveToHolder(ctx, l, key, record); again || err != nil {
			return err
		}
	}
	return rt.refuseKey(ctx, l, key, record, d, q.Suspect)
}

// take checks once more that the rules, the capability and the dispatcher allow the call. Then
// it reserves the key and marks attempt 1, in one append.
func (rt *Runtime) take(ctx context.Context, l *loop, record *ledger.Record, attempt uint32) error {
	if !l.sendable() {
		if err := l.commit(ctx); err != nil {
			return err
		}
		return errNotAtHand(l)
	}
	if code, why, err := barred(ctx, rt, l); err != nil {
		return err
	} else if why != nil {
		return rt.ends.refuse(ctx, l, code, "%w", why)
	}
	if err := rt.admission.prepare(ctx, l); err != nil {
		return rt.ends.refuse(ctx, l, codeOr(err, tga.ToolError), "prepare: %w", err)
	}
	if err := rt.stageCall(ctx, l, record); err != nil {
		return err
	}
	err := l.commit(ctx)
	if errors.Is(err, tga.IdempotencyKeyInFlight) || errors.Is(err, tga.IdempotencyKeyConflict) {
		// Another trace reserved the key after its record was read, so the append wrote
		// nothing. Read the record again.
		l.unstageCall()
		return nil
	}
	if err != nil {
		return err
	}
	l.attempt = attempt // durable: the EXECUTING entry is attempt 1
	rt.counts.reserved.Add(1)
	return nil
}

// barred returns why a call must not have its first send, with the code of the refusal: the current rules
// forbid it, its decision does not carry a capability that holds now, or what it undoes is out of reach.
func barred(ctx context.Context, rt *Runtime, l *loop) (code tga.Code, why, err error) {
	if why, err = rt.rules.forbidden(ctx, l); why != nil || err != nil {
		return tga.PolicyViolation, why, err
	}
	if why = rt.tokens.check(ctx, l); why == nil {
		why, err = rt.compensations.undoable(ctx, l)
	}
	return codeOr(why, tga.CapabilityInvalid), why, err
}

// leaveToHolder lets the trace that has the key finish: it waits while somebody runs that trace,
// and otherwise runs it itself. again says that the record must be read again. If again is
// false, the record has not changed and nobody executes its call.
func (rt *Runtime) leaveToHolder(ctx context.Context, l *loop, key ledger.Key, record *ledger.Record) (again bool, err error) {
	if record == nil || record.Status != ledger.Reserved {
		return false, nil // the key is suspect (quarantine), and there is nobody to wait for
	}
	if rt.queries.holder(l, record) != ledger.HolderGone {
		return true, rt.waits.await(ctx, l, key, record)
	}
	if record.TraceID != l.helped {
		// Nobody runs the trace that has the key. Run it, once: if its licence permits an
		// outcome, it has that outcome now and not only after the next start.
		l.helped = record.TraceID
		return true, rt.help(ctx, l, record.TraceID)
	}
	// The record was read before the holder was looked up, and the holder may have ended the
	// call in between. The call is in doubt only if its record is unchanged.
	now, err := rt.store.Record(ctx, key)
	return err != nil || now == nil || *now != *record, err
}

// refuseKey ends a trace whose key belongs to another trace. While a quarantine makes the key
// suspect, the trace stays as it is and waits.
func (rt *Runtime) refuseKey(ctx context.Context, l *loop, key ledger.Key, record *ledger.Record, d ledger.Decision, suspect bool) error {
	holder, rests := "", time.Duration(0)
	if record != nil {
		holder = " (trace " + record.TraceID.String() + ")"
		if d.Action == ledger.Doubt {
			t, err := rt.store.Load(ctx, record.TraceID)
			if err != nil {
				return err
			}
			if before := doubtOf(t); before.Cause != "" {
				holder += ": " + before.Cause
			}
			rests = rt.clock.restsFor(askedBefore(t))
		}
	}
	if suspect && d.Action == ledger.Doubt {
		// The trace stays as it is until the quarantine ends: whether its call ran is not known.
		return tga.Errorf(d.Code, "key %q: %s%s", key.Key, d.Reason, holder).In(l.lease.TraceID)
	}
	err := rt.ends.refuse(ctx, l, d.Code, "key %q: %s%s", key.Key, d.Reason, holder)
	var refusal *tga.Error
	if errors.As(err, &refusal) {
		refusal.RetryAfter = rests
	}
	return err
}

// license looks for an attempt that may be sent, for an EXECUTING trace with no attempt in
// hand. If there is none, the run ends in doubt. Doubt itself needs no entry: a durable
// attempt without a durable effect is in doubt.
func (rt *Runtime) license(ctx context.Context, l *loop) error {
	key := ledger.KeyOf(l.namespace, l.call)
	// Not the caller's context: once a call may have run, the answer is an effect or
	// in doubt, never "cancelled".
	record, err := rt.store.Record(context.WithoutCancel(ctx), key)
	if err != nil {
		return err
	}
	if record == nil || record.TraceID != l.lease.TraceID {
		return tga.Errorf(tga.StateRecoveryFailed, "key %q is not reserved by the executing trace", key.Key).In(l.lease.TraceID)
	}
	return rt.licensed(ctx, l, record)
}

// licensed marks the next attempt if the ledger and the licence of now permit it. It decides again
// after a pause and after a question to the tool server. So nothing that takes long stands between
// a decision and its mark, and a licence that the operator takes back meanwhile permits nothing.
func (rt *Runtime) licensed(ctx context.Context, l *loop, record *ledger.Record) error {
	l.decided = rt.clock.Read()
	q := rt.queries.of(l, record)
	d := ledger.Decide(q)
	l.within = d.Within
	if d.Action == ledger.Resend || d.Action == ledger.ProbeFirst || d.Action == ledger.Doubt {
		l.inDoubtSince(record.Attempts.Newest)
	}
	switch d.Action {
	case ledger.Send, ledger.Resend:
	case ledger.ProbeFirst:
		if l.cleared != record.Attempts.Count {
			if err := rt.probes.probe(ctx, l, record); err != nil || l.cleared != record.Attempts.Count {
				return err
			}
			return rt.licensed(ctx, l, record)
		}
	case ledger.Wait:
		return tga.Errorf(tga.IdempotencyKeyInFlight, "a remote executor is executing attempt %d", record.Attempts.Count).In(l.lease.TraceID)
	default:
		return rt.doubts.leave(ctx, l)
	}
	switch again := d.Action != ledger.Send; {
	case again && (ctx.Err() != nil || !l.sendable()):
		return rt.doubts.leave(ctx, l)
	case !l.sendable():
		return errNotAtHand(l)
	}
	switch d.Action {
	case ledger.Send:
		// Provably the first send. The caller may have given up long ago.
		if rt.clock.pastDeadline(l) {
			return rt.ends.stageNotSent(l, 0, tga.ToolTimeout, "the deadline passed before the call was sent", 0)
		}
		if code, why, err := barred(ctx, rt, l); err != nil {
			return err
		} else if why != nil {
			return rt.ends.stageNotSent(l, 0, code, why.Error(), 0)
		}
	case ledger.Resend, ledger.ProbeFirst:
		if l.rested != record.Attempts.Count {
			if err := rt.doubts.rest(ctx, l, record.Attempts.Count); err != nil {
				return err
			}
			return rt.licensed(ctx, l, record)
		}
	}
	return rt.mark(ctx, l, record.Attempts.Count+1, q.Licence, d.Action)
}

// mark makes an attempt durable and takes it in hand, under the licence that was decided on.
func (rt *Runtime) mark(ctx context.Context, l *loop, attempt uint32, licence ledger.Licence, action ledger.Action) error {
	notes, err := rt.licences.note(l, attempt, licence)
	if err != nil {
		return err
	}
	l.notes = append(append(l.notes, notes...), rt.executors.mark(l, attempt))
	l.attachments = append(l.attachments, rt.executors.begins(l, attempt)...)
	// Sync the mark before the send. Otherwise a crash after the send would leave a log
	// in which this send never happened. Not the caller's context: what the tool server said
	// commits with the mark.
	if err := l.commit(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if action != ledger.Send {
		rt.counts.resent.Add(1)
	}
	l.attempt = attempt
	return nil
}

// send spends the attempt in hand and records the answer.
func (rt *Runtime) send(ctx context.Context, l *loop) error {
	attempt := l.attempt
	l.attempt = 0 // spent before the send: whatever becomes of it, it is not sent again
	if why := rt.tooLate(ctx, l, attempt); why != nil {
		return rt.ends.notSent(context.WithoutCancel(ctx), l, attempt, why)
	}
	sendCtx, cancel := context.WithTimeoutCause(sending(ctx), l.policy.SendTimeout, ErrSendTimeout)
	defer cancel()
	sendCtx, end := rt.store.While(sendCtx, l.lease)
	defer end()
	rt.counts.sent.Add(1)
	reply, err := rt.tools.Dispatch(sendCtx, l.sentCall(attempt))
	// From here on the caller's context no longer matters: the tool may have run, and its
	// answer is appended even if nobody waits for it any more.
	ctx = context.WithoutCancel(ctx)
	err = rt.redact.cause(l.sentCall(attempt), err)

	switch {
	case err == nil:
		return rt.ends.stageEffect(ctx, l, attempt, reply)
	case errors.Is(err, ErrNotSent):
		return rt.ends.notSent(ctx, l, attempt, err)
	default:
		rt.doubts.add(l, attempt, err, tga.RetryAfterOf(err))
		return nil // EXECUTING without an attempt in hand: the licence decides
	}
}

// tooLate says why the attempt in hand must not be sent any more. The mark may have taken long, or
// the process was stopped. The question to the store may take long too, so it comes first.
func (rt *Runtime) tooLate(ctx context.Context, l *loop, attempt uint32) error {
	if !rt.store.Current(l.lease) {
		// Somebody overtook this run, and the store refuses what it appends; or the store cannot
		// say so now, and what it appends says that nothing was sent.
		return errLeaseUnknown
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if attempt == 1 && rt.clock.pastDeadline(l) {
		return errDeadline
	}
	if passed := rt.clock.Since(l.decided); l.within != 0 && (passed < 0 || passed >= l.within) {
		// The server may have forgotten the key by now, so the licence no longer permits this
		// send. If the clock went back, nobody knows how long it took.
		return errWindowClosed
	}
	return nil
}

var (
	errLeaseUnknown = errors.New("the store could not say that this process still has the call")
	errDeadline     = tga.Errorf(tga.ToolTimeout, "the deadline passed before the call was sent")
	errWindowClosed = errors.New("the time within which the call could be sent ended before the send")
)
