package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// rawWorld is a daemon with traces of every origin, each in the state in which the next
// artifact is of one type.
type rawWorld struct {
	*bench
	n int
}

// entries asks for a raw append as two requests, of a lease and under it: by the route of
// one append, or of a batch of one.
func entries(c tga.ID, batch bool, m wire.AppendRequest) []ask {
	m.Lease = "{lease}"
	path := "/v1/traces/" + c.String()
	asks := []ask{{Method: "POST", Path: path + "/lease", Body: `{}`}}
	if batch {
		body := wire.Append(nil, wire.BatchRequest{Items: []wire.BatchItem{{TraceID: c, AppendRequest: m}}})
		return append(asks, ask{Method: "POST", Path: "/v1/entries:batch", Body: string(body)})
	}
	return append(asks, ask{Method: "POST", Path: path + "/entries", Body: string(wire.Append(nil, m))})
}

// appendAs appends as a peer and returns the code of the refusal, "" where it is made.
func (w *rawWorld) appendAs(uid uint32, c tga.ID, batch bool, m wire.AppendRequest) string {
	w.t.Helper()
	asks := entries(c, batch, m)
	got := w.as(uid, peerGID, append(asks, ask{Method: "POST", Path: "/v1/traces/" + c.String() + "/lease:release", Body: `{"lease":"{lease}"}`}))
	return codeIn(w.t, got[1], batch)
}

// codeIn is the code of a refused append, "" of one that was made.
func codeIn(t *testing.T, got ask, batch bool) string {
	t.Helper()
	if !batch || got.Status != http.StatusOK {
		return got.Code
	}
	var all wire.BatchAnswers
	if err := json.Unmarshal([]byte(got.Answer), &all); err != nil {
		t.Fatal(err)
	}
	if p := all.Items[0].Problem; p != nil {
		return string(p.Code)
	}
	return ""
}

// appended appends as root.
func (w *rawWorld) appended(c callChain, m func(lease string) wire.AppendRequest) {
	w.t.Helper()
	lease, err := w.client.Lease(w.t.Context(), c.trace, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.Append(w.t.Context(), c.trace, m(lease.Lease)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.Release(w.t.Context(), lease); err != nil {
		w.t.Fatal(err)
	}
}

// raw is a chain of which everything before an artifact of type typ is in the log: the
// request and the call by a peer's raw appends, or by root's where uid is 0.
func (w *rawWorld) raw(uid uint32, typ tga.ArtifactType) callChain {
	w.t.Helper()
	w.n++
	c := mintChain(w.t, fmt.Sprint("raw-", w.n), nil)
	before := []*tga.Artifact{c.request, c.decision, c.call}[:typ-1]
	for _, a := range before {
		one := func(lease string) wire.AppendRequest { return appending(lease, a) }
		if uid == 0 || a.Type == tga.DecisionType {
			w.appended(c, one)
			continue
		}
		if code := w.appendAs(uid, c.trace, false, one("")); code != "" {
			w.t.Fatalf("uid %d appends its own %s: %s", uid, a.Type, code)
		}
	}
	return c
}

// of makes artifacts that follow the log of a trace which the daemon made.
func (w *rawWorld) of(trace tga.ID) callChain {
	w.t.Helper()
	timeline, err := w.client.Trace(w.t.Context(), trace)
	if err != nil {
		w.t.Fatal(err)
	}
	c := callChain{trace: trace, answer: []byte(`"forged"`)}
	for _, e := range timeline.Entries {
		a, err := tga.DecodeArtifact(e.Artifact, tga.Limits{})
		if err != nil {
			w.t.Fatal(err)
		}
		switch a.Type {
		case tga.RequestType:
			c.request = a
		case tga.DecisionType:
			c.decision = a
		case tga.CallType:
			c.call = a
		}
	}
	seal := func(a *tga.Artifact) *tga.Artifact {
		a.ID, a.TraceID, a.PlanID, a.TS = newID(), trace, c.request.PlanID, tga.MillisOf(time.Now())
		if err := a.Seal(); err != nil {
			w.t.Fatal(err)
		}
		return a
	}
	if c.decision == nil {
		token, err := signer.Mint(w.t.Context(), c.grant())
		if err != nil {
			w.t.Fatal(err)
		}
		c.decision = seal(&tga.Artifact{Type: tga.DecisionType, Decision: &tga.SupervisorDecision{
			RequestID: c.request.ID, RequestDigest: c.request.Digest, Decision: tga.Approve, Rationale: "one peer alone says so", MintedCapability: token,
		}})
	}
	q := c.request.Request
	if c.call == nil {
		c.call = seal(&tga.Artifact{Type: tga.CallType, Call: &tga.ToolCall{
			DecisionID: c.decision.ID, DecisionDigest: c.decision.Digest, Call: q.Proposal,
			IdempotencyKey: q.IdempotencyKey, ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
		}})
	}
	c.effect = seal(&tga.Artifact{Type: tga.EffectType, Meta: tga.Meta{tga.MetaOutcomeClass: "retryable_failure"}, Effect: &tga.ToolEffect{
		CallID: c.call.ID, CallDigest: c.call.Digest, BatchTotalBytes: -1,
		Outcome: tga.Outcome{Status: tga.StatusFailure, Summary: "it did not run, says nobody"},
	}})
	return c
}

// in makes a trace of an origin in the state before an artifact of type typ; nil where the
// daemon leaves no trace there.
func (w *rawWorld) in(origin runtime.Origin, uid uint32, typ tga.ArtifactType) *callChain {
	w.t.Helper()
	w.n++
	key, ctx := fmt.Sprint("key-", w.n), w.t.Context()
	var c callChain
	switch {
	case origin == runtime.OfWriter:
		c = w.raw(uid, typ)
	case origin == runtime.OfAnother && uid == 2002:
		c = w.raw(2008, typ)
	case origin == runtime.OfAnother:
		c = w.raw(2002, typ)
	case origin == runtime.OfProcess && typ == tga.EffectType:
		// A call that succeeds in between keeps the breaker closed.
		if _, err := w.client.Call(ctx, runtime.Request{Server: "pay", Tool: "charge", Key: key}); err != nil {
			w.t.Fatal(err)
		}
		res, err := w.client.Call(ctx, runtime.Request{Server: "pay", Tool: "charge_opaque", Key: key, Args: []byte(`{"lose":true}`)})
		wantCode(w.t, err, tga.EffectInDoubt)
		c = w.of(res.TraceID)
	case origin == runtime.OfExecutor && typ > tga.DecisionType:
		tool := "charge"
		if typ == tga.CallType {
			tool = "asked" // a rule asks people: approved, it waits for its executor
		}
		b, err := w.client.Begin(ctx, runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: tool, Key: key}, BeginID: key})
		if err != nil {
			w.t.Fatal(err)
		}
		if typ == tga.CallType {
			got := w.as(2003, peerGID, []ask{{
				Method: "POST", Path: "/v1/traces/" + b.Result.TraceID.String() + "/decide", Body: `{"approve":true,"rationale":"it is approved for its executor"}`,
			}})[0]
			if got.Status != http.StatusOK {
				w.t.Fatal(got.Answer)
			}
		}
		c = w.of(b.Result.TraceID)
	case typ == tga.DecisionType:
		res, err := w.client.Call(ctx, runtime.Request{Server: "pay", Tool: "asked", Key: key})
		wantCode(w.t, err, tga.EscalationRequired)
		c = w.of(res.TraceID)
	default:
		return nil
	}
	return &c
}

// TestRawAppendsFollowWhoDidTheThing walks artifact, origin, peer and route over the
// socket: what the table of runtime.MayAppend says is what a peer gets, and what is
// refused leaves the store as it was.
func TestRawAppendsFollowWhoDidTheThing(t *testing.T) {
	b := startForPeers(t, "[[rule]]\ntool = \"asked\"\ndecision = \"NEEDS_APPROVAL\"\n[[rule]]\ndecision = \"APPROVE\"\n[approval]\nself = false\n")
	b.tool.loses()
	w := &rawWorld{bench: b}
	// What each peer may, by subject and origin; all else is refused.
	type what struct {
		subject runtime.Subject
		origin  runtime.Origin
	}
	may := map[uint32]map[what]string{
		2001: {}, 2004: {},
		2002: {{runtime.ACall, runtime.OfWriter}: "", {runtime.AnUnsentCall, runtime.OfWriter}: "", {runtime.AnEffect, runtime.OfWriter}: ""},
		2003: {{runtime.ADenial, runtime.OfAnother}: "", {runtime.ADenial, runtime.OfProcess}: "votes", {runtime.ADenial, runtime.OfExecutor}: "votes"},
	}
	may[2008] = map[what]string{{runtime.ADenial, runtime.OfWriter}: ""}
	for k, v := range may[2002] {
		may[2008][k] = v
	}
	for k, v := range may[2003] {
		may[2008][k] = v
	}
	signing := map[what]string{{runtime.AnApproval, runtime.OfAnother}: "", {runtime.AnApproval, runtime.OfProcess}: "votes", {runtime.AnApproval, runtime.OfExecutor}: "votes"}
	for uid, base := range map[uint32]uint32{2009: 2008, 2010: 2003} {
		may[uid] = map[what]string{}
		for k, v := range may[base] {
			may[uid][k] = v
		}
		for k, v := range signing {
			may[uid][k] = v
		}
	}
	checked := 0
	for uid, rows := range may {
		type try struct {
			what
			batch bool
			want  string
			callChain
		}
		var tries []try
		var asks []ask
		for _, origin := range []runtime.Origin{runtime.OfProcess, runtime.OfExecutor, runtime.OfWriter, runtime.OfAnother} {
			if origin == runtime.OfWriter && uid != 2002 && uid != 2008 && uid != 2009 {
				continue // who may not append has no trace of its own
			}
			for s := runtime.AnApproval; s <= runtime.AnEffect; s++ {
				for _, batch := range []bool{false, true} {
					typ := []tga.ArtifactType{tga.RequestType, tga.DecisionType, tga.DecisionType, tga.CallType, tga.CallType, tga.EffectType}[s]
					c := w.in(origin, uid, typ)
					if c == nil {
						continue
					}
					m := c.one("", typ)
					switch s {
					case runtime.ADenial:
						m = appending("", c.decided(t, tga.Deny, "").decision)
					case runtime.AnUnsentCall:
						m = c.unsent(t)
					}
					want, ok := rows[what{s, origin}]
					switch {
					case !ok:
						want = string(tga.PermissionDenied)
					case want == "votes":
						want = string(tga.StateInvalidTransition)
					}
					tries = append(tries, try{what{s, origin}, batch, want, *c})
					asks = append(asks, entries(c.trace, batch, m)...)
				}
			}
		}
		before := make([]tga.State, len(tries))
		for i, x := range tries {
			before[i] = w.head(x.trace)
		}
		got := b.as(uid, peerGID, asks)
		for i, x := range tries {
			checked++
			if code := codeIn(t, got[2*i+1], x.batch); code != x.want {
				t.Errorf("uid %d appends %v about what %v did (batch %v): %q, want %q", uid, x.subject, x.origin, x.batch, code, x.want)
			}
			if after := w.head(x.trace); (after == before[i]) != (x.want != "") {
				t.Errorf("uid %d appends %v about what %v did (batch %v): the trace was %v and is %v", uid, x.subject, x.origin, x.batch, before[i], after)
			}
		}
	}
	if checked < 150 {
		t.Errorf("%d cases were tried", checked)
	}
}

// loses makes the tool lose the answer to a call that says so.
func (w *tool) loses() {
	w.respond(func(rw http.ResponseWriter, _ *http.Request, body []byte) {
		if strings.Contains(string(body), "lose") {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(rw, `{"paid":5}`)
	})
}

// head is the state of a trace.
func (w *rawWorld) head(trace tga.ID) tga.State {
	w.t.Helper()
	s, err := w.client.State(w.t.Context(), trace)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Current
}

// unsent is the append of a call that is never sent with the error that ends it.
func (c callChain) unsent(t *testing.T) wire.AppendRequest {
	t.Helper()
	call := *c.call
	call.Meta = tga.Meta{tga.MetaAttempt: tga.AttemptNone}
	if err := call.Seal(); err != nil {
		t.Fatal(err)
	}
	effect := &tga.Artifact{Type: tga.EffectType, ID: newID(), TraceID: c.trace, PlanID: call.PlanID, TS: call.TS, Effect: &tga.ToolEffect{
		CallID: call.ID, CallDigest: call.Digest, BatchTotalBytes: -1,
		Outcome: tga.Outcome{Status: tga.StatusError, Error: &tga.OutcomeError{Code: "TOOL_TIMEOUT", Message: "too late"}},
	}}
	if err := effect.Seal(); err != nil {
		t.Fatal(err)
	}
	return appending("", &call, effect)
}
