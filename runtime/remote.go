package runtime

import (
	"context"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// remote marks a loop whose call a remote executor sends.
type remote struct {
	beginID, submitter, lock string
	asks                     bool            // the person at the client can be asked
	claim                    *ledger.Licence // what the program says a repetition would do; nil = nothing
	// begun is the row that leads from the begin id to this trace. It is zero if the row is in
	// the store already or among the staged attachments.
	begun chain.Attachment
}

// Standing is the answer to a Begin.
type Standing string

// Answers to a Begin. Only BeginSend permits a send, and only one per attempt number.
const (
	BeginSend          Standing = "send"           // send the call now, with Begun.Key, then Finish
	BeginServe         Standing = "serve"          // the effect is recorded: Begun.Result
	BeginWait          Standing = "wait"           // another executor executes it: ask again
	BeginNeedsApproval Standing = "needs_approval" // people must decide first: ask again
	BeginDenied        Standing = "denied"         // the supervisor denied it: Begun.Result
	BeginConflict      Standing = "conflict"       // the key belongs to another request
	BeginInDoubt       Standing = "in_doubt"       // an earlier attempt may have run
	BeginStale         Standing = "stale"          // an identical call ran long ago and its answer was lost: Begun.Result
)

// BeginRequest is the request of a remote executor to send a call itself.
type BeginRequest struct {
	Request
	// BeginID is the caller's own name of this Begin, 1..255 bytes, unique and hard to
	// guess. A repeated Begin with the same BeginID and Submitter finds the trace that the
	// first one led to, in whatever state, and the same permit while that is fresh
	// ([Policy].PermitTime). That is the only way to ask again for a lost answer. Afterwards
	// the call is in doubt, or gets a new attempt if its licence allows one. A repeated Begin
	// ignores TraceID.
	BeginID string
	// Connection is the client's connection, if the caller serves clients. With it the runtime
	// distinguishes a new request without a key from a repeat of an identical one
	// ([call.Decide]).
	Connection Connection
	// Hint is what the tool server says of the tool itself: "", [HintReadOnly] or
	// [HintIdempotent]. The runtime does not read it; a daemon whose configuration trusts
	// the server's hints does.
	Hint string
	// Licence is the claim of the program, which runs the tool itself, about what running it
	// again would do. With nil there is no claim, and the operator's licence holds. A claim that
	// allows more than the operator's licence needs [Policy].ClientLicence, and is
	// PERMISSION_DENIED without it: [ledger.CheckClaim].
	Licence *ledger.Licence
	// Delivered are traces whose whole answers have reached this caller, at most
	// [MaxDelivered]. Begin does what [Runtime.Delivered] does for each of them, but in its own
	// append if it makes one. If Begin returns without an error, all are noted; after an error
	// they may be noted or not.
	Delivered []tga.ID
}

// Hints of a tool server about one of its tools: MCP's readOnlyHint and idempotentHint.
const (
	HintReadOnly   = "read_only"
	HintIdempotent = "idempotent"
)

// Begun is the answer to a Begin.
type Begun struct {
	Standing Standing
	Result   Result // TraceID is the trace to Finish, which may be an earlier one
	Attempt  uint32
	Permit   Permit
	// SendWithin is how long after the Begin was asked the send must begin, by the
	// executor's own clocks: [Begun.Late]. It is at most the tool's send time-out, and
	// at most the rest of the permit's time. After it the permit may be stale, the tool server
	// may have forgotten the key of an earlier attempt, or the call's deadline may have passed.
	// 0 means no bound; this runtime never returns 0 with BeginSend.
	SendWithin time.Duration
	Key        string
	// Args are the arguments to send with BeginSend, byte for byte: the canonical form
	// that was digested.
	Args  []byte
	Cause error // for conflict, wait, needs_approval and in_doubt: the coded error
	// Ask says that the person at the client should be asked whether the identical call, or the
	// call in doubt, may run again. Since is when that call was last heard of.
	Ask bool
	// Barred says, with needs_approval, that the caller of this Begin cannot vote: it submitted
	// the request, or lacks the right to decide.
	Barred bool
	Since  tga.Millis
}

// Late reports whether it is too late to begin the send now; asked is the [time.Now] of the call
// of Begin. If it is too late, return the permit with [Runtime.NotSent].
//
// The larger of wall and monotonic time counts: the monotonic clock of many systems stands still while
// the machine sleeps.
func (b Begun) Late(asked time.Time) bool {
	now := time.Now()
	return b.SendWithin != 0 && max(now.Sub(asked), now.Round(0).Sub(asked.Round(0))) >= b.SendWithin
}

// begins answers remote executors: what they may send, and until when.
type begins struct {
	store      Store
	clock      times
	rules      *rules
	executors  *executors
	queries    *queries
	ends       *ends
	traces     *traces
	results    *results
	keys       *derivedKeys
	redact     redactions
	ids        *beginIDs
	stands     *stands
	repeats    *repeats
	deliveries *deliveries
	calls      driver
	demands    *demands
}

// Begin is the first half of a governed call whose send the caller makes: request,
// decision and call become durable in one append, marked as attempt 1 of a remote
// executor. The caller sends only on BeginSend, once, and then calls [Runtime.Finish]
// or [Runtime.NotSent]. A call that was begun is never sent by this process.
//
// The same BeginID for another call is BeginConflict.
//
// A Begin with a key that a remote executor has reserved goes on with that executor's trace.
// With another BeginID it gets wait while the permit is fresh; after that, a new permit if the
// licence allows a re-send, else in_doubt. A Begin that loses the key to another executor while
// it is under way gets wait too, with a trace of its own.
func (rt *Runtime) Begin(ctx context.Context, req BeginRequest) (b Begun, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.begin", req.TraceID, req.Server, req.Tool)
	defer span.end(&b.Result, &err)
	asked := req // begin changes it
	return rt.begins.begin(ctx, &asked)
}

func (bs *begins) begin(ctx context.Context, req *BeginRequest) (b Begun, err error) {
	ctx = InNamespace(ctx, req.Namespace)
	if n := len(req.BeginID); n < 1 || n > 255 {
		return Begun{}, tga.Errorf(tga.ValidationError, "begin_id has %d bytes, want 1..255", n).At("/begin_id")
	}
	if err := req.Connection.validate(); err != nil {
		return Begun{}, err
	}
	if err := bs.queries.licences.admit(req); err != nil {
		return Begun{Result: Result{TraceID: req.TraceID}}, err
	}
	if err := bs.deliveries.check(ctx, req); err != nil {
		return Begun{Result: Result{TraceID: req.TraceID}}, err
	}
	if req.Key != "" {
		// Note these deliveries now: a call with a key may wait long for another call with the key.
		if err := bs.deliveries.noteAll(ctx, req.Delivered); err != nil {
			return Begun{Result: Result{TraceID: req.TraceID}}, err
		}
		req.Delivered = nil
	}
	if err := bs.redact.request(&req.Request); err != nil {
		return Begun{Result: Result{TraceID: req.TraceID}}, err
	}
	asked := *req // own changes it, and the deliveries below are those of the caller
	b, noted, err := bs.own(ctx, &asked)
	if err == nil && !noted {
		err = bs.deliveries.noteAll(ctx, req.Delivered)
	}
	return b, err
}

// own does the work of begin. noted says that an append of the call noted the deliveries.
func (bs *begins) own(ctx context.Context, req *BeginRequest) (b Begun, noted bool, err error) {
	own, err := bs.ids.own(ctx, req)
	if err != nil {
		b, err = begun(Begun{Result: Result{TraceID: firstID(own.trace, req.TraceID)}}, err)
		return b, false, err
	}
	defer own.release()
	var mine string
	if own.trace.IsZero() {
		mine = bs.repeats.ruled(req)
	}
	d, err := bs.deliveries.carry(ctx, req, mine)
	if err != nil {
		b, err = begun(Begun{Result: Result{TraceID: req.TraceID}}, err)
		return b, false, err
	}
	defer d.release()
	r, err := bs.repeats.identify(ctx, req, mine, d.mine)
	if err != nil {
		b, err = begun(Begun{Result: Result{TraceID: req.TraceID}}, err)
		return b, false, err
	}
	if own.trace.IsZero() {
		if err := bs.stands.lead(ctx, req, ""); err != nil {
			b, err = begun(Begun{Result: Result{TraceID: req.TraceID}}, err)
			return b, false, err
		}
	}
	if r != nil {
		if b, told, err := bs.repeats.told(ctx, r); told || err != nil {
			return b, false, err
		}
	}
	l, err := bs.open(ctx, *req, &own)
	if err != nil {
		b, err = begun(Begun{Result: Result{TraceID: firstID(own.trace, req.TraceID)}}, err)
		return b, false, err
	}
	defer bs.store.Release(l.lease)
	fresh := l.head.Seq == 0
	if fresh {
		l.attachments = append(l.attachments, d.rows...)
	}
	b, err = bs.standing(ctx, l, r)
	return b, fresh && l.head.Seq > 0, err
}

// standing runs a begun call until its caller has to do something.
func (bs *begins) standing(ctx context.Context, l *loop, r *repeat) (b Begun, err error) {
	if err := bs.enter(ctx, l, r); err != nil {
		return Begun{Result: l.partial()}, err
	}
	ended := l.head.State.Terminal()
	if l.effect == nil && l.call != nil {
		if b, ok, err := bs.same(ctx, l); ok || err != nil {
			return b, err
		}
	}
	if err := bs.calls.run(ctx, l); err != nil {
		own := l.remote.submitter != "" && l.remote.submitter == l.submitter
		b, err := begun(Begun{Result: bs.results.unfinished(ctx, l), Barred: own && !bs.demands.selfApproval()}, err)
		if b.Standing == BeginInDoubt && err == nil {
			err = bs.askAbout(ctx, l, &b)
		}
		return b, err
	}
	if l.attempt != 0 {
		b, inTime, err := bs.sendBy(ctx, l, l.attempt)
		if inTime || err != nil {
			return b, err
		}
		// Writing the mark took too long: nobody gets this attempt.
		if err := bs.ends.notSent(context.WithoutCancel(ctx), l, l.attempt, errWindowClosed); err != nil {
			return begun(Begun{Result: bs.results.unfinished(ctx, l)}, err)
		}
		if err := l.commit(context.WithoutCancel(ctx)); err != nil {
			return Begun{Result: l.partial()}, err
		}
	}
	res, err := bs.calls.settled(ctx, l, ended)
	b = Begun{Standing: BeginServe, Result: res}
	if res.State == tga.Denied {
		b.Standing = BeginDenied
	}
	return b, err
}

// open makes the loop of a Begin: of the trace that its id led to before, or of the trace for
// which a remote executor has reserved the key, or of a new trace.
func (bs *begins) open(ctx context.Context, req BeginRequest, own *ownBegin) (*loop, error) {
	if !own.trace.IsZero() {
		l, err := bs.traces.resume(ctx, own.trace)
		if err == nil {
			l.remote, l.confirms, l.asker = bs.remoteOf(req), req.Replay, req.Submitter
			l.brings(req.Server, req.Tool, req.Args, req.whole)
		}
		return l, err
	}
	if err := bs.keys.derive(ctx, &req.Request); err != nil {
		return nil, err
	}
	if req.Key != "" {
		record, err := req.record(ctx, bs.store)
		if err != nil {
			return nil, err
		}
		if record != nil && record.Status == ledger.Reserved && record.Attempts.External {
			if err := sameRequest(bs.store, req.Key, req.proposal(), record); err != nil {
				return nil, err
			}
			if err := sameSubject(ctx, bs.store, req.Key, req.Connection.Subject, record); err != nil {
				return nil, err
			}
			l, err := bs.traces.resume(ctx, record.TraceID)
			if err == nil {
				l.remote = bs.remoteOf(req)
				l.remote.begun = own.leadsTo(l.lease.TraceID)
				l.brings(req.Server, req.Tool, req.Args, req.whole)
			}
			return l, err
		}
	}
	req.own = mergeMeta(req.own, tga.Meta{tga.MetaExecutor: tga.AttemptExternal})
	if subject := req.Connection.Subject; subject != "" {
		req.own[tga.MetaSubject] = subject
	}
	if req.Licence != nil {
		req.own[tga.MetaClientLicence] = req.Licence.Attested()
	}
	l, err := bs.calls.start(ctx, req.Request)
	if err != nil {
		return nil, err
	}
	if l.head.Seq != 0 && !l.state.Terminal() {
		if err := MayAppend(Claim{Subject: ACall, Writer: ByPermit, Origin: RequestOrigin(l.trace, "")}); err != nil {
			bs.store.Release(l.lease)
			return nil, err
		}
	}
	l.remote = bs.remoteOf(req)
	l.remote.begun = own.leadsTo(l.lease.TraceID)
	if l.head.Seq == 0 {
		l.attachments, l.remote.begun = append(l.attachments, l.remote.begun), chain.Attachment{}
	}
	return l, nil
}

func (bs *begins) remoteOf(req BeginRequest) *remote {
	return &remote{beginID: req.BeginID, submitter: req.Submitter, lock: bs.executors.visible(req.Connection.Executor), asks: req.Connection.Asks, claim: req.Licence}
}

// enter writes this call into the list of its identity. A new call enters the list in the append
// of its request. If this connection takes an existing call over, enter writes the list at once,
// before the Begin is answered. A crash before that leaves the list unchanged, and the rule then
// decides the same again.
func (bs *begins) enter(ctx context.Context, l *loop, r *repeat) error {
	if r == nil || !r.changes() || r.at < 0 && l.head.Seq != 0 {
		return nil // in the last case the trace exists and is in no list, so its answer was delivered
	}
	a, err := r.entered(l.lease.TraceID)
	if err != nil {
		return err
	}
	if l.head.Seq == 0 {
		l.attachments = append(l.attachments, a)
		return nil
	}
	return bs.repeats.write(ctx, l, r.row, append(l.beginRow(), a), r.lease)
}

// sameRequest refuses a request that uses another one's key. The arguments of p are canonical.
func sameRequest(store Store, key string, p tga.Proposal, record *ledger.Record) error {
	if d := ledger.Decide(ledger.Query{Record: record, Trace: record.TraceID, Request: store.RequestDigest(p)}); d.Action == ledger.Conflict {
		return tga.Errorf(d.Code, "key %q: %s (trace %s)", key, d.Reason, record.TraceID)
	}
	return nil
}

// same answers a repeated Begin whose attempt is still the newest and open, and may
// still be sent.
func (bs *begins) same(ctx context.Context, l *loop) (Begun, bool, error) {
	t, err := l.known(ctx)
	if err != nil || t.Call == nil {
		return Begun{}, false, err
	}
	for _, p := range permitsOf(t) {
		// An attempt with a later one after it is not handed out again: its
		// executor would send besides the executor of the newer attempt.
		if p.beginID == l.remote.beginID && p.last && !p.notSent {
			if bs.executors.permit(l.lease.TraceID, p.attempt, l.remote).digest() != p.digest {
				return Begun{}, false, nil // somebody else repeats the begin id
			}
			record, err := bs.store.Record(context.WithoutCancel(ctx), ledger.KeyOf(l.namespace, l.call))
			if err != nil || record == nil || bs.queries.suspect(l, record) || replaced(bs.store, l.lease.TraceID) {
				return Begun{}, false, err // the attempt's effect may be lost, or another call runs instead
			}
			if err := bs.stillAllowed(ctx, l, record); err != nil {
				return Begun{Result: l.partial()}, true, err
			}
			return bs.sendBy(ctx, l, p.attempt)
		}
	}
	return Begun{}, false, nil
}

// stillAllowed asks the current rules before a permit of the first send is handed out once more:
// they may have become stricter. It writes nothing, because the executor may have the permit already.
func (bs *begins) stillAllowed(ctx context.Context, l *loop, record *ledger.Record) error {
	if record.Attempts.Count-record.Attempts.Unsent > 1 {
		return nil
	}
	why, err := bs.rules.forbidden(ctx, l)
	if err == nil && why != nil {
		err = tga.Errorf(tga.PolicyViolation, "the permit is not handed out again: %w", why).In(l.lease.TraceID)
	}
	return err
}

// sendBy hands the newest attempt to its executor, unless its permit is stale or it is too late
// for the send.
func (bs *begins) sendBy(ctx context.Context, l *loop, attempt uint32) (b Begun, inTime bool, err error) {
	record, err := bs.store.Record(context.WithoutCancel(ctx), ledger.KeyOf(l.namespace, l.call))
	if err != nil || record == nil {
		return Begun{Result: l.partial()}, false, err
	}
	if !bs.executors.alive(record, l.policy) {
		// Others may have continued without this attempt. With a permit that is handed out now,
		// the executor could send after a person said that the call did not run, or besides a
		// newer attempt.
		return Begun{Result: l.partial()}, false, nil
	}
	within, bounded := bs.queries.ofTime(l, record).SendWithin()
	if l.deadline != 0 && record.Attempts.Count-record.Attempts.Unsent <= 1 {
		within, bounded = bs.clock.Left(l.request.TS.Time(), l.deadline.Time()), true // of a first send
	}
	// Once the permit is stale, somebody may check whether the call ran. An executor that was
	// stopped meanwhile must not send after that check.
	most := min(l.policy.SendTimeout, bs.executors.permitLeft(record, l.policy))
	if !bounded || within > most {
		within = most
	}
	inTime = within > 0
	if inTime {
		bs.executors.tell(record, within)
		bs.redact.held.hold(l.lease.TraceID, l.whole)
	}
	return Begun{
		Standing: BeginSend, Result: l.partial(), Attempt: attempt, SendWithin: max(within, 0),
		Permit: bs.executors.permit(l.lease.TraceID, attempt, l.remote),
		Key:    l.call.Call.IdempotencyKey, Args: l.sentCall(attempt).own().Args,
	}, inTime, nil
}

// begun turns a coded error of the loop into an answer; every other error stays an error.
func begun(b Begun, err error) (Begun, error) {
	b.Cause = err
	switch tga.CodeOf(err) {
	case tga.IdempotencyKeyConflict:
		b.Standing = BeginConflict
	case tga.IdempotencyKeyInFlight, tga.StateLockAcquireFailed:
		b.Standing = BeginWait
	case tga.EscalationRequired:
		b.Standing = BeginNeedsApproval
	case tga.EffectInDoubt:
		b.Standing = BeginInDoubt
	default:
		return b, err
	}
	return b, nil
}

// askAbout sets whether the person at the client is asked to let a call in doubt run again. The
// person is asked only if the answer would count.
func (bs *begins) askAbout(ctx context.Context, l *loop, b *Begun) error {
	if l.call == nil || l.head.State != tga.Executing {
		return nil // another trace is in doubt, and was given up
	}
	var err error
	b.Ask = l.remote.asks && !bs.queries.licences.may(l.policy, l.claim(), l.attempted)
	b.Since, err = bs.results.lastHeard(ctx, l.lease.TraceID)
	return err
}
