package runtime_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
)

// notary mints tokens that say what they grant, and checks them; it seals nothing.
type notary struct{ minted, checked int }

func (n *notary) Mint(_ context.Context, g runtime.Grant) (string, error) {
	n.minted++
	raw, err := json.Marshal(g)
	return "e30." + tga.Sum(raw).String() + ".c2ln", err
}

func (n *notary) Check(_ context.Context, token string, g runtime.Grant) error {
	n.checked++
	raw, err := json.Marshal(g)
	if err != nil || token != "e30."+tga.Sum(raw).String()+".c2ln" {
		return tga.Errorf(tga.CapabilityInvalid, "the token is for another call")
	}
	return nil
}

var yes = runtime.Vote{Who: "ann", Approve: true, Rationale: "checked with the customer"}

func asksPeople(b *bench) {
	b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval}}}
}

func TestApprovalIsACapabilityForThisCall(t *testing.T) {
	n := &notary{}
	b := setup(t, park, asksPeople, func(b *bench) { b.opts.Trust.Capabilities = n })
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	res, err = b.rt.Decide(t.Context(), res.TraceID, yes)
	if err != nil || res.State != tga.Completed || n.minted != 1 || n.checked != 1 {
		t.Fatalf("%+v, %v: minted %d, checked %d", res, err, n.minted, n.checked)
	}
	trace, err := b.db.Load(t.Context(), res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	token := trace.Decision.Decision.MintedCapability
	if token == "" || trace.Call.Call.CapabilityDigest != tga.Sum([]byte(token)) {
		t.Errorf("token %q, digest in the call %s", token, trace.Call.Call.CapabilityDigest)
	}
	// A supervisor of this process needs none, unless one is required.
	for _, required := range []bool{false, true} {
		n := &notary{}
		b := setup(t, park, func(b *bench) { b.opts.Trust.Capabilities, b.opts.Trust.RequireCapability = n, required })
		b.mustCall(charge("k"))
		if (n.minted == 1) != required {
			t.Errorf("required %v: minted %d", required, n.minted)
		}
	}
}

func TestCallWithoutItsCapabilityIsRefused(t *testing.T) {
	for name, trust := range map[string]struct{ before, after runtime.Trust }{
		"required and not there": {runtime.Trust{}, runtime.Trust{RequireCapability: true, Capabilities: &notary{}}},
		"nothing to check it":    {runtime.Trust{Capabilities: &notary{}}, runtime.Trust{}},
	} {
		b := setup(t, park, asksPeople, func(b *bench) { b.opts.Trust = trust.before })
		b.store = &counted{Store: b.db, crashAt: 3} // the decision is durable, the call is not
		b.start()
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EscalationRequired)
		_, err = b.rt.Decide(t.Context(), res.TraceID, yes)
		wantCode(t, err, tga.StoreUnavailable)
		b.store, b.opts.Trust = b.db, trust.after
		b.start()
		for _, r := range mustRecoverAll(t, b) {
			if r.State != tga.Authorized {
				t.Errorf("%s: was %v", name, r.State)
			}
			wantCode(t, r.Err, tga.CapabilityInvalid)
		}
		b.wantState(res.TraceID, tga.Failed)
		b.wantSends(0)
	}
}

func mustRecoverAll(t *testing.T, b *bench) []runtime.Recovered {
	t.Helper()
	all, err := b.rt.RecoverAll(t.Context(), 1)
	if err != nil || len(all) == 0 {
		t.Fatalf("recovered %d, %v", len(all), err)
	}
	return all
}

// TestChangedToolNeedsANewDecision: the tool's definition is part of what was approved.
func TestChangedToolNeedsANewDecision(t *testing.T) {
	schema, down := tga.Digest{1}, false
	b := setup(t, park, asksPeople, func(b *bench) {
		b.opts.Trust.Capabilities = &notary{}
		b.opts.Trust.Schema = func(context.Context, string, string) (tga.Digest, error) {
			if down {
				return tga.Digest{}, context.DeadlineExceeded
			}
			return schema, nil
		}
	})
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	down = true // a tool whose definition is not known is not approved
	_, err = b.rt.Decide(t.Context(), res.TraceID, yes)
	wantCode(t, err, tga.ToolError)
	b.wantState(res.TraceID, tga.Pending)
	down = false
	b.store = &counted{Store: b.db, crashAt: 2}
	b.start()
	_, err = b.rt.Decide(t.Context(), res.TraceID, yes)
	wantCode(t, err, tga.StoreUnavailable)
	b.store = b.db
	b.start()
	schema = tga.Digest{2}
	b.advance(time.Minute)
	_, err = b.rt.Recover(t.Context(), res.TraceID)
	wantCode(t, err, tga.ToolSchemaChanged)
	b.wantState(res.TraceID, tga.Failed)
	b.wantSends(0)
}

// TestCapabilityStandsBeforeAFirstSend: a call is EXECUTING and nothing was sent: its log says that attempts are
// separate notes, and has none. Its recovery checks the capability as every other first send does, and ends the
// call as not sent if that does not hold.
func TestCapabilityStandsBeforeAFirstSend(t *testing.T) {
	for name, c := range map[string]struct {
		trust runtime.Trust
		code  tga.Code
	}{
		"none is required":       {runtime.Trust{}, ""},
		"required and not there": {runtime.Trust{RequireCapability: true, Capabilities: &notary{}}, tga.CapabilityInvalid},
	} {
		b := setup(t, park, func(b *bench) { b.opts.Trust = c.trust })
		trace := storetest.New(t)
		lease, err := b.db.Acquire(t.Context(), trace.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.db.Append(t.Context(), lease, trace.Begin(tga.AttemptApart)); err != nil {
			t.Fatal(err)
		}
		b.db.Release(lease)
		res, err := b.rt.Recover(t.Context(), trace.TraceID)
		if sends := map[bool]int{true: 1}[c.code == ""]; err != nil || b.tool.sends() != sends || res.ErrorCode != c.code || (res.Class == ledger.ClassNotSent) != (sends == 0) {
			t.Errorf("%s: %+v, %v, %d sends", name, res, err, b.tool.sends())
		}
	}
}
