package runtime

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Confirmation is the result of verifying the changes of a recorded effect.
type Confirmation struct {
	Checked    int        // changes that a verifier looked at
	Unchecked  int        // changes without a verifier
	Mismatches []Mismatch // all of them, in the order of the changes
	// Skipped says that an earlier confirmation still holds, so no verifier was asked.
	Skipped bool
	// EvidenceDigest is the digest of the stored evidence; zero if there is none.
	EvidenceDigest tga.Digest
}

// Mismatch is a change that does not stand as it was recorded.
type Mismatch struct {
	Change  tga.StateChange
	Finding Finding
	Reason  string // of a verifier that failed
}

// confirmWait bounds the wait for the lease of the trace whose record is confirmed.
const confirmWait = 10 * time.Second

// maxEvidence is how much of one piece of evidence is kept.
const maxEvidence = 64 << 10

// confirmations verifies the changes of recorded effects before somebody relies on them, and keeps
// what people say about a record whose changes no longer stand.
type confirmations struct {
	store     Store
	clock     times
	verifier  func(resourceType string) Verifier // [Trust.Verifier]; nil has none
	approvals *approvals                         // where a question to people waits
	redact    redactions
	counts    *counts
	demands   *demands
}

// confirm verifies whether the changes of origin still stand, before its record is served.
// The finding becomes a note on origin, with the evidence. The tool's mode says what a mismatch
// is: CONFIRMATION_MISMATCH (strict, or a person rejected the record), CONFIRMATION_REQUIRED (a
// person must decide), or only reported (warn).
func (cs *confirmations) confirm(ctx context.Context, l *loop, origin *chain.Trace, record *ledger.Record) (*Confirmation, error) {
	changes, err := changesOf(origin)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	if every := l.policy.ConfirmEvery; every > 0 && record != nil && record.ConfirmedAt != 0 && cs.clock.Longest(record.ConfirmedAt.Time()) < every {
		return &Confirmation{Skipped: true, EvidenceDigest: record.EvidenceDigest}, nil
	}
	cs.counts.confirmed.Add(1)
	c, evidence := cs.look(ctx, l.unredacted(l.askedCall()), changes)
	body := ledger.Confirmation{
		Checked: c.Checked, Unchecked: c.Unchecked, Mismatches: len(c.Mismatches),
		EvidenceDigest: c.EvidenceDigest, Finding: ledger.Confirmed,
	}
	switch {
	case len(c.Mismatches) > 0:
		cs.counts.mismatches.Add(uint64(len(c.Mismatches)))
		body.Finding = ledger.Mismatched
		if body.MismatchDigest, err = mismatchDigest(c.Mismatches); err != nil {
			return c, err
		}
	case c.Checked == 0:
		body.Finding = ledger.Unconfirmed
	}
	said := ""
	if l.policy.Replay == ReplayHuman && len(c.Mismatches) > 0 {
		said = cs.saidTo(l, origin, body.MismatchDigest)
	}
	asks := l.policy.Replay == ReplayHuman && len(c.Mismatches) > 0 && said == ""
	switch answered, err := cs.keep(ctx, l, origin.ID, body, evidence, asks); {
	case takesNone(err, origin.ID):
		// It is archived: nothing can be kept with it, and nobody can be asked about it.
		asks, c.EvidenceDigest = false, tga.Digest{}
	case err != nil:
		return c, err
	case answered != "":
		asks, said = false, answered
	}
	switch {
	case len(c.Mismatches) == 0 || l.policy.Replay == ReplayWarn || said == ledger.Confirmed:
		return c, nil
	case asks:
		return c, tga.Errorf(tga.ConfirmationRequired, "%d of %d recorded changes no longer stand (%s): a person must confirm or reject the record of trace %s", len(c.Mismatches), len(changes), c.Mismatches[0].describe(), origin.ID).In(l.lease.TraceID)
	}
	return c, tga.Errorf(tga.ConfirmationMismatch, "%d of %d recorded changes no longer stand: %s", len(c.Mismatches), len(changes), c.Mismatches[0].describe()).In(l.lease.TraceID)
}

func (m Mismatch) describe() string {
	s := m.Change.ResourceType + " " + m.Change.ResourceID + " " + m.Finding.String()
	if m.Reason != "" {
		s += ": " + m.Reason
	}
	return s
}

// changesOf reads the changes that an effect lists. Erased changes cannot be verified any
// more, and count as none.
func changesOf(t *chain.Trace) ([]tga.StateChange, error) {
	for _, d := range t.Documents {
		if d.Pointer == tga.PointerStateChanges && !d.Erased {
			return tga.DecodeStateChanges(d.Data)
		}
	}
	return nil, nil
}

// seen is one line of the stored evidence.
type seen struct {
	Change   tga.StateChange `json:"change"`
	Finding  string          `json:"finding"` // "not_checked" without a verifier
	Source   string          `json:"source,omitempty"`
	Evidence json.RawMessage `json:"evidence,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// look asks the verifier of every change of a call, and returns the evidence as the JSON document
// that is kept.
func (cs *confirmations) look(ctx context.Context, of Call, changes []tga.StateChange) (*Confirmation, []byte) {
	c := &Confirmation{}
	lines := make([]seen, 0, len(changes))
	for _, change := range changes {
		line := seen{Change: change, Finding: ledger.Unconfirmed}
		var v Verifier
		if f := cs.verifier; f != nil {
			v = f(change.ResourceType)
		}
		if v == nil {
			c.Unchecked++
			lines = append(lines, line)
			continue
		}
		c.Checked++
		finding, evidence, err := v.Verify(ctx, change)
		if err != nil {
			finding, line.Reason = CannotTell, clip.Short(cs.redact.words(of, err.Error()), 500)
		}
		evidence = cs.redact.evidence(of, evidence)
		line.Finding, line.Source = finding.String(), clip.Short(evidence.Source, 500)
		if len(evidence.Detail) <= maxEvidence && json.Valid(evidence.Detail) {
			line.Evidence = evidence.Detail
		}
		if finding != Exists {
			c.Mismatches = append(c.Mismatches, Mismatch{change, finding, line.Reason})
		}
		lines = append(lines, line)
	}
	raw, err := json.Marshal(lines)
	if err != nil { // a verifier's detail was checked; nothing else can fail
		raw = []byte("[]")
	}
	c.EvidenceDigest = tga.Sum(raw)
	return c, raw
}

// mismatchDigest returns a digest that is the same for the same changes in the same state,
// whenever they are verified.
func mismatchDigest(list []Mismatch) (tga.Digest, error) {
	type line struct {
		Change  tga.StateChange `json:"change"`
		Finding string          `json:"finding"`
	}
	lines := make([]line, len(list))
	for i, m := range list {
		lines[i] = line{m.Change, m.Finding.String()}
	}
	raw, err := json.Marshal(lines)
	if err != nil {
		return tga.Digest{}, tga.Errorf(tga.ValidationError, "mismatches: %w", err)
	}
	return tga.Sum(raw), nil
}

// saidTo returns what a person last said about exactly this mismatch, "" if nobody did. Unless
// self approval is allowed, a confirmation by the caller that relies on the record does not count:
// another person must give it.
func (cs *confirmations) saidTo(l *loop, origin *chain.Trace, mismatch tga.Digest) string {
	for _, n := range slices.Backward(origin.Notes) {
		if n.Kind != tga.NoteConfirmation || n.Who == whoRuntime {
			continue
		}
		if c, err := ledger.ParseConfirmation(n.Body); err == nil && c.MismatchDigest == mismatch {
			if c.Finding == ledger.Confirmed && n.Who == l.asker && !cs.demands.selfApproval() {
				continue
			}
			return c.Finding
		}
	}
	return ""
}

// keep appends the note to origin, with the evidence, and with asks also the question to
// people; answered is what a person said meanwhile.
func (cs *confirmations) keep(ctx context.Context, l *loop, origin tga.ID, body ledger.Confirmation, evidence []byte, asks bool) (answered string, err error) {
	raw, err := body.Body()
	if err != nil {
		return "", err
	}
	digest := body.EvidenceDigest
	b := chain.Batch{
		Notes:       []chain.NewNote{{Kind: tga.NoteConfirmation, Who: whoRuntime, Body: raw}},
		Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(digest, origin), Value: evidence}},
	}
	err = cs.onTrace(ctx, l, origin, func(lease chain.Lease) error {
		if asks {
			// Look again under the lease: if an answer came meanwhile, nobody is asked.
			now, err := cs.store.Load(ctx, origin)
			if err != nil {
				return err
			}
			if answered = cs.saidTo(l, now, body.MismatchDigest); answered == "" {
				question, err := cs.question(ctx, l, origin, body)
				if err != nil {
					return err
				}
				b.Attachments = append(b.Attachments, question)
			}
		}
		_, err := cs.store.Append(ctx, lease, b)
		return err
	})
	return answered, err
}

// question makes the question to people about origin's record, with all that wait for the answer.
func (cs *confirmations) question(ctx context.Context, l *loop, origin tga.ID, body ledger.Confirmation) (chain.Attachment, error) {
	pending := Approval{
		TraceID: origin, Kind: AskConfirmation, Since: cs.clock.now(), Required: 1,
		Why: "recorded changes no longer stand", Mismatch: body.MismatchDigest, Evidence: body.EvidenceDigest,
	}
	before, err := cs.approvals.pending(ctx, origin)
	if err != nil {
		return chain.Attachment{}, err
	}
	if before != nil {
		pending.Since, pending.Waiting, pending.Askers = before.Since, before.Waiting, before.Askers
		pending.Changed = before.Changed || before.Mismatch != pending.Mismatch
	}
	if who := l.asker; who != "" && !slices.Contains(pending.Askers, who) {
		if len(pending.Askers) == maxAskers {
			// If this asker were not recorded, it could answer its own question.
			return chain.Attachment{}, tga.Errorf(tga.LimitExceeded, "%d others wait for an answer about the record of trace %s", maxAskers, origin).In(l.lease.TraceID)
		}
		pending.Askers = append(pending.Askers, who)
	}
	if id := l.lease.TraceID; id != origin && !l.state.Terminal() && !slices.Contains(pending.Waiting, id) {
		if len(pending.Waiting) == maxWaiting {
			// If this call waited too, the answer would not continue it.
			return chain.Attachment{}, tga.Errorf(tga.LimitExceeded, "%d calls wait for an answer about the record of trace %s: make this call after the answer", maxWaiting, origin).In(id)
		}
		pending.Waiting = append(pending.Waiting, id)
	}
	return pending.attachment()
}

// maxWaiting is how many waiting traces a question to people names at most.
const maxWaiting = 100

// maxAskers is how many askers a question names at most; none of them may answer it.
const maxAskers = 1000

// onTrace calls f with the lease of another trace, or with this run's own.
func (cs *confirmations) onTrace(ctx context.Context, l *loop, id tga.ID, f func(chain.Lease) error) error {
	switch id {
	case l.lease.TraceID:
		l.trace = nil // f appends to it
		return f(l.lease)
	case l.origin.TraceID:
		return f(l.origin)
	}
	waitCtx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	lease, err := cs.store.Overtake(waitCtx, id, true)
	if err != nil {
		return err
	}
	defer cs.store.Release(lease)
	return f(lease)
}

// confirmOwn confirms the record of a terminal trace before somebody relies on it: its own
// effect, or the effect that it was served.
func (cs *confirmations) confirmOwn(ctx context.Context, l *loop) error {
	origin, err := cs.store.Load(ctx, l.lease.TraceID)
	if err != nil || origin.Effect == nil || !ledger.ClassOf(origin.Effect).Done() {
		return err
	}
	if from := origin.Effect.Meta.String(tga.MetaReplayedFrom); from != "" {
		id, err := tga.ParseID(from)
		if err != nil {
			return err
		}
		if origin, err = cs.store.Load(ctx, id); err != nil {
			return err
		}
	}
	// A served trace has the same key as its origin, and the origin may be erased.
	record, err := cs.store.Record(ctx, ledger.KeyOf(l.namespace, l.call))
	if err != nil {
		return err
	}
	l.confirmation, err = cs.confirm(ctx, l, origin, record)
	return err
}

// answer records what a person says about a record whose changes no longer stand. The caller
// continues the traces that wait for it.
func (cs *confirmations) answer(ctx context.Context, l *loop, pending *Approval, vote Vote) error {
	if err := pending.answeredBy(vote); err != nil {
		return err
	}
	body := ledger.Confirmation{EvidenceDigest: pending.Evidence, Finding: ledger.Rejected, MismatchDigest: pending.Mismatch}
	if vote.Approve {
		body.Finding = ledger.Confirmed
	}
	raw, err := body.Body()
	if err != nil {
		return err
	}
	voted, err := cs.approvals.note(vote, tga.Digest{})
	if err != nil {
		return err
	}
	b := chain.Batch{Notes: []chain.NewNote{voted, {Kind: tga.NoteConfirmation, Who: vote.Who, Body: raw}}}
	b.Attachments = []chain.Attachment{{Kind: chain.AttachApproval, Key: keyspace.ApprovalKey(l.lease.TraceID)}}
	if err := l.append(ctx, b); err != nil {
		return err
	}
	cs.counts.byPerson.Add(1)
	return nil
}
