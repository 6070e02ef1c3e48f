package runtime

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Admit reports whether the runtime accepts a request, before anything of it is written:
// VALIDATION_ERROR or NOT_FOUND if its names, its key or its arguments can't be sent
// as they are. It is for requests that peers append raw; [Runtime.Call] and [Runtime.Begin]
// do this check themselves. The peer may send the call itself, so Admit does not refuse a
// server that this process does not reach.
func (rt *Runtime) Admit(ctx context.Context, request *tga.Artifact) (err error) {
	defer rt.goOn(&err)
	if err := rt.redact.unredacted(request); err != nil {
		return err
	}
	return rt.admission.admit(ctx, request, nil, tga.ID{}, true)
}

// AdmitEffect is Admit for the effect of a call that a peer made itself. VALIDATION_ERROR if it
// contains something that must not be stored: the peer's digest covers it, so nobody else can
// remove it.
func (rt *Runtime) AdmitEffect(call *tga.Artifact, namespace string, effect chain.NewArtifact) (err error) {
	defer rt.goOn(&err)
	return rt.redact.unredactedAnswer(call, namespace, effect)
}

// admission decides which requests are accepted, and lets the dispatcher prepare for their calls.
type admission struct {
	tools   Dispatcher
	profile ledger.Profile
}

// admit is the only place where the name of a tool enters. From here on the rules, the
// licence, the ledger and the URL are all looked up by the same name. whole are the arguments
// as they are sent, if only a redacted form of them is stored.
func (a *admission) admit(ctx context.Context, request *tga.Artifact, whole []byte, callID tga.ID, remote bool) error {
	q := request.Request
	args := q.Proposal.Args
	if whole != nil {
		args = whole
	}
	if err := q.Proposal.CheckNames(); err != nil {
		return err
	}
	if a.profile == ledger.Talos {
		if err := q.Proposal.CheckTalosNames(); err != nil {
			return err
		}
	}
	err := Check(ctx, a.tools, Call{
		TraceID: request.TraceID, ToolCallID: callID, Attempt: 1, Namespace: namespaceOf(request),
		Server: q.Proposal.ToolServer, Tool: q.Proposal.ToolName, Args: args,
		Key: firstOf(q.IdempotencyKey, callID.String()), Remote: remote,
	})
	if err != nil {
		return tga.Errorf(codeOr(err, tga.ValidationError), "%s on %s: %w", q.Proposal.ToolName, q.Proposal.ToolServer, err).In(request.TraceID)
	}
	return nil
}

// CheckProfile reports whether an artifact that a peer made itself follows the profile:
// SCHEMA_VIOLATION, with a pointer, if the schemas of profile talos do not accept it.
func (rt *Runtime) CheckProfile(a *tga.Artifact) error {
	if rt.opts.Profile != ledger.Talos {
		return nil
	}
	return a.CheckTalos()
}

// namespaceOf returns the namespace that a request names, or the default one.
func namespaceOf(request *tga.Artifact) string {
	return firstOf(request.Meta.String(tga.MetaNamespace), tga.DefaultNamespace)
}

// prepare lets a dispatcher store what it needs before the call is sent; that commits
// with the EXECUTING entry. A request that is in the log already is checked once more: a peer
// may have appended it, or the tool may be gone from the configuration since.
func (a *admission) prepare(ctx context.Context, l *loop) error {
	if l.head.Seq != 0 {
		if err := a.admit(ctx, l.request, l.whole, l.callID, l.remote != nil); err != nil {
			return err
		}
	}
	p, ok := a.tools.(Preparer)
	if !ok || l.remote != nil {
		return nil
	}
	attachments, err := p.Prepare(ctx, l.askedCall())
	l.prepared = attachments
	return err
}
