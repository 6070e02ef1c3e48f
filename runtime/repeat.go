package runtime

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/call"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Connection is the client's connection of a call, as named by the remote executor that serves
// the client. It serves to distinguish a new call without an idempotency key from a repeat of an
// identical call: the rule is the table in package call.
type Connection struct {
	// ID is the executor's own name of the connection, 1..255 bytes, unique and hard to
	// guess. "" means that the rule does not apply.
	ID string
	// Lock is the path of a file that stays locked as long as the client can still take the
	// answer. Executor is that of a file that stays locked as long as the sending process
	// lives. "" means that no such file can be seen from here.
	Lock, Executor string
	// Subject is the identity that the client has proven to the tool server, if several
	// clients share one executor. Calls of different subjects are never identical.
	Subject string
	// Asks says that the person at the client can be asked what to do.
	Asks bool
	// Again names a trace whose call a person lets run again, with a key or without.
	Again tga.ID
}

// Limits of a connection and of what waits for one.
const (
	MaxConnection  = 255
	MaxLockPath    = 4096
	MaxUndelivered = 512 // identical calls whose answers were not delivered
)

func (c *Connection) validate() error {
	for _, f := range []struct {
		at, value string
		most      int
	}{
		{"/connection/id", c.ID, MaxConnection}, {"/connection/subject", c.Subject, MaxConnection},
		{"/connection/lock", c.Lock, MaxLockPath}, {"/connection/executor", c.Executor, MaxLockPath},
	} {
		if len(f.value) > f.most {
			return tga.Errorf(tga.ValidationError, "it has %d bytes, over %d", len(f.value), f.most).At(f.at)
		}
	}
	return nil
}

// undelivered is a call in the list that identical calls share. Its answer has not been
// delivered, or it has no answer yet.
type undelivered struct {
	Trace tga.ID `json:"trace"`
	Conn  string `json:"connection"`
	Lock  string `json:"lock,omitempty"`
}

// repeat is the rule's decision about a call without a key, under the lock of its list.
type repeat struct {
	action  call.Action
	reason  string
	list    []undelivered // as in the store, without calls that no longer matter
	at      int           // index of the identical call in the list; -1 for a new call
	trimmed bool          // list has fewer calls than the store's
	row     []byte        // key of the list in the store
	lease   chain.Lease   // of the list, see [listLock]
	mine    undelivered   // this call's entry, without its trace
}

// repeats distinguishes a new call without a key from a repeat of an identical one. Every caller
// that reads a list and writes it again must hold the lock of the list.
type repeats struct {
	store     Store
	clock     times
	mint      *minter
	executors *executors
	queries   *queries
	results   *results
	policy    func(server, tool string) Policy
}

// ruled returns the identity of a Begin to which the rule applies; "" if the rule does not
// apply: the call has a key, is a read call, or names no connection.
func (rp *repeats) ruled(req *BeginRequest) string {
	policy := rp.policy(req.Server, req.Tool).withDefaults()
	read := policy.Class == tga.ClassRead && (req.Risk == "" || req.Risk == tga.RiskRead)
	if req.Connection.ID == "" || req.Key != "" || read {
		return ""
	}
	return identityOf(req)
}

// identify applies the rule to a Begin; it returns nil if the rule does not apply. The caller
// holds the lock of the list until the decision is durable, so that no identical call is
// decided before that.
func (rp *repeats) identify(ctx context.Context, req *BeginRequest, name string, lease chain.Lease) (*repeat, error) {
	if name == "" {
		return nil, nil
	}
	c := &req.Connection
	policy := rp.policy(req.Server, req.Tool).withDefaults()
	r := &repeat{at: -1, row: keyspace.UndeliveredKey(name), lease: lease, mine: undelivered{Conn: c.ID, Lock: rp.executors.visible(c.Lock)}}
	if err := rp.decide(ctx, r, req, policy); err != nil {
		return nil, err
	}
	// The scope is part of the identity already, so no key is derived from it.
	req.Scope, req.Step = "", ""
	if r.action == call.New {
		if len(r.list) >= MaxUndelivered {
			return nil, tga.Errorf(tga.LimitExceeded, "%d identical calls wait for their answers to be delivered", len(r.list))
		}
		if req.TraceID.IsZero() {
			req.TraceID = rp.mint.newID()
		}
		req.Key = req.TraceID.String()
		req.own = mergeMeta(req.own, tga.Meta{tga.MetaIdentity: name})
		if !c.Again.IsZero() {
			req.own[tga.MetaAgainOf] = c.Again.String()
		}
	}
	return r, nil
}

// decide reads the list and asks the table. It removes calls from the list that no longer matter,
// and asks again, until the answer is about a call that does.
func (rp *repeats) decide(ctx context.Context, r *repeat, req *BeginRequest, policy Policy) error {
	var err error
	if r.list, err = rp.undelivered(ctx, r.row); err != nil {
		return err
	}
	r.list, r.trimmed = without(r.list, req.Delivered)
	for i := range r.list {
		if !req.TraceID.IsZero() && r.list[i].Trace == req.TraceID {
			// The same Begin again, because its answer was lost, or because it had to wait.
			r.at, r.action, r.reason = i, call.Join, "the same call again"
			return rp.keyOf(ctx, req, req.TraceID)
		}
	}
	for {
		conns := make([]call.Conn, len(r.list))
		for i, u := range r.list {
			if conns[i], err = rp.connOf(ctx, u, req, policy); err != nil {
				return err
			}
		}
		q := call.Query{State: call.None, Window: policy.RepeatWindow, Asks: req.Connection.Asks}
		i := call.Oldest(conns)
		if i >= 0 {
			t, err := rp.twin(ctx, r.list[i], req, policy)
			if err != nil {
				return err
			}
			q.State, q.Conn, q.Age, q.Licensed = t.state, conns[i], t.age, t.licensed
		}
		r.action, r.reason = call.Decide(q)
		again := i >= 0 && r.list[i].Trace == req.Connection.Again && (r.action == call.Explain || r.action == call.Ask)
		if i >= 0 && (r.action == call.New || again) {
			r.list = slices.Delete(r.list, i, i+1)
			r.trimmed = true
			continue
		}
		if r.action != call.New {
			r.at = i
			return rp.keyOf(ctx, req, r.list[i].Trace)
		}
		return nil
	}
}

// keyOf gives a request the trace id and the key of an existing trace.
func (rp *repeats) keyOf(ctx context.Context, req *BeginRequest, trace tga.ID) error {
	t, err := rp.store.Load(ctx, trace)
	if err != nil {
		return err
	}
	if req.TraceID, req.Key = trace, trace.String(); t.Request != nil { // see identify
		req.Key = t.Request.Request.IdempotencyKey
	}
	return nil
}

// twin is an identical call as the store has it.
type twin struct {
	state    call.State
	age      time.Duration // since its end
	since    tga.Millis    // when somebody was last seen executing it
	licensed bool
}

func (rp *repeats) twin(ctx context.Context, u undelivered, req *BeginRequest, policy Policy) (twin, error) {
	t, err := rp.store.Load(ctx, u.Trace)
	if err != nil {
		return twin{}, err
	}
	w := twin{state: call.Open}
	if n := len(t.Entries); n > 0 {
		w.since = t.Entries[n-1].TS
	}
	w.licensed = rp.queries.licences.may(policy, claimOf(t.Request), LicenceOf(t))
	switch {
	case t.Head.State == tga.Executing && t.Call != nil:
		record, err := rp.store.Record(ctx, ledger.KeyOf(t.Namespace, t.Call))
		if err != nil {
			return twin{}, err
		}
		if record != nil {
			w.since = max(w.since, record.Attempts.Newest)
			if record.InDoubt() && !rp.executors.alive(record, policy) {
				w.state = call.Doubt
			}
		}
	case t.Head.State.Terminal():
		if w.state = ended(t); readable(t) != nil {
			if w.state, err = rp.erased(ctx, t, req); err != nil {
				return twin{}, err
			}
		}
		// Setting the clock must not make tgad serve an answer for longer, or run a call
		// that may have run again sooner.
		if w.age = rp.clock.Longest(w.since.Time()); w.state == call.Abandoned {
			w.age = rp.clock.Certain(w.since.Time())
		}
	}
	return w, nil
}

// ended returns what a terminal trace means to a repeat of its call.
func ended(t *chain.Trace) call.State {
	switch {
	case t.Effect == nil: // denied, and that is an answer
		return call.Answered
	case byModel(t):
		return call.Claimed
	case t.Effect.Effect.Outcome.Error != nil && t.Effect.Effect.Outcome.Error.Code == string(tga.EffectInDoubt):
		return call.Abandoned
	case ledger.ClassOf(t.Effect).Retryable(), ledger.ClassOf(t.Effect) == ledger.ClassNotSent:
		return call.Unrun
	case t.Call != nil && t.Call.Meta.String(tga.MetaAttempt) == tga.AttemptNone && t.Effect.Meta.String(tga.MetaReplayedFrom) == "":
		return call.Unrun // refused before it was sent
	}
	return call.Answered
}

// erased returns what an erased trace means to a repeat of its call. The ledger still knows whether it may have
// run, by the key that identify gave it. If it may have, nobody can serve its answer: as for a call that was
// given up, the caller is told, and after the window the call is a new one.
func (rp *repeats) erased(ctx context.Context, t *chain.Trace, req *BeginRequest) (call.State, error) {
	key := req.ledgerKey()
	key.Key = t.ID.String()
	record, err := rp.store.Record(ctx, key)
	if err == nil && (record == nil || record.Class.Releases()) {
		return call.Unrun, nil
	}
	return call.Abandoned, err
}

// connOf returns the state of the connection that waits for a call. A connection whose lock cannot
// be seen counts as gone once a permit of the call would be stale.
func (rp *repeats) connOf(ctx context.Context, u undelivered, req *BeginRequest, policy Policy) (call.Conn, error) {
	if u.Conn == req.Connection.ID {
		return call.This, nil
	}
	if u.Lock != "" {
		switch rp.executors.lock(u.Lock) {
		case ledger.HolderAlive:
			return call.Alive, nil
		case ledger.HolderGone:
			return call.Gone, nil
		}
	}
	t, err := rp.twin(ctx, u, req, policy)
	if err != nil {
		return 0, err
	}
	if rp.clock.Certain(t.since.Time()) >= policy.PermitTime {
		return call.Gone, nil
	}
	return call.Unknown, nil
}

// told answers a Begin whose call must not run, with what is known of the identical call. It
// reports whether there is such an answer.
func (rp *repeats) told(ctx context.Context, r *repeat) (Begun, bool, error) {
	switch r.action {
	case call.Wait, call.Explain, call.Ask:
	default:
		return Begun{}, false, nil
	}
	trace := r.list[r.at].Trace
	res, err := rp.results.of(ctx, trace)
	b := Begun{Result: res, Ask: r.action == call.Ask}
	if err != nil {
		return b, true, err
	}
	if b.Since, err = rp.results.lastHeard(ctx, trace); err != nil {
		return b, true, err
	}
	switch {
	case r.action == call.Wait:
		b.Standing, b.Cause = BeginWait, tga.Errorf(tga.IdempotencyKeyInFlight, "%s", r.reason).In(trace)
	case !res.State.Terminal():
		b.Standing, b.Cause = BeginInDoubt, tga.Errorf(tga.EffectInDoubt, "the call may have run: %w", errNoAnswer).In(trace)
	case res.State != tga.Denied && res.Status == "":
		b.Standing, b.Cause = BeginInDoubt, tga.Errorf(tga.EffectInDoubt, "the call may have run: what is recorded of it was erased").In(trace)
	case res.ErrorCode == tga.EffectInDoubt, res.ResolvedVia != "":
		b.Standing = BeginServe // the effect says that it was abandoned, or settled by a model
	default:
		b.Standing = BeginStale
	}
	return b, true, nil
}

// entered returns the list with this call in it, as an attachment.
func (r *repeat) entered(trace tga.ID) (chain.Attachment, error) {
	list := slices.Clone(r.list)
	mine := r.mine
	mine.Trace = trace
	if r.at < 0 {
		list = append(list, mine)
	} else {
		list[r.at] = mine
	}
	return listed(r.row, list)
}

// changes reports whether the decision changes the list in the store.
func (r *repeat) changes() bool {
	if r.at < 0 || r.trimmed {
		return true
	}
	u := r.list[r.at]
	return u.Conn != r.mine.Conn || u.Lock != r.mine.Lock
}

func listed(row []byte, list []undelivered) (chain.Attachment, error) {
	a := chain.Attachment{Kind: chain.AttachStream, Key: row}
	if len(list) == 0 {
		return a, nil
	}
	var err error
	if a.Value, err = json.Marshal(list); err != nil {
		return a, tga.Errorf(tga.StoreUnavailable, "write the list of undelivered calls: %w", err)
	}
	return a, nil
}

func (rp *repeats) undelivered(ctx context.Context, row []byte) ([]undelivered, error) {
	raw, err := rp.store.Attachment(ctx, chain.AttachStream, row)
	if err != nil || raw == nil {
		return nil, err
	}
	var list []undelivered
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, tga.Errorf(tga.StateChecksumMismatch, "the list of undelivered calls: %w", err)
	}
	return list, nil
}

// identityOf returns the name that identical calls share: the [keyspace.Hash], in hex, of
// namespace, server, tool, canonical arguments, submitter, subject, scope and step.
func identityOf(req *BeginRequest) string {
	sum := keyspace.Hash(
		firstOf(req.Namespace, tga.DefaultNamespace), req.Server, req.Tool, string(req.Args), req.Submitter, req.Connection.Subject, req.Scope, req.Step,
	)
	return hex.EncodeToString(sum[:])
}

// write writes the list of an identity without a new trace: in an append to the trace of one of its calls. An
// archived trace takes no append, and its call would stay in the list for ever: then it is one under the lease of
// the list. lease is that one if the caller has it.
func (rp *repeats) write(ctx context.Context, l *loop, list []byte, rows []chain.Attachment, lease chain.Lease) error {
	b := chain.Batch{Attachments: rows}
	err := l.append(ctx, b)
	if !takesNone(err, l.lease.TraceID) {
		return err
	}
	if lease.TraceID.IsZero() {
		if lease, err = leaseOfList(ctx, rp.store, list); err != nil {
			return err
		}
		defer rp.store.Release(lease)
	}
	_, err = rp.store.Append(ctx, lease, b)
	return err
}

// strike returns the row of an identity's list without some traces; no row if none of them is in
// the list. The caller holds the lock of the list.
func (rp *repeats) strike(ctx context.Context, name string, traces []tga.ID) ([]chain.Attachment, error) {
	row := keyspace.UndeliveredKey(name)
	list, err := rp.undelivered(ctx, row)
	if err != nil {
		return nil, err
	}
	list, found := without(list, traces)
	if !found {
		return nil, nil
	}
	a, err := listed(row, list)
	return []chain.Attachment{a}, err
}
