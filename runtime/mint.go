package runtime

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// minter makes artifacts and notes. It needs a clock, ids and randomness. It reads no store and
// has no state, so any number of goroutines may use it.
type minter struct {
	clock   times
	newID   func() tga.ID
	rand    io.Reader
	limits  tga.Limits
	agentID tga.ID // of requests that name no agent
}

// seal gives an artifact of this loop its id, time and nonce, and seals it.
func (m *minter) seal(l *loop, a *tga.Artifact) (*tga.Artifact, error) {
	if a.ID.IsZero() {
		a.ID = m.newID()
	}
	a.TraceID, a.PlanID, a.TS = l.lease.TraceID, l.request.PlanID, m.clock.now()
	nonce, err := m.nonce()
	if err != nil {
		return nil, err
	}
	if a.Meta == nil {
		a.Meta = tga.Meta{}
	}
	a.Meta[tga.MetaNonce] = nonce
	if err := a.Seal(); err != nil {
		return nil, err
	}
	return a, nil
}

// nonce returns 16 random bytes in hex. Because the preimage contains them, nobody can guess
// erased content of low entropy from its digest.
func (m *minter) nonce() (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(m.rand, b[:]); err != nil {
		return "", tga.Errorf(tga.StoreUnavailable, "no randomness: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// ownMeta are the names in a request's meta that callers do not set.
var ownMeta = map[string]bool{
	tga.MetaNamespace: true, tga.MetaDeadline: true, tga.MetaRetryOf: true, tga.MetaFresh: true, tga.MetaNonce: true,
	tga.MetaCompensates: true, tga.MetaSubmitter: true, tga.MetaRetryNumber: true, tga.MetaDerivedKey: true, tga.MetaOccurrence: true,
	tga.MetaExecutor: true, tga.MetaIdentity: true, tga.MetaAgainOf: true, tga.MetaSubject: true, tga.MetaRedacted: true,
	tga.MetaSpanContext: true, tga.MetaClientLicence: true,
}

// canonicalArgs returns the canonical form of a request's arguments; nil means {}.
func (m *minter) canonicalArgs(args []byte) ([]byte, error) {
	if args == nil {
		args = []byte("{}")
	}
	return tga.Canonicalize(args, m.limits)
}

// request makes the request of a new trace; retryOf is the trace that it follows, zero for none.
func (m *minter) request(l *loop, req Request, retryOf tga.ID) (*tga.Artifact, error) {
	args, err := m.canonicalArgs(req.Args)
	if err != nil {
		return nil, err
	}
	meta := tga.Meta{}
	for name, v := range req.Meta {
		if ownMeta[name] {
			return nil, tga.Errorf(tga.ValidationError, "meta.%s is tgad's own", name).At("/meta/" + name)
		}
		meta[name] = v
	}
	if req.Namespace != "" && req.Namespace != tga.DefaultNamespace {
		meta[tga.MetaNamespace] = req.Namespace
	}
	if ends := req.deadline(); ends != 0 {
		meta[tga.MetaDeadline] = ends.String()
	}
	if req.Fresh {
		meta[tga.MetaFresh] = true
	}
	if req.Submitter != "" {
		meta[tga.MetaSubmitter] = req.Submitter
	}
	for name, v := range req.own {
		meta[name] = v
	}
	a := &tga.Artifact{Type: tga.RequestType, Meta: meta, Request: &tga.ActionRequest{
		AgentID: req.AgentID, RiskLevel: req.Risk, Intent: req.Intent, Resources: slices.Clone(req.Resources),
		Proposal:       tga.Proposal{ToolServer: req.Server, ToolName: req.Tool, Args: args},
		IdempotencyKey: req.Key,
	}}
	q := a.Request
	if q.AgentID.IsZero() {
		q.AgentID = m.agentID
	}
	if q.RiskLevel == "" {
		q.RiskLevel = tga.RiskWrite
		if l.policy.Class == tga.ClassRead {
			q.RiskLevel = tga.RiskRead
		}
	}
	if q.Intent == "" {
		q.Intent = "call " + req.Tool + " on " + req.Server
	}
	if len(q.Resources) == 0 {
		q.Resources = []tga.Resource{{Kind: "service", ID: req.Server}}
	}
	if !retryOf.IsZero() {
		meta[tga.MetaRetryOf] = retryOf.String()
	}

	// The request comes first, so it brings the plan of the whole trace.
	a.PlanID = req.PlanID
	if a.PlanID.IsZero() {
		a.PlanID = m.newID()
	}
	l.request = a
	if a, err = m.seal(l, a); err != nil {
		return nil, err
	}
	return a, m.fits(a)
}

// fits refuses a request that is over the size limit of an artifact: not only the arguments count,
// but also meta, resources and names. The call that repeats them is at most some hundred bytes longer.
func (m *minter) fits(a *tga.Artifact) error {
	most := m.limits.MaxBytes
	if most <= 0 {
		most = tga.DefaultMaxBytes
	}
	if n := len(a.Canonical); n > most {
		return tga.Errorf(tga.LimitExceeded, "the request has %d bytes in canonical form: the limit is %d", n, most).In(a.TraceID)
	}
	return nil
}

// retryOf returns the trace whose retryable failure an explicit new attempt follows.
func retryOf(ctx context.Context, store Store, req *Request) (tga.ID, error) {
	if !req.Retry || req.Key == "" {
		return tga.ID{}, nil
	}
	record, err := req.record(ctx, store)
	if err != nil || record == nil || record.Status != ledger.Settled || record.Class != ledger.ClassRetryable {
		return tga.ID{}, err
	}
	return record.TraceID, nil
}

func (m *minter) decision(l *loop, v Verdict, meta tga.Meta, token string) (*tga.Artifact, error) {
	return m.seal(l, &tga.Artifact{Type: tga.DecisionType, Meta: meta, Decision: &tga.SupervisorDecision{
		RequestID: l.request.ID, RequestDigest: l.request.Digest,
		Decision: v.Decision, Rationale: v.Rationale, PolicyHash: v.PolicyHash, MintedCapability: token,
	}})
}

// key returns the ledger key of this loop's call. A read call without a key of its own
// gets its tool_call_id, so that its effect is never served to another call.
func (m *minter) key(l *loop) (ledger.Key, error) {
	if l.callID.IsZero() {
		l.callID = m.newID()
	}
	q := l.request.Request
	k := ledger.Key{Namespace: l.namespace, Server: q.Proposal.ToolServer, Tool: q.Proposal.ToolName, Key: q.IdempotencyKey}
	if k.Key != "" {
		return k, nil
	}
	if l.class() != tga.ClassRead {
		return ledger.Key{}, tga.Errorf(tga.IdempotencyKeyRequired, "%s on %s is a write call and has no key", k.Tool, k.Server).In(l.lease.TraceID)
	}
	k.Key = l.callID.String()
	return k, nil
}

// call makes the call that the decision approved, byte for byte. meta says whether
// the call is sent, and by whom.
func (m *minter) call(l *loop, meta tga.Meta) (*tga.Artifact, error) {
	key, err := m.key(l)
	if err != nil && meta[tga.MetaAttempt] == tga.AttemptNone {
		key.Key, err = l.callID.String(), nil // it reserves no key
	}
	if err != nil {
		return nil, err
	}
	c := &tga.ToolCall{
		DecisionID: l.decision.ID, DecisionDigest: l.decision.Digest,
		Call: l.request.Request.Proposal, IdempotencyKey: key.Key, ToolClass: l.class(), BatchTotalBytes: -1,
	}
	if token := l.decision.Decision.MintedCapability; token != "" {
		c.CapabilityDigest = tga.Sum([]byte(token))
	}
	return m.seal(l, &tga.Artifact{Type: tga.CallType, ID: l.callID, Meta: meta, Call: c})
}

// class returns the class of the call. It is the operator's class; the request's risk level can
// only raise it from read to write.
func (l *loop) class() string { return classOf(l.policy, l.request.Request) }

func classOf(p Policy, q *tga.ActionRequest) string {
	if p.Class == tga.ClassRead && q.RiskLevel == tga.RiskRead {
		return tga.ClassRead
	}
	return tga.ClassWrite
}

// answer is what an effect is made of.
type answer struct {
	status    string
	class     ledger.Class
	summary   string
	errorCode string
	errorText string
	retryable bool
	meta      tga.Meta
	documents []chain.Document
	// cut describes a document of which only digest and size were kept; documents lists it
	// as erased.
	cut tga.DocumentHash
	// received describes the answer as it arrived, if it was redacted. Its hash is keyed, so
	// nobody can guess what was removed.
	received tga.DocumentHash
	// whole is the answer as it arrived, if it was redacted. The waiting caller gets it; it is never stored.
	whole []byte
	// refused is set if the answer says that one of several attempts did not run. Then it is no effect: that
	// attempt is taken back, and whether another one ran is as open as before.
	refused *tga.Error
}

// noMessage is the message of an error that came without one, because Talos requires a message.
const noMessage = "no message"

func (m *minter) effect(l *loop, call *tga.Artifact, w answer) (*tga.Artifact, error) {
	e := &tga.ToolEffect{
		CallID: call.ID, CallDigest: call.Digest, BatchTotalBytes: -1,
		Outcome: tga.Outcome{Status: w.status, Summary: clip.Short(w.summary, 500)},
	}
	if w.errorCode != "" {
		e.Outcome.Error = &tga.OutcomeError{Code: w.errorCode, Message: clip.Short(firstOf(w.errorText, w.summary, noMessage), 200), Retryable: w.retryable}
	}
	for _, d := range w.documents {
		h := w.cut
		if !d.Erased {
			h = tga.DocumentHash{Pointer: d.Pointer, Hash: tga.Sum(d.Data), SizeBytes: int64(len(d.Data))}
		}
		e.ContentHashAlg = "sha256"
		e.DocumentHashes = append(e.DocumentHashes, h)
	}
	if w.received.Pointer != "" {
		e.ContentHashAlg = "sha256"
		e.DocumentHashes = append(e.DocumentHashes, w.received)
	}
	meta := tga.Meta{tga.MetaOutcomeClass: w.class.String()}
	for name, v := range w.meta {
		meta[name] = v
	}
	return m.seal(l, &tga.Artifact{Type: tga.EffectType, Meta: meta, Effect: e})
}

func notSentNote(attempt uint32, reason string, wait time.Duration) chain.NewNote {
	body := ledger.NotSent{Attempt: attempt, Reason: clip.Short(reason, 200), RetryAfterMS: tga.RetryAfterMS(wait)}.Body()
	return chain.NewNote{Kind: tga.NoteNotSent, Who: whoRuntime, Body: body}
}

// whoRuntime is the author of the notes that the runtime writes by itself.
const whoRuntime = "runtime"

func (m *minter) note(kind tga.NoteKind, who string, body map[string]any) (chain.NewNote, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return chain.NewNote{}, tga.Errorf(tga.ValidationError, "note %s: %w", kind, err)
	}
	// Digests are always of the canonical form, never of the output of encoding/json.
	canonical, err := tga.Canonicalize(raw, m.limits)
	if err != nil {
		return chain.NewNote{}, err
	}
	return chain.NewNote{Kind: kind, Who: who, Body: canonical}, nil
}
