package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Approval is the durable record of a request that waits for people. It is an
// attachment of kind chain.AttachApproval under the trace's id. The batch of the decision
// deletes it.
type Approval struct {
	TraceID  tga.ID     `json:"trace_id"`
	Kind     string     `json:"kind,omitempty"` // AskDecision or AskConfirmation
	Since    tga.Millis `json:"since"`
	Expires  tga.Millis `json:"expires,omitempty"` // absent = never
	Required int        `json:"required"`          // number of approvals that it needs
	Why      string     `json:"why"`               // the supervisor's rationale
	Votes    []Vote     `json:"votes,omitempty"`
	// Schema is the digest of the tool's definition that people are asked about; zero if its
	// server has none. If the definition changes, the votes are void.
	Schema tga.Digest `json:"tool_schema_digest,omitzero"`
	// Changed says that the question has changed since it was asked first: from then on a vote
	// must name the question that it answers.
	Changed bool `json:"changed,omitempty"`

	// Only of a confirmation: the digests of the mismatch and of the stored evidence, and the
	// traces that wait for the answer.
	Mismatch tga.Digest `json:"mismatch_digest,omitzero"`
	Evidence tga.Digest `json:"evidence_digest,omitzero"`
	Waiting  []tga.ID   `json:"waiting,omitempty"`
	// Askers are the submitters of the waiting calls: they may not answer the question.
	Askers []string `json:"askers,omitempty"`
}

// What people are asked.
const (
	AskDecision     = ""             // may the request become a call?
	AskConfirmation = "confirmation" // may the record be relied on although changes no longer stand?
)

// About distinguishes this question from earlier and later ones about the same trace: it is the
// digest of the tool's definition, or of the changes that no longer stand. It is zero if there is
// only one question.
func (a *Approval) About() tga.Digest {
	if a.Kind == AskConfirmation {
		return a.Mismatch
	}
	return a.Schema
}

// answeredBy refuses an approval of another question than the current one. A voter answers some time
// after seeing a question, and the question may have changed meanwhile. A denial counts for every
// question, because it permits nothing.
func (a *Approval) answeredBy(vote Vote) error {
	about, code := a.About(), tga.ToolSchemaChanged
	if a.Kind == AskConfirmation {
		code = tga.ConfirmationRequired
	}
	switch {
	case !vote.Approve || vote.About == about:
		return nil
	case !vote.About.IsZero():
		return tga.Errorf(code, "the vote is about %s, and the question is about %s by now: look at it again", vote.About, about).At("/about").In(a.TraceID)
	case a.Changed:
		return tga.Errorf(code, "the question has changed since it was asked first: look at it again, and name what the vote is about, which is %s", about).At("/about").In(a.TraceID)
	}
	return nil
}

// Vote is one person's answer to a question about a request.
type Vote struct {
	Who       string     `json:"who"` // 1..255 characters
	Approve   bool       `json:"approve"`
	Rationale string     `json:"rationale"` // 10..1000 characters
	TS        tga.Millis `json:"ts"`        // set by Decide
	// About is [Approval.About] of the question that the voter was shown. It may be zero while the
	// question is the one that was asked first.
	About tga.Digest `json:"about,omitzero"`
}

// validate refuses a vote that the log would not show as it was given.
func (v Vote) validate() *tga.Error {
	if n := len(v.Who); n < 1 || n > 255 {
		return tga.Errorf(tga.ValidationError, "who has %d bytes, want 1..255", n).At("/who")
	}
	if n := utf8.RuneCountInString(v.Rationale); n < 10 || n > 1000 {
		return tga.Errorf(tga.ValidationError, "the rationale has %d characters, want 10 to 1000", n).At("/rationale")
	}
	if !utf8.ValidString(v.Rationale) {
		return tga.Errorf(tga.ValidationError, "the rationale %.80q is not UTF-8", v.Rationale).At("/rationale")
	}
	return nil
}

// approvals brings a request to its decision: it asks the rules, asks people if the rules require
// that, and counts their votes. Waiting requests are in the store. A vote is counted under the
// lease of its trace, so that two votes at the same time are counted one after the other.
type approvals struct {
	store   Store
	clock   times
	mint    *minter
	rules   *rules
	tokens  *tokens
	ends    *ends
	counts  *counts
	demands *demands
}

// decide is the step of run for a PENDING trace.
func (rt *Runtime) decide(ctx context.Context, l *loop) error { return rt.approvals.decide(ctx, l) }

// decide continues a PENDING trace: it stages the supervisor's decision, or leaves the
// trace to wait for people.
func (ap *approvals) decide(ctx context.Context, l *loop) error {
	if l.head.Seq > 0 { // nobody was asked about a request that is not durable
		pending, err := ap.pending(ctx, l.lease.TraceID)
		if err != nil {
			return err
		}
		if pending != nil {
			l.timer = pending.Expires
			// People were asked already, and are not asked again after a crash.
			changed, denied, err := ap.tighten(ctx, l, pending)
			if err != nil || denied {
				return err
			}
			if changed {
				if err := l.attachApproval(*pending); err != nil {
					return err
				}
				if err := l.commit(ctx); err != nil {
					return err
				}
			}
			return ap.wait(ctx, l, pending)
		}
	}
	if _, pure := ap.rules.supervisor.(PureSupervisor); !pure {
		// A supervisor that may act on the question is asked about a request that a
		// crash cannot take back.
		if err := l.commit(ctx); err != nil {
			return err
		}
	}
	v, err := ap.rules.supervise(ctx, l)
	if err != nil {
		return err
	}
	if v.Decision == tga.NeedsApproval {
		if l.head.Seq == 0 && ap.clock.pastDeadline(l) {
			return ap.ends.refuse(ctx, l, tga.ToolTimeout, "the deadline passed before people were asked")
		}
		// The question is about the definition of the tool at this moment.
		g, err := ap.tokens.grant(ctx, l)
		if err != nil {
			return err
		}
		pending := Approval{TraceID: l.lease.TraceID, Since: ap.clock.now(), Required: max(v.Required, 1), Why: v.Rationale, Schema: g.SchemaDigest}
		if v.Within != 0 {
			pending.Expires = tga.MillisOf(ap.clock.Now().Add(v.Within))
		}
		if l.deadline != 0 && (pending.Expires == 0 || l.deadline < pending.Expires) {
			pending.Expires = l.deadline // an answer after that would permit nothing
		}
		if err := l.attachApproval(pending); err != nil {
			return err
		}
		if pending.Expires != 0 {
			if err := l.setTimer(pending.Since, pending.Expires, timer{Kind: timerExpiry}); err != nil {
				return err
			}
		}
		if err := l.commit(ctx); err != nil {
			return err
		}
		return ap.wait(ctx, l, &pending)
	}
	return ap.stageDecision(ctx, l, v, nil)
}

// wait returns the answer while a request waits for people. Once the request has expired, it
// stages a denial.
func (ap *approvals) wait(ctx context.Context, l *loop, a *Approval) error {
	if ap.clock.over(a.Since, a.Expires) {
		l.detachApproval()
		l.stopTimer()
		ap.counts.expired.Add(1)
		return ap.stageDecision(ctx, l, Verdict{Decision: tga.Deny, Rationale: "the approval expired at " + a.Expires.String()}, tga.Meta{"code": string(tga.ApprovalExpired)})
	}
	not := ""
	if !ap.demands.selfApproval() && l.submitter != "" {
		not = fmt.Sprintf("; %q submitted the request and cannot approve it", l.submitter)
	}
	return tga.Errorf(tga.EscalationRequired, "the request waits for %d approval(s): %s%s", a.Required-approving(a.Votes), a.Why, not).In(l.lease.TraceID)
}

func (ap *approvals) stageDecision(ctx context.Context, l *loop, v Verdict, meta tga.Meta) error {
	token, err := ap.tokens.mint(ctx, l, v, &meta)
	if err != nil {
		return err
	}
	decision, err := ap.mint.decision(l, v, meta, token)
	if err != nil {
		return err
	}
	l.stage(decision)
	l.supervised = true
	if v.Decision == tga.Deny {
		ap.counts.denied.Add(1)
	}
	return nil
}

// Decide records a person's vote on a pending request and, once the votes suffice, the
// decision; the call then goes on in this very method, which returns like
// [Runtime.Call]. While more votes are needed the error is ESCALATION_REQUIRED. One
// denial denies. STATE_INVALID_TRANSITION if the trace does not wait for a decision,
// PERMISSION_DENIED for a second vote of one person. A lease that was lent to somebody
// outside this process is overtaken, so its holder cannot delay the vote.
func (rt *Runtime) Decide(ctx context.Context, trace tga.ID, vote Vote) (res Result, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.decide", trace, "", "")
	defer span.end(&res, &err)
	if err := vote.validate(); err != nil {
		return Result{TraceID: trace}, err.In(trace)
	}
	l, err := rt.traces.resumeBy(ctx, trace, func() (chain.Lease, error) { return rt.store.Overtake(ctx, trace, true) })
	if err != nil {
		return Result{TraceID: trace}, err
	}
	waiting, err := rt.decideOn(ctx, l, vote)
	if err != nil {
		rt.store.Release(l.lease)
		return l.partial(), err
	}
	res, err = rt.finish(ctx, l)
	if err != nil && l.state == tga.Authorized && l.awaitsExecutor() {
		err = nil // decided; the rest is its executor's
	}
	rt.store.Release(l.lease)
	for _, id := range waiting {
		// The traces that waited for the answer go on now. Their own callers get their results.
		waitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmWait)
		_, err := rt.Recover(waitCtx, id)
		cancel()
		if errors.Is(err, tga.StoreUnavailable) {
			return res, err
		}
	}
	return res, err
}

// decideOn records a vote on the open question of the trace, and returns the traces that
// waited for the answer.
func (rt *Runtime) decideOn(ctx context.Context, l *loop, vote Vote) ([]tga.ID, error) {
	pending, err := rt.approvals.pending(ctx, l.lease.TraceID)
	if err != nil {
		return nil, err
	}
	if err := rt.approvals.mayVote(l, pending, vote); err != nil {
		return nil, err
	}
	if pending != nil {
		l.timer = pending.Expires
	}
	if pending != nil && pending.Kind == AskConfirmation {
		return pending.Waiting, rt.confirmations.answer(ctx, l, pending, vote)
	}
	return nil, rt.approvals.vote(ctx, l, pending, vote)
}

// mayVote refuses the vote of the submitter, because a second person must look at the request. For
// a record that no longer stands, it refuses the submitter of the recorded call and the callers
// that rely on the record now.
func (ap *approvals) mayVote(l *loop, pending *Approval, vote Vote) error {
	own := vote.Who == l.submitter || pending != nil && slices.Contains(pending.Askers, vote.Who)
	if !ap.demands.selfApproval() && own {
		return tga.Errorf(tga.PermissionDenied, "%q submitted the request and cannot decide it", vote.Who).In(l.lease.TraceID)
	}
	return nil
}

// note makes the note of a vote; schema is the digest of the tool's definition that it is about.
func (ap *approvals) note(v Vote, schema tga.Digest) (chain.NewNote, error) {
	body := map[string]any{"approve": v.Approve, "rationale": v.Rationale}
	if !schema.IsZero() {
		body["tool_schema_digest"] = schema.String()
	}
	return ap.mint.note(tga.NoteVote, v.Who, body)
}

func (ap *approvals) vote(ctx context.Context, l *loop, pending *Approval, vote Vote) error {
	if l.state != tga.Pending || pending == nil {
		return tga.Errorf(tga.StateInvalidTransition, "trace is %s and waits for no decision", l.state).In(l.lease.TraceID)
	}
	if ap.clock.over(pending.Since, pending.Expires) {
		return nil // the loop records the expiry
	}
	for _, v := range pending.Votes {
		if v.Who == vote.Who {
			return tga.Errorf(tga.PermissionDenied, "%q has voted at %s", vote.Who, v.TS).In(l.lease.TraceID)
		}
	}
	if vote.Approve { // a denial holds for every definition
		again, err := ap.askAgain(ctx, l, pending)
		if err != nil {
			return err
		}
		if again {
			return tga.Errorf(tga.ToolSchemaChanged, "the definition of the tool has changed since people were asked: the votes are void, and the request waits for %d on the new one", pending.Required).In(l.lease.TraceID)
		}
	}
	if err := pending.answeredBy(vote); err != nil {
		return err
	}
	voted, err := ap.note(vote, pending.Schema)
	if err != nil {
		return err
	}
	if _, denied, err := ap.tighten(ctx, l, pending); err != nil || denied {
		return err // the loop records the denial
	}
	if ap.clock.over(pending.Since, pending.Expires) {
		return nil // by the current rules
	}
	vote.TS = ap.clock.now()
	l.notes = append(l.notes, voted)
	pending.Votes = append(pending.Votes, vote)
	if vote.Approve && approving(pending.Votes) < pending.Required {
		if err := l.attachApproval(*pending); err != nil {
			return err
		}
		return l.commit(ctx)
	}
	verdict := Verdict{Decision: tga.Deny, Rationale: vote.Rationale}
	if vote.Approve {
		verdict.Decision = tga.Approve
	}
	who := ""
	for i, v := range pending.Votes {
		if i > 0 {
			who += ", "
		}
		who += v.Who
	}
	meta := tga.Meta{MetaApprovers: who}
	if !pending.Schema.IsZero() {
		meta[tga.MetaSchemaDigest] = pending.Schema.String()
	}
	if err := ap.stageDecision(ctx, l, verdict, meta); err != nil {
		return err
	}
	// The vote is durable before the call is considered, so that a refused call does
	// not take the decision back.
	l.detachApproval()
	l.stopTimer()
	return l.commit(ctx)
}

// Approvals returns what waits for people, by trace id. If the error is an [UnreadApprovals], the list has all
// that can be read now.
func (rt *Runtime) Approvals(ctx context.Context) ([]Approval, error) { return rt.approvals.all(ctx) }

// UnreadApprovals is the error that comes with an incomplete list of what waits for people: the data keys of the
// missing ones are not available now. Each error names its trace.
type UnreadApprovals []*tga.Error

// Error lists the errors, only the first 20 if there are more.
func (u UnreadApprovals) Error() string {
	const most = 20
	var lines []string
	for _, e := range u[:min(len(u), most)] {
		lines = append(lines, e.Error())
	}
	if len(u) > most {
		lines = append(lines, fmt.Sprintf("and %d more", len(u)-most))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the first error, so its code is the code of the list.
func (u UnreadApprovals) Unwrap() error { return u[0] }

func (ap *approvals) all(ctx context.Context) ([]Approval, error) {
	var all []Approval
	var unread UnreadApprovals
	for a, err := range ap.store.Attachments(ctx, chain.AttachApproval, nil) {
		if tga.CodeOf(err) == tga.StoreUnavailable && len(a.Key) == len(tga.ID{}) {
			trace := tga.ID(a.Key)
			unread = append(unread, tga.Errorf(tga.StoreUnavailable, "what people are asked about trace %s cannot be read: %w", trace, err).In(trace))
			continue
		}
		if err != nil {
			return nil, err
		}
		var p Approval
		if err := json.Unmarshal(a.Value, &p); err != nil {
			return nil, tga.Errorf(tga.StateChecksumMismatch, "pending approval %x: %w", a.Key, err)
		}
		all = append(all, p)
	}
	if len(unread) > 0 {
		return all, unread
	}
	return all, nil
}

func (ap *approvals) pending(ctx context.Context, trace tga.ID) (*Approval, error) {
	raw, err := ap.store.Attachment(ctx, chain.AttachApproval, keyspace.ApprovalKey(trace))
	if err != nil || raw == nil {
		return nil, err
	}
	var p Approval
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, tga.Errorf(tga.StateChecksumMismatch, "pending approval: %w", err).In(trace)
	}
	return &p, nil
}

func (a Approval) attachment() (chain.Attachment, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return chain.Attachment{}, tga.Errorf(tga.ValidationError, "pending approval: %w", err).In(a.TraceID)
	}
	return chain.Attachment{Kind: chain.AttachApproval, Key: keyspace.ApprovalKey(a.TraceID), Value: raw}, nil
}

func (l *loop) attachApproval(pending Approval) error {
	a, err := pending.attachment()
	if err == nil {
		l.attachments = append(l.attachments, a)
	}
	return err
}

func (l *loop) detachApproval() {
	l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachApproval, Key: keyspace.ApprovalKey(l.lease.TraceID)})
}

func approving(votes []Vote) int {
	n := 0
	for _, v := range votes {
		if v.Approve {
			n++
		}
	}
	return n
}
