package interleave

import (
	"context"
	"fmt"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The rights of peers that append what they make themselves: one that may only append, and
// a configured supervisor that may approve its own requests.
const (
	appends    = runtime.RightAppend
	supervises = runtime.RightAppend | runtime.RightDecide | runtime.RightSign | runtime.RightSelf
)

// appendRaw appends artifacts under a lease by the daemon's rule: each must be the peer's
// to write (the table of [runtime.MayAppend]), and who wrote them commits with them.
func (l *life) appendRaw(lease chain.Lease, rights runtime.Rights, artifacts ...chain.NewArtifact) error {
	t, err := l.w.gate.Load(l.ctx, lease.TraceID)
	if tga.CodeOf(err) == tga.NotFound {
		t, err = chain.NewTrace(lease.TraceID), nil
	}
	if err != nil {
		return err
	}
	who := l.script.name
	asked, sent := runtime.RequestOrigin(t, who), runtime.Sender(t, who)
	for _, a := range artifacts {
		claim := runtime.Claim{Writer: runtime.ByPeer, Origin: asked, Rights: rights}
		switch a.Artifact.Type {
		case tga.RequestType:
			claim.Subject, asked = runtime.ARequest, runtime.OfWriter
		case tga.DecisionType:
			claim.Subject = runtime.AnApproval
		case tga.CallType:
			claim.Subject, sent = runtime.ACall, runtime.OfWriter
		case tga.EffectType:
			claim.Subject, claim.Origin = runtime.AnEffect, sent
		}
		if err := runtime.MayAppend(claim); err != nil {
			return err
		}
	}
	note, err := runtime.AppendedNote(who, t.Head.Seq+1, t.Head.Seq+uint64(len(artifacts)))
	if err != nil {
		return err
	}
	_, err = l.w.gate.Append(l.ctx, lease, chain.Batch{Expect: &t.Head, Artifacts: artifacts, Notes: []chain.NewNote{note}})
	return err
}

// seal makes an artifact of a trace and a plan one that can be appended.
func (l *life) seal(trace, plan tga.ID, a *tga.Artifact) chain.NewArtifact {
	a.ID, a.TraceID, a.PlanID, a.TS = l.newID(), trace, plan, tga.MillisOf(l.w.clock())
	if err := a.Seal(); err != nil {
		panic(err)
	}
	return chain.NewArtifact{Artifact: a}
}

// chain is what a peer appends before it sends: request, approval and call.
func (l *life) chain(trace tga.ID, key, args string) []chain.NewArtifact {
	proposal := tga.Proposal{ToolServer: server, ToolName: tool, Args: []byte(args)}
	request := l.seal(trace, trace, &tga.Artifact{Type: tga.RequestType, Request: &tga.ActionRequest{
		AgentID: idOf(0xff, 0), RiskLevel: tga.RiskWrite, Intent: "charge a customer", IdempotencyKey: key,
		Resources: []tga.Resource{{Kind: "service", ID: server}}, Proposal: proposal,
	}})
	decision := l.seal(trace, trace, &tga.Artifact{Type: tga.DecisionType, Decision: &tga.SupervisorDecision{
		RequestID: request.Artifact.ID, RequestDigest: request.Artifact.Digest, Decision: tga.Approve, Rationale: "it is its own supervisor",
	}})
	call := l.seal(trace, trace, &tga.Artifact{Type: tga.CallType, Call: &tga.ToolCall{
		DecisionID: decision.Artifact.ID, DecisionDigest: decision.Artifact.Digest, Call: proposal,
		IdempotencyKey: key, ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
	}})
	return []chain.NewArtifact{request, decision, call}
}

// effect is what a peer says came of a call.
func (l *life) effect(call *tga.Artifact, answer string) chain.NewArtifact {
	e := &tga.ToolEffect{CallID: call.ID, CallDigest: call.Digest, BatchTotalBytes: -1, ContentHashAlg: "sha256"}
	a := &tga.Artifact{Type: tga.EffectType, Effect: e}
	if answer == "" {
		e.Outcome = tga.Outcome{Status: tga.StatusFailure, Error: &tga.OutcomeError{Code: string(tga.ToolError), Message: "it did not run"}}
		a.Meta = tga.Meta{tga.MetaOutcomeClass: ledger.ClassRetryable.String()}
		return l.seal(call.TraceID, call.PlanID, a)
	}
	e.Outcome = tga.Outcome{Status: tga.StatusSuccess}
	e.DocumentHashes = []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: tga.Sum([]byte(answer)), SizeBytes: int64(len(answer))}}
	sealed := l.seal(call.TraceID, call.PlanID, a)
	sealed.Documents = []chain.Document{{Pointer: tga.PointerResult, Data: []byte(answer)}}
	return sealed
}

// liar is a peer with the verb append that says of every call it finds at the tool that it
// did not run, whatever is so.
func liar(name string, tries int) script {
	return script{name: name, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			l.each(tga.Executing, func(lease chain.Lease, t *chain.Trace) {
				l.learn("lied", code(l.appendRaw(lease, appends, l.effect(t.Call, ""))))
			})
		}
	}}
}

// each leases the open traces that are in a state, one after the other.
func (l *life) each(in tga.State, f func(lease chain.Lease, t *chain.Trace)) {
	for o, err := range l.w.gate.OpenTraces(l.ctx) {
		if err != nil {
			return
		}
		if o.State == in {
			l.leased(o.TraceID, in, f)
		}
	}
}

func (l *life) leased(trace tga.ID, in tga.State, f func(lease chain.Lease, t *chain.Trace)) {
	lease, err := l.w.gate.Acquire(l.ctx, trace)
	if err != nil {
		return
	}
	defer l.w.gate.Release(lease)
	if t, err := l.w.gate.Load(l.ctx, trace); err == nil && t.Head.State == in {
		f(lease, t)
	}
}

// peer keeps the log of its calls itself and sends them: it appends what it is about to do,
// sends while it holds the trace, and appends what came of it. Its process survives those of
// the daemon; it sends an attempt at most once.
func peer(name, key, args string, tries int) script {
	return script{name: name, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			if l.memory["trace"] == "" {
				l.memory["trace"] = l.newID().String()
				l.keeps()
			}
			trace, err := tga.ParseID(l.memory["trace"])
			if err != nil {
				panic(err)
			}
			if l.ownCall(trace, key, args) {
				return
			}
		}
	}}
}

// ownCall takes a peer's own call on; true where there is nothing more to do for the peer.
func (l *life) ownCall(trace tga.ID, key, args string) bool {
	lease, err := l.w.gate.Acquire(l.ctx, trace)
	if err != nil {
		return false
	}
	defer l.w.gate.Release(lease)
	t, err := l.w.gate.Load(l.ctx, trace)
	if tga.CodeOf(err) == tga.NotFound {
		if err := l.appendRaw(lease, supervises, l.chain(trace, key, args)...); err != nil {
			l.learn("refused", code(err))
			return false
		}
		t, err = l.w.gate.Load(l.ctx, trace)
	}
	if err != nil {
		return false
	}
	if t.Head.State != tga.Executing {
		return true // it was ended by somebody who may
	}
	if m := l.sendOwn(t, key, args); m != nil {
		ctx, cancel := context.WithTimeout(l.ctx, runtime.DefaultSendTimeout)
		defer cancel()
		reply, err := l.w.net.wait(ctx, l, m)
		if err != nil {
			return false // what became of it is not known
		}
		l.memory["outcome"] = string(reply.Result)
	}
	if l.memory["outcome"] == "" {
		return false
	}
	err = l.appendRaw(lease, supervises, l.effect(t.Call, l.memory["outcome"]))
	l.learn("said", code(err))
	return err == nil
}

// sendOwn sends the first attempt, which the call's own entry is, unless it was sent, or the
// daemon has marked one of its own since. nil is nothing to wait for.
func (l *life) sendOwn(t *chain.Trace, key, args string) *message {
	if m := l.w.net.byName(l.memory["message"]); m != nil {
		return m
	}
	if l.memory["sent"] != "" || runtime.Sender(t, l.script.name) != runtime.OfWriter {
		return nil
	}
	l.do(fmt.Sprintf("sends %s, its own", short(t.ID)))
	l.w.maySend(fmt.Sprint(short(t.ID), " attempt 1"), t.ID, 1, key)
	l.memory["sent"] = "yes"
	m := l.w.net.send(runtime.Call{TraceID: t.ID, Attempt: 1, Server: server, Tool: tool, Key: key, Args: []byte(args)}, l.script.name)
	m.own, l.memory["message"] = true, m.name()
	return m
}
