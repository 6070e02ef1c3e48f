package runtime

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// tokens mints and checks the capabilities that are made from approvals.
type tokens struct {
	capabilities Capabilities // [Trust.Capabilities]; nil mints none
	demands      *demands
	supervisor   func(who string) TokenChecker                                      // [Trust.Supervisor]; nil knows none
	schema       func(ctx context.Context, server, tool string) (tga.Digest, error) // [Trust.Schema]; nil asks none
	policy       func(server, tool string) Policy
	profile      ledger.Profile
}

// mint turns an approval into a token that permits this call and no other. A token is
// minted if people decided, if the operator requires one, and under profile talos, whose
// schemas require one. Other decisions of this process need none, because nobody else can
// make them.
func (t *tokens) mint(ctx context.Context, l *loop, v Verdict, meta *tga.Meta) (string, error) {
	wanted := (*meta)[MetaApprovers] != nil || t.demands.capabilityNeeded() || t.profile == ledger.Talos
	if v.Decision != tga.Approve || t.capabilities == nil || !wanted {
		return "", nil
	}
	g, err := t.grant(ctx, l)
	if err != nil {
		return "", err
	}
	if was := meta.String(tga.MetaSchemaDigest); was != "" && was != g.SchemaDigest.String() {
		return "", schemaChanged(&g, was).In(l.lease.TraceID)
	}
	if !g.SchemaDigest.IsZero() {
		*meta = mergeMeta(*meta, tga.Meta{tga.MetaSchemaDigest: g.SchemaDigest.String()})
	}
	token, err := t.capabilities.Mint(ctx, g)
	if err != nil {
		return "", tga.Errorf(codeOr(err, tga.CapabilityInvalid), "mint a capability: %w", err).In(l.lease.TraceID)
	}
	return token, nil
}

// MetaApprovers names, in the meta of a decision, the people who made it.
const MetaApprovers = "approvers"

// grant returns what the trace's request asks for, with the tool's current definition.
func (t *tokens) grant(ctx context.Context, l *loop) (Grant, error) {
	p := l.request.Request.Proposal
	g := Grant{
		TraceID: l.request.TraceID, PlanID: l.request.PlanID, Server: p.ToolServer, Tool: p.ToolName,
		ArgsDigest: tga.Sum(p.Args), ReadOnly: l.class() == tga.ClassRead,
	}
	if t.schema == nil {
		return g, nil
	}
	var err error
	if g.SchemaDigest, err = t.schema(ctx, p.ToolServer, p.ToolName); err != nil {
		return g, tga.Errorf(codeOr(err, tga.ToolError), "ask for the definition of %s on %s: %w", p.ToolName, p.ToolServer, err).In(l.lease.TraceID)
	}
	return g, nil
}

// check verifies, before the first send, that the decision's capability is for exactly this
// call: signature, expiry, trace, server, tool, arguments, and the tool's current
// definition. A re-send has the same tool_call_id and is not checked again.
func (t *tokens) check(ctx context.Context, l *loop) error {
	token := l.decision.Decision.MintedCapability
	if l.decider != "" {
		return t.checkSupervisor(ctx, l.request, l.decider, token)
	}
	pinned := l.decision.Meta.String(tga.MetaSchemaDigest)
	switch {
	case token == "" && t.demands.capabilityNeeded():
		return tga.Errorf(tga.CapabilityInvalid, "the decision carries no capability, and one is required").In(l.lease.TraceID)
	case token == "" && pinned == "":
		return nil
	case token != "" && t.capabilities == nil:
		return tga.Errorf(tga.CapabilityInvalid, "the decision carries a capability, and there is no key to check it with").In(l.lease.TraceID)
	}
	g, err := t.grant(ctx, l)
	if err != nil {
		return err
	}
	if pinned != "" && pinned != g.SchemaDigest.String() {
		return schemaChanged(&g, pinned).In(l.lease.TraceID)
	}
	if token == "" {
		return nil
	}
	return t.capabilities.Check(ctx, token, g)
}

func schemaChanged(g *Grant, was string) *tga.Error {
	return tga.Errorf(tga.ToolSchemaChanged, "the definition of %s on %s was %s when people were asked and is %s now", g.Tool, g.Server, was, g.SchemaDigest)
}

// Supervises reports whether who is a remote supervisor that the operator configured.
func (rt *Runtime) Supervises(who string) bool { return rt.tokens.supervises(who) }

func (t *tokens) supervises(who string) bool { return t.supervisor != nil && t.supervisor(who) != nil }

// CheckSupervisor checks that a token is the signature of the remote supervisor who, for
// the call of this request and no other: when its approval is appended, and again before
// the first send. PERMISSION_DENIED where the operator configured no such supervisor,
// CAPABILITY_INVALID for the token.
func (rt *Runtime) CheckSupervisor(ctx context.Context, request *tga.Artifact, who, token string) (err error) {
	defer rt.goOn(&err)
	return rt.tokens.checkSupervisor(ctx, request, who, token)
}

func (t *tokens) checkSupervisor(ctx context.Context, request *tga.Artifact, who, token string) error {
	if !t.supervises(who) {
		return tga.Errorf(tga.PermissionDenied, "%q is no remote supervisor of the configuration: its approval counts for nothing", who).In(request.TraceID)
	}
	if token == "" {
		return tga.Errorf(tga.CapabilityInvalid, "the decision carries no minted_capability, and a remote supervisor signs what it approves").In(request.TraceID)
	}
	p := request.Request.Proposal
	g, err := t.grant(ctx, &loop{request: request, policy: t.policy(p.ToolServer, p.ToolName).withDefaults()})
	if err != nil {
		return err
	}
	return t.supervisor(who).Check(ctx, token, g)
}
