package runtime

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Runtime runs governed tool calls on a store. Its methods may be called from any
// number of goroutines.
//
// It consists of the loop (run.go), the exported methods, and one type for each other subject.
// Such a type holds the state and the locks of its subject, and the types that it uses: parts.go
// connects them. After New, nothing in a Runtime changes except the state that those types guard.
type Runtime struct {
	store  Store
	tools  Dispatcher
	opts   Options
	clock  times
	counts *counts

	// Shared by the loop and the other types.
	spans      spans
	mint       *minter
	redact     redactions
	traces     *traces
	results    *results
	licences   *licences
	queries    *queries
	executors  *executors
	answers    *answers
	observe    observer
	doubts     *doubts
	timers     *timers
	retries    *retries
	departures *departures
	ends       *ends
	names      *nameLocks // of begin ids and of identical calls
	demands    *demands

	// The steps of the loop, in the order of its states.
	admission     *admission
	rules         *rules
	tokens        *tokens
	approvals     *approvals
	confirmations *confirmations
	records       *records
	waits         *waits
	probes        *probes

	// Behind the other exported methods.
	keys          *derivedKeys
	stands        *stands
	deliveries    *deliveries
	begins        *begins
	finishes      *finishes
	settlements   *settlements
	compensations *compensations
	classifier    *classifier
}

// New makes a Runtime. It starts nothing: the caller calls [Runtime.RecoverAll].
func New(store Store, tools Dispatcher, supervisor Supervisor, opts Options) (*Runtime, error) {
	if store == nil || tools == nil || supervisor == nil {
		return nil, tga.Errorf(tga.ValidationError, "runtime: store, dispatcher and supervisor are required")
	}
	if opts.Profile == ledger.Talos && opts.Trust.Capabilities == nil {
		return nil, tga.Errorf(tga.ValidationError, "runtime: profile %v mints a capability for each approval and needs Trust.Capabilities", opts.Profile)
	}
	opts = opts.withDefaults()
	guardAll(&tools, &supervisor, &opts)
	rt := &Runtime{store: store, tools: tools, opts: opts, clock: times{clock.New(opts.Clock, opts.Monotonic)}, counts: &counts{}}
	share(rt)
	takeSteps(rt, supervisor)
	openDoors(rt)
	return rt, nil
}

// Stats counts what a Runtime has done since New.
type Stats struct {
	Sent     uint64 // dispatches
	Resent   uint64 // licensed re-sends marked, part of Sent once sent
	Reserved uint64 // keys reserved
	Served   uint64 // calls answered from a recorded effect
	Refused  uint64 // calls refused before a send
	Doubts   uint64 // dispatches that ended without a certain answer
	NotSent  uint64 // calls that ended without a byte having been sent
	Waited   uint64 // waits for another trace's effect
	Denied   uint64

	Probes          uint64 // questions to tool servers about calls in doubt
	ResolvedByProbe uint64 // calls in doubt whose effect a probe found
	ByPerson        uint64 // calls resolved or abandoned, and records confirmed or rejected, by people
	Confirmed       uint64 // records looked at before they were served
	Mismatches      uint64 // changes that did not stand
	Expired         uint64 // approvals that came too late
	Retried         uint64 // new attempts made by the scheduler
}

type counts struct {
	sent, resent, reserved, served, refused, doubts, waited, denied, notSent atomic.Uint64
	probes, byProbe, byPerson, confirmed, mismatches, expired, retried       atomic.Uint64
}

// ClockJumps returns how often the wall clock was seen to jump since New. Of the newest jump it
// returns the time, by the clock after the jump, and how far the clock jumped. The sleep of a
// machine counts as a jump forward.
func (rt *Runtime) ClockJumps() (n uint64, at time.Time, by time.Duration) {
	n, last := rt.clock.Jumps()
	return n, last.At, last.By
}

// Stats returns the counters.
func (rt *Runtime) Stats() Stats {
	c := rt.counts
	return Stats{
		Sent: c.sent.Load(), Resent: c.resent.Load(), Reserved: c.reserved.Load(), Served: c.served.Load(),
		Refused: c.refused.Load(), Doubts: c.doubts.Load(), Waited: c.waited.Load(), Denied: c.denied.Load(), NotSent: c.notSent.Load(),
		Probes: c.probes.Load(), ResolvedByProbe: c.byProbe.Load(), ByPerson: c.byPerson.Load(), Confirmed: c.confirmed.Load(),
		Mismatches: c.mismatches.Load(), Expired: c.expired.Load(), Retried: c.retried.Load(),
	}
}

// Call makes one governed tool call, from request to answer.
//
// It returns a Result and a nil error when the trace is terminal, whatever the tool
// said. Otherwise the error's code says why it is not: EFFECT_IN_DOUBT (the call may
// have run; Recover, resolve or abandon it), ESCALATION_REQUIRED (it waits for an
// approval), IDEMPOTENCY_KEY_CONFLICT, IDEMPOTENCY_KEY_IN_FLIGHT,
// IDEMPOTENCY_KEY_REQUIRED, VALIDATION_ERROR and SCHEMA_VIOLATION (nothing was written),
// TOOL_TIMEOUT (the deadline passed before a send), STORE_UNAVAILABLE. The Result then
// holds what is known, the trace id at least.
//
// The end of ctx, by its deadline too, ends waiting and nothing else: [Request.Deadline]
// alone says until when the call may be sent. After the end of ctx this run sends nothing
// more. A dispatch that is under way is cancelled, and the call then ends with an effect or
// in doubt; with [WithLife] the dispatch goes on.
func (rt *Runtime) Call(ctx context.Context, req Request) (res Result, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.call", req.TraceID, req.Server, req.Tool)
	defer span.end(&res, &err)
	redacted := req // the address of an argument is not taken where something is deferred (TestPanicFindsNoStaleArgument)
	if err := rt.redact.request(&redacted); err != nil {
		return Result{TraceID: req.TraceID}, err
	}
	l, err := rt.start(ctx, redacted)
	if err != nil {
		return Result{TraceID: req.TraceID}, err
	}
	defer rt.store.Release(l.lease)
	return rt.finish(ctx, l)
}

// Recover continues a trace from where a crash, a cancellation or a pending approval
// left it. It returns like [Runtime.Call]. For a terminal trace it returns the record.
func (rt *Runtime) Recover(ctx context.Context, trace tga.ID) (Result, error) {
	return rt.RecoverFor(ctx, trace, "")
}

// RecoverFor is Recover for a caller with a name: a person who relies on a record may not
// confirm it. "" means the submitter of the trace's request.
func (rt *Runtime) RecoverFor(ctx context.Context, trace tga.ID, who string) (res Result, err error) {
	defer rt.goOn(&err)
	return recovered(ctx, rt, trace, who)
}

// recovered does what RecoverFor does, and never panics again.
func recovered(ctx context.Context, rt *Runtime, trace tga.ID, who string) (res Result, err error) {
	ctx, span := rt.spans.begin(ctx, "tgad.recover", trace, "", "")
	defer span.end(&res, &err)
	l, err := rt.traces.resume(ctx, trace)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	defer rt.store.Release(l.lease)
	l.confirms = true // the caller of a recovery relies on the record
	l.asker = firstOf(who, l.asker)
	return rt.finish(ctx, l)
}

// finish runs the loop and returns the result of the trace.
func (rt *Runtime) finish(ctx context.Context, l *loop) (Result, error) {
	wasTerminal := l.head.State.Terminal()
	if err := rt.drive(ctx, l); err != nil {
		return rt.results.unfinished(ctx, l), err
	}
	return rt.settled(ctx, l, wasTerminal)
}

// settled returns the answer of a run that reached a terminal state. A record from before the
// run is confirmed first, if the caller or the policy asks for that.
func (rt *Runtime) settled(ctx context.Context, l *loop, wasTerminal bool) (Result, error) {
	if wasTerminal && (l.confirms || l.policy.ConfirmAll) {
		if err := rt.confirmations.confirmOwn(ctx, l); err != nil {
			return l.partial(), err
		}
	}
	t, err := l.known(context.WithoutCancel(ctx))
	if err != nil {
		return l.partial(), err
	}
	res, gone, err := rt.results.from(ctx, t)
	if gone && wasTerminal && err == nil { // a success would look like one whose tool said nothing
		err = tga.Errorf(tga.IdempotencyKeyExpired, "the call was served the effect of trace %s, which was erased", res.ServedFrom).In(t.ID)
	}
	res.Replayed, res.Confirmation = wasTerminal || !res.ServedFrom.IsZero(), l.confirmation
	if l.answer != nil && !res.Replayed {
		res.Value, res.Redacted = l.answer, false // the caller that waited for the tool gets its whole answer
	}
	return res, err
}

// start makes the loop of a fresh call: a lease and a staged request. Nothing is
// written yet.
func (rt *Runtime) start(ctx context.Context, req Request) (*loop, error) {
	ctx = InNamespace(ctx, req.Namespace)
	if err := rt.keys.derive(ctx, &req); err != nil {
		return nil, err
	}
	given := !req.TraceID.IsZero()
	if !given {
		req.TraceID = rt.opts.NewID()
	}
	if err := rt.stands.leadNew(ctx, &req, given); err != nil {
		return nil, err
	}
	lease, err := rt.store.Acquire(ctx, req.TraceID)
	if err != nil {
		return nil, err
	}
	l, err := rt.open(ctx, lease, req, given)
	if err != nil {
		rt.store.Release(lease)
		return nil, err
	}
	l.confirms = req.Replay
	return l, nil
}

func (rt *Runtime) open(ctx context.Context, lease chain.Lease, req Request, given bool) (*loop, error) {
	l := &loop{
		store: rt.store, timers: rt.timers, lease: lease,
		policy:    rt.opts.Policy(req.Server, req.Tool).withDefaults(),
		namespace: firstOf(req.Namespace, tga.DefaultNamespace),
		submitter: req.Submitter, asker: req.Submitter, sender: OfProcess, deadline: req.deadline(),
	}
	follows, err := retryOf(ctx, rt.store, &req)
	if err != nil {
		return nil, err
	}
	rt.spans.leave(ctx, l, &req)
	request, err := rt.mint.request(l, req, follows)
	if err != nil {
		return nil, err
	}
	if given {
		trace, err := rt.store.Load(ctx, lease.TraceID)
		switch {
		case err == nil && trace.Request == nil:
			return nil, repeatOfErased(ctx, rt.store, trace, &req, request.Request.Proposal)
		case err == nil:
			return rt.rejoin(lease, trace, request, l, req.whole)
		case !errors.Is(err, tga.NotFound):
			return nil, err
		}
	}
	l.stage(request)
	l.whole = req.whole
	// The conflict check comes before anything is written, and a write call without a
	// key ends here.
	key, err := rt.mint.key(l)
	if err != nil {
		return nil, err
	}
	if err := rt.admission.admit(ctx, request, l.whole, l.callID, request.Meta.String(tga.MetaExecutor) == tga.AttemptExternal); err != nil {
		return nil, err
	}
	if l.unused = req.unused; l.unused == key {
		return l, nil
	}
	record, err := rt.store.Record(ctx, key)
	if err != nil {
		return nil, err
	}
	if d := ledger.Decide(rt.queries.of(l, record)); d.Action == ledger.Conflict {
		rt.counts.refused.Add(1)
		rt.observe.tell(l, EventRefused, d.Code, 0, d.Reason)
		return nil, tga.Errorf(d.Code, "key %q: %s (trace %s)", key.Key, d.Reason, record.TraceID)
	}
	if err := sameSubject(ctx, rt.store, key.Key, request.Meta.String(tga.MetaSubject), record); err != nil {
		return nil, err
	}
	if record == nil {
		l.unused = key
	}
	return l, nil
}

// repeatOfErased answers a repeated Call under the id of a trace that was erased. Nothing says any more which namespace
// that trace was of, but for the ledger: in the caller's own namespace the record of the caller's key names the trace.
// Without such a record the answer is the one of [Runtime.rejoin] about a trace of another namespace.
func repeatOfErased(ctx context.Context, store Store, trace *chain.Trace, req *Request, p tga.Proposal) error {
	record, err := req.record(ctx, store)
	if err == nil && (record == nil || record.TraceID != trace.ID) {
		err = tga.Errorf(tga.NotFound, "trace %s has no entry", trace.ID).In(trace.ID)
	}
	if err == nil {
		err = sameRequest(store, req.Key, p, record)
	}
	if err == nil {
		err = readable(trace)
	}
	return err
}

// rejoin answers a repeated Call under the same trace id: the same call goes on, any
// other is refused.
//
// A trace of another namespace is NOT_FOUND, with the message for a trace that does not exist,
// so that the caller does not learn that the trace exists.
func (rt *Runtime) rejoin(lease chain.Lease, trace *chain.Trace, request *tga.Artifact, asks *loop, whole []byte) (*loop, error) {
	if trace.Namespace != asks.namespace {
		return nil, tga.Errorf(tga.NotFound, "trace %s has no entry", lease.TraceID).In(lease.TraceID)
	}
	l, err := rt.traces.loopOf(lease, trace)
	if err != nil {
		return nil, err
	}
	l.asker = asks.submitter
	was, is := l.request.Request, request.Request
	// A derived key is another one after the call was answered; what it is derived from is not.
	derived := l.request.Meta.String(tga.MetaDerivedKey)
	if sameKey := was.IdempotencyKey == is.IdempotencyKey || derived != "" && derived == request.Meta.String(tga.MetaDerivedKey); !sameKey ||
		!was.Proposal.Equal(is.Proposal) || l.request.Meta.String(tga.MetaSubject) != request.Meta.String(tga.MetaSubject) {
		return nil, tga.Errorf(tga.StateInvalidTransition, "the trace id belongs to another call").In(lease.TraceID)
	}
	l.brings(is.Proposal.ToolServer, is.Proposal.ToolName, is.Proposal.Args, whole)
	return l, nil
}

// help runs another trace that has the key this run needs. The ledger shows how that trace
// ends, so help returns an error only if the store is unavailable. asks is the loop of this run,
// which may have the redacted arguments of the other trace's call.
func (rt *Runtime) help(ctx context.Context, asks *loop, trace tga.ID) error {
	// Without a deadline, Acquire does not wait: the holder of that lease runs the trace already.
	l, err := rt.traces.resume(context.WithoutCancel(ctx), trace)
	if err != nil {
		if errors.Is(err, tga.StoreUnavailable) {
			return err
		}
		return nil
	}
	defer rt.store.Release(l.lease)
	if l.state.Terminal() {
		return nil
	}
	l.confirms = true
	p := asks.request.Request.Proposal
	l.brings(p.ToolServer, p.ToolName, p.Args, asks.whole)
	if err := rt.drive(ctx, l); errors.Is(err, tga.StoreUnavailable) {
		return err
	}
	return nil
}

// Result reads the state of a trace, without running it. NOT_FOUND if there is no
// such trace.
func (rt *Runtime) Result(ctx context.Context, trace tga.ID) (Result, error) {
	return rt.results.of(ctx, trace)
}
