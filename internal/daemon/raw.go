package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// rawTries bounds how often a raw append is checked again because another append to its trace
// came between the check and the append.
const rawTries = 8

// appendRaw is the only way by which a peer's own artifacts reach the log. It checks that the
// peer may append them, against the head that it loads, and appends them to exactly that head. If
// the peer names another head, the append is refused. A note that names the peer commits with them.
func (q submitting) appendRaw(id tga.ID, lease string, batch chain.Batch, at string) (Submitted, error) {
	// A client that disconnects does not end the append.
	ctx := context.WithoutCancel(q.r.Context())
	expect := batch.Expect
	for try := 1; ; try++ {
		t, err := q.d.db.Load(ctx, id)
		switch {
		case errors.Is(err, tga.NotFound):
			t = chain.NewTrace(id)
		case tga.CodeOf(err) == tga.StateRecoveryFailed && !q.ownGenesis(id):
			return nil, noTrace(id)
		case err != nil:
			return nil, err
		case !q.peer.sees(t.Namespace):
			return nil, noTrace(id)
		}
		// An unknown token stands for the lease of epoch zero, which no store grants. The store
		// then refuses the append, unless the log already has it: a repeat is answered.
		held := q.d.leases.lookup(lease, id)
		batch.Expect, batch.Notes = expect, nil
		if _, there := chain.Replayed(t, batch); !there {
			if err := q.mayAppendRaw(ctx, t, batch.Artifacts, at); err != nil {
				return nil, err
			}
			note, err := runtime.AppendedNote(q.peer.name(), t.Head.Seq+1, t.Head.Seq+uint64(len(batch.Artifacts)))
			if err != nil {
				return nil, err
			}
			batch.Notes = []chain.NewNote{note}
			if err := t.Expect(expect); err != nil {
				// Do not leave this to the store: its head may be the expected one by then, and
				// what was checked is the append to another.
				if !q.d.db.Current(held) {
					err = over(held) // the store too would refuse the lease before the head
				}
				return nil, err
			}
			head := t.Head
			batch.Expect = &head
		}
		ticket, err := q.d.db.Submit(ctx, held, batch)
		if expect == nil && try < rawTries && errors.Is(err, tga.StateSequenceGap) {
			continue // another append under the same lease came between: check again
		}
		return ticket, underToken(err, held)
	}
}

// mayAppendRaw checks that the peer may append the artifacts to t, each by the table of
// [runtime.MayAppend]. It leaves an artifact that is no legal transition to the store, which
// refuses it.
func (q submitting) mayAppendRaw(ctx context.Context, t *chain.Trace, artifacts []chain.NewArtifact, at string) error {
	who, state := q.peer.name(), t.Head.State
	call, namespace := t.Call, t.Namespace
	request, asked, sent := t.Request, runtime.RequestOrigin(t, who), runtime.Sender(t, who)
	for i := range artifacts {
		a, at := artifacts[i].Artifact, fmt.Sprintf("%s/artifacts/%d/artifact", at, i)
		claim := runtime.Claim{Subject: subjectOf(a), Writer: runtime.ByPeer, Origin: asked, Rights: q.rights()}
		if claim.Subject == runtime.AnEffect {
			claim.Origin = sent
		}
		next, legal := tga.Next(state, a.Type, a.Verdict())
		if !legal {
			// Refuse only a peer without the verb. The store refuses the illegal transition.
			return q.hasVerb(a, at)
		}
		if err := runtime.MayAppend(claim); err != nil {
			return describe(err, a, at)
		}
		if err := q.ownMembers(a, at); err != nil {
			return err
		}
		if err := q.d.rt.CheckProfile(a); err != nil {
			return under(at, err)
		}
		switch a.Type {
		case tga.RequestType:
			if err := q.d.rt.Admit(ctx, a); err != nil {
				return under(at+"/proposal", err)
			}
			request, asked = a, runtime.OfWriter
		case tga.DecisionType:
			if err := q.mayDecideRaw(ctx, t, request, a, at); err != nil {
				return err
			}
		case tga.CallType:
			call, sent = a, runtime.OfWriter
		case tga.EffectType:
			if err := q.d.rt.AdmitEffect(call, namespace, artifacts[i]); err != nil {
				return under(at, err)
			}
		}
		state = next
	}
	return nil
}

// subjectOf returns the row of the table of [runtime.MayAppend] that an artifact belongs to. The
// effect of a call that is never sent is in one batch with that call, and so is the peer's own.
func subjectOf(a *tga.Artifact) runtime.Subject {
	switch {
	case a.Type == tga.RequestType:
		return runtime.ARequest
	case a.Type == tga.DecisionType && a.Decision.Decision == tga.Approve:
		return runtime.AnApproval
	case a.Type == tga.DecisionType:
		return runtime.ADenial
	case a.Type == tga.CallType && a.Meta.String(tga.MetaAttempt) == tga.AttemptNone:
		return runtime.AnUnsentCall
	case a.Type == tga.CallType:
		return runtime.ACall
	}
	return runtime.AnEffect
}

// rights are those that the configuration gives the peer.
func (q submitting) rights() runtime.Rights {
	var all runtime.Rights
	for _, r := range []struct {
		has   bool
		right runtime.Rights
	}{
		{q.peer.role.Has(config.Append), runtime.RightAppend},
		{q.peer.role.Has(config.Decide), runtime.RightDecide},
		{q.peer.role.Has(config.Admin), runtime.RightAdmin},
		{q.d.rt.Supervises(q.peer.name()), runtime.RightSign},
		{q.d.conf().Approval.Self, runtime.RightSelf},
	} {
		if r.has {
			all |= r.right
		}
	}
	return all
}

// hasVerb refuses an artifact if its type takes a verb that the peer does not have.
func (q submitting) hasVerb(a *tga.Artifact, at string) error {
	verb := config.Append
	if a.Type == tga.DecisionType {
		verb = config.Decide
	}
	if !q.peer.role.Has(verb) {
		return describe(tga.Errorf(tga.PermissionDenied, "it takes the verb %s", verb), a, at)
	}
	return nil
}

// describe adds to a refusal which artifact of which trace it is about.
func describe(err error, a *tga.Artifact, at string) error {
	var e *tga.Error
	if !errors.As(err, &e) {
		return err
	}
	return tga.Errorf(e.Code, "append a %s: %s", a.Type, e.Message).In(a.TraceID).At(at)
}

// daemonsOwn are the members of meta in which tgad records what it did itself. In an artifact
// that a peer made they would be forged: a permit that tgad never issued, votes that nobody
// gave, a resolution that nobody made, or the undoing of another trace.
var daemonsOwn = map[tga.ArtifactType][]string{
	tga.RequestType: {
		tga.MetaExecutor, tga.MetaBeginID, tga.MetaCompensates, tga.MetaRetryNumber, tga.MetaDerivedKey, tga.MetaOccurrence,
		tga.MetaIdentity, tga.MetaAgainOf, tga.MetaSubject, tga.MetaClientLicence,
	},
	tga.DecisionType: {runtime.MetaApprovers},
	tga.CallType:     {tga.MetaPermitDigest, tga.MetaBeginID, tga.MetaLicence},
	tga.EffectType: {
		tga.MetaResolvedBy, tga.MetaResolver, tga.MetaResolvedVia, tga.MetaFinishedBy, runtime.MetaFinishedAttempt, tga.MetaCompensatedBy,
	},
}

// ownMembers refuses members of meta that only the daemon may set, another submitter than the
// peer, and a namespace that the peer does not see.
func (q submitting) ownMembers(a *tga.Artifact, at string) error {
	for _, name := range daemonsOwn[a.Type] {
		if a.Meta[name] != nil {
			return tga.Errorf(tga.ValidationError, "meta.%s of a %s is tgad's own", name, a.Type).In(a.TraceID).At(at + "/meta/" + name)
		}
	}
	switch a.Type {
	case tga.RequestType:
		if who, given := a.Meta[tga.MetaSubmitter]; given && who != q.peer.name() {
			return tga.Errorf(tga.PermissionDenied, "the request says that %v submits it, and %s does", who, q.peer.name()).In(a.TraceID).At(at + "/meta/" + tga.MetaSubmitter)
		}
		namespace := a.Meta.String(tga.MetaNamespace)
		if namespace == "" {
			namespace = tga.DefaultNamespace
		}
		if !q.peer.sees(namespace) {
			return tga.Errorf(tga.PermissionDenied, "%s acts in namespace %q, and the request says %q", q.peer.name(), q.peer.role.Namespace, namespace).In(a.TraceID).At(at + "/meta/" + tga.MetaNamespace)
		}
	case tga.CallType:
		// A peer that appends a call sends it itself. Only the daemon appends a call whose
		// attempts are notes, and only begin makes one of a remote executor.
		if mode := a.Meta[tga.MetaAttempt]; mode != nil && mode != tga.AttemptFused && mode != tga.AttemptNone {
			return tga.Errorf(tga.ValidationError, "meta.attempt %v: want %s or %s of a call that a peer appends", mode, tga.AttemptFused, tga.AttemptNone).In(a.TraceID).At(at + "/meta/" + tga.MetaAttempt)
		}
	}
	return nil
}

// mayDecideRaw checks a decision beyond the table: no votes may be pending, and an approval
// must carry the remote supervisor's signature for this very call.
func (q submitting) mayDecideRaw(ctx context.Context, t *chain.Trace, request, decision *tga.Artifact, at string) error {
	// While people vote on the request, a decision would end it without their votes.
	pending, err := q.d.db.Attachment(ctx, chain.AttachApproval, t.ID[:])
	if err != nil {
		return err
	}
	if pending != nil {
		return tga.Errorf(tga.StateInvalidTransition, "the request waits for votes: decide, do not append a decision").In(t.ID).At(at)
	}
	d := decision.Decision
	if d.Decision != tga.Approve {
		return nil // a denial permits nothing
	}
	if request == nil || decision.TraceID != t.ID || d.RequestID != request.ID || d.RequestDigest != request.Digest {
		return nil // it names another request, so the store refuses it
	}
	if err := q.d.rt.CheckSupervisor(ctx, request, q.peer.name(), d.MintedCapability); err != nil {
		return describe(err, decision, at+"/minted_capability")
	}
	return nil
}
