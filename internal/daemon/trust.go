package daemon

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// inDoubt lists the calls in doubt, with what their logs say of the questions that tgad asked about them.
func (q *request) inDoubt() (any, error) {
	ctx := q.r.Context()
	all, err := q.d.rt.InDoubt(ctx)
	if err != nil {
		return nil, err
	}
	m := wire.Traces{Traces: []wire.OpenTrace{}}
	for _, c := range all {
		if !q.peer.sees(c.Namespace) {
			continue
		}
		t, err := q.d.db.Load(ctx, c.TraceID)
		if err != nil {
			return nil, err
		}
		if t.Head.State.Terminal() {
			continue // the call ended since it was listed
		}
		o := classified(c)
		if o.Doubt, err = q.d.doubt(t, c); err != nil {
			return nil, err
		}
		m.Traces = append(m.Traces, o)
	}
	return m, nil
}

// doubt describes a call in doubt, and lists what could end the doubt.
func (d *Daemon) doubt(t *chain.Trace, c runtime.Classified) (*wire.Doubt, error) {
	licence, next := d.next(t, c)
	m := &wire.Doubt{
		Since: c.Record.Attempts.Newest, Licence: licence.Kind.String(), External: c.Record.Attempts.External, Cause: runtime.DoubtCause(t), Settles: []string{},
	}
	if d.atRest {
		m.Licence = "" // it is in the daemon's configuration, which a Reader does not have
	}
	for i := range t.Notes {
		n := &t.Notes[i]
		if n.Kind != tga.NoteProbe {
			continue
		}
		p, err := probeOf(n)
		if err != nil {
			return nil, err
		}
		m.Probes++
		m.Asked, m.Answer, m.Fenced, m.Source, m.EvidenceDigest, m.Next = n.TS, p.Answer, p.Fenced, p.Source, p.EvidenceDigest, p.Next
	}
	for _, s := range settlements {
		if s.applies(m.External, next, d.tools.Asks(c.Server, c.Tool)) {
			m.Settles = append(m.Settles, s.name)
		}
	}
	return m, nil
}

// probe is the body of a probe note.
type probe struct {
	Answer         string     `json:"answer"`
	Fenced         bool       `json:"fenced"`
	Source         string     `json:"source"`
	EvidenceDigest tga.Digest `json:"evidence_digest"`
	Next           tga.Millis `json:"next"`
}

func probeOf(n *tga.Note) (p probe, err error) {
	if err := json.Unmarshal(n.Body, &p); err != nil {
		return p, tga.Errorf(tga.StateRecoveryFailed, "note %d: %w", n.Number, err).In(n.TraceID)
	}
	return p, nil
}

// next is what the ledger would decide about a call in doubt now.
func (d *Daemon) next(t *chain.Trace, c runtime.Classified) (ledger.Licence, ledger.Action) {
	class := t.Call.Call.ToolClass
	licence, policy := d.tools.Licence(c.Server, c.Tool, class, runtime.ClaimOf(t))
	timeout := policy.SendTimeout
	if timeout == 0 {
		timeout = runtime.DefaultSendTimeout
	}
	since, quarantined := d.db.Quarantined()
	return licence, ledger.Decide(ledger.Query{
		Record: c.Record, Trace: t.ID, Request: c.Record.RequestDigest, Profile: d.conf().LedgerProfile(),
		Holder: ledger.HolderGone, Licence: licence, Attempted: runtime.LicenceOf(t), Remote: c.Record.Attempts.External,
		Suspect: quarantined && class != tga.ClassRead && c.Since < since,
		Now:     tga.MillisOf(d.clock()), NewestTS: d.db.NewestTS(), SendTimeout: timeout,
	}).Action
}

// settlements are the ways to end a doubt, each with its condition.
var settlements = []struct {
	name    string
	applies func(external bool, next ledger.Action, asked bool) bool
}{
	{"finish", func(external bool, _ ledger.Action, _ bool) bool { return external }},
	{"begin", func(external bool, next ledger.Action, _ bool) bool { return external && next == ledger.Resend }},
	{"recover", func(external bool, next ledger.Action, _ bool) bool { return !external && next == ledger.Resend }},
	{"probe", func(_ bool, next ledger.Action, asked bool) bool { return next == ledger.ProbeFirst && asked }},
	{"resolve", func(bool, ledger.Action, bool) bool { return true }},
	{"abandon", func(bool, ledger.Action, bool) bool { return true }},
}

// approvals lists what waits for people.
func (q *request) approvals() (any, error) {
	all, err := q.d.rt.Approvals(q.r.Context())
	m, unread := wire.Approvals{Approvals: []wire.Approval{}}, runtime.UnreadApprovals(nil)
	switch {
	case !errors.As(err, &unread) && err != nil:
		return nil, err
	case q.peer.all(): // the namespace of one that cannot be read is not known
		for _, u := range unread {
			m.Unread = append(m.Unread, wire.Unread{TraceID: u.TraceID, Code: u.Code, Detail: u.Error()})
		}
	}
	for _, a := range all {
		own, err := mine(q, a.TraceID)
		if err != nil && !errors.Is(err, chain.ErrKeyMissing) {
			return nil, err
		}
		if !own {
			continue // also where a missing key hides whose it is
		}
		m.Approvals = append(m.Approvals, *approvalOf(a))
	}
	return m, nil
}

func approvalOf(a runtime.Approval) *wire.Approval {
	m := &wire.Approval{
		TraceID: a.TraceID, Kind: wire.KindDecision, Since: a.Since, Expires: a.Expires, Required: a.Required, Why: a.Why,
		About: a.About(), Changed: a.Changed, MismatchDigest: a.Mismatch, EvidenceDigest: a.Evidence, Waiting: a.Waiting,
	}
	if a.Kind == runtime.AskConfirmation {
		m.Kind = wire.KindConfirmation
	}
	for _, v := range a.Votes {
		m.Votes = append(m.Votes, wire.Vote{Who: v.Who, Approve: v.Approve, Rationale: v.Rationale, TS: v.TS})
	}
	return m
}

// evidence answers with stored evidence. A peer that is bound to a namespace must name a trace of
// that namespace whose log names the digest.
func (q *request) evidence() (any, error) {
	digest, err := tga.ParseDigest(q.r.PathValue("digest"))
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "digest in the path: %w", err).At("/digest")
	}
	missing := tga.Errorf(tga.NotFound, "there is no evidence %s", digest)
	var id tga.ID // the trace that the peer names
	if text := q.r.URL.Query().Get("trace"); text != "" {
		if id, err = tga.ParseID(text); err != nil {
			return nil, err.(*tga.Error).At("/trace")
		}
		t, err := q.trace(id)
		if err != nil {
			return nil, err
		}
		if !names(t, digest) {
			return nil, missing.In(id)
		}
	} else if !q.peer.all() {
		return nil, tga.Errorf(tga.ValidationError, "want ?trace=, a trace whose log names the evidence").At("/trace")
	}
	raw, err := q.d.rt.Evidence(q.r.Context(), digest, id)
	if err != nil {
		return nil, err
	}
	switch got := tga.Sum(raw); {
	case raw == nil:
		return nil, missing
	case got != digest:
		e := tga.Errorf(tga.StateChecksumMismatch, "the evidence of %d bytes has another digest than its name", len(raw))
		e.WantDigest, e.GotDigest, e.Where = digest, got, "stored"
		return nil, e
	}
	return q.exactBytes(raw, digest), nil
}

// names reports whether a trace's log names a piece of evidence. Only notes that tgad makes itself
// count: in the others people could write any digest.
func names(t *chain.Trace, digest tga.Digest) bool {
	for i := range t.Notes {
		switch n := &t.Notes[i]; n.Kind {
		case tga.NoteProbe:
			if p, err := probeOf(n); err == nil && p.EvidenceDigest == digest {
				return true
			}
		case tga.NoteConfirmation:
			if c, err := ledger.ParseConfirmation(n.Body); err == nil && c.EvidenceDigest == digest {
				return true
			}
		}
	}
	return false
}

// compensate undoes the effect of a trace by the inverse that the configuration names.
func (q *request) compensate() (any, error) {
	id, namespace, err := q.decodeAbout(&struct{}{})
	if err != nil {
		return nil, err
	}
	return q.call(namespace, func(ctx context.Context) (runtime.Result, error) {
		return q.d.rt.Compensate(ctx, id, q.peer.name())
	})
}

// rollbackPlan says what undoing the traces named by ?trace= would do.
func (q *request) rollbackPlan() (any, error) {
	given := q.r.URL.Query()["trace"]
	if err := count("a plan for %d traces", len(given), q.d.conf().Limits.BatchItems); err != nil {
		return nil, err.At("/trace")
	}
	ids := make([]tga.ID, len(given))
	for i, text := range given {
		var err error
		if ids[i], err = tga.ParseID(text); err != nil {
			return nil, err.(*tga.Error).At("/trace")
		}
		if _, err := q.trace(ids[i]); err != nil {
			return nil, err
		}
	}
	plan, err := q.d.rt.RollbackPlan(q.r.Context(), ids)
	if err != nil {
		return nil, err
	}
	m := wire.RollbackPlan{Steps: []wire.RollbackStep{}}
	for _, s := range plan {
		if q.d.atRest && s.Server != "" && !q.d.conf().HasServer(s.Server) { // "": erased, and nothing undoes it
			return nil, tga.Errorf(tga.NotFound, "no tool server %q is configured, so what undoes %s is not known: name the daemon's configuration with --config", s.Server, s.Tool).In(s.TraceID)
		}
		step := wire.RollbackStep{
			TraceID: s.TraceID, State: s.State.String(), ToolServer: s.Server, ToolName: s.Tool, OutcomeClass: s.Class.String(),
			CanUndo: s.CanUndo, CompensatedBy: s.CompensatedBy, Why: s.Why,
		}
		if !s.Settled.IsZero() {
			step.Settled = tga.MillisOf(s.Settled)
		}
		if s.CanUndo {
			step.Inverse = &wire.Inverse{ToolServer: s.Inverse.Server, ToolName: s.Inverse.Tool, Args: s.Inverse.Args}
		}
		m.Steps = append(m.Steps, step)
	}
	return m, nil
}

// delivered records that the caller received the whole answer of a trace.
func (q *request) delivered() (any, error) {
	id, namespace, err := q.decodeAbout(&struct{}{})
	if err != nil {
		return nil, err
	}
	_, err = run(q, namespace, patient(leaseWait, func(ctx context.Context) (struct{}, error) { return struct{}{}, q.d.rt.Delivered(ctx, id) }))
	return wire.Done{OK: true}, err
}

// giveUp records that a remote executor has stopped executing its attempt.
func (q *request) giveUp() (any, error) {
	var m wire.GiveUpRequest
	id, namespace, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	permit, err := runtime.ParsePermit(m.Permit)
	if err != nil {
		return nil, err.(*tga.Error).At("/permit")
	}
	_, err = run(q, namespace, patient(leaseWait, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, q.d.rt.GiveUp(ctx, id, permit, m.Cause, tga.ParseRetryAfterMS(m.RetryAfterMS))
	}))
	return wire.Done{OK: true}, err
}
