package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// body says otherwise. With self = true they may.
func TestWhoSubmitsDoesNotApprove(t *testing.T) {
	rule := "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n"
	b := startForPeers(t, rule+"[approval]\nself = false\n")
	ctx := t.Context()
	res, err := b.client.Call(ctx, charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	_, err = b.client.Decide(ctx, res.TraceID, wire.DecideRequest{Approve: true, Rationale: "I think it is a good idea"})
	wantCode(t, err, tga.PermissionDenied)
	if status, _, raw := b.raw("POST", "/v1/tool-calls", `{"tool_server":"pay","tool_name":"charge","idempotency_key":"k","submitter":"somebody"}`); status != 422 {
		t.Errorf("a body with a submitter: %d %s", status, raw)
	}
	spoofed := charge("k2")
	spoofed.Meta = tga.Meta{tga.MetaSubmitter: "somebody"}
	_, err = b.client.Call(ctx, spoofed)
	wantCode(t, err, tga.ValidationError)
	if n := b.tool.sends("k"); n != 0 {
		t.Errorf("%d sends", n)
	}
	got := b.as(2003, peerGID, []ask{{
		Method: "POST", Path: "/v1/traces/" + res.TraceID.String() + "/decide", Body: `{"approve":true,"rationale":"the other pair of eyes"}`,
	}})[0]
	if got.Status != 200 || b.tool.sends("k") != 1 {
		t.Errorf("another's vote: %d %s, %d sends", got.Status, got.Answer, b.tool.sends("k"))
	}
	timeline, err := b.client.Trace(ctx, res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	var decision struct{ Meta map[string]any }
	if err := json.Unmarshal(timeline.Entries[1].Artifact, &decision); err != nil || decision.Meta["approvers"] != "uid:2003" {
		t.Errorf("approvers %v, %v", decision.Meta, err)
	}
}

// from then on.
func TestApprovalIsSentUnderACapability(t *testing.T) {
	keys := filepath.Join(shortDir(t), "keys")
	b := start(t, fmt.Sprintf("[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n[capability]\nkey_file = %q\nrequired = true\n[approval]\nself = true\n", keys))
	ring, err := capability.Open(keys, "tgad", "tgad", capability.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	approve := func(key string) (runtime.Result, error) {
		res, err := b.client.Call(ctx, charge(key))
		wantCode(t, err, tga.EscalationRequired)
		return b.client.Decide(ctx, res.TraceID, wire.DecideRequest{Approve: true, Rationale: "the invoice was checked"})
	}
	res, err := approve("one")
	if err != nil || res.State != tga.Completed {
		t.Fatalf("%+v %v", res, err)
	}
	token := func(trace tga.ID) string {
		timeline, err := b.client.Trace(ctx, trace)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Token string `json:"minted_capability"`
		}
		if err := json.Unmarshal(timeline.Entries[1].Artifact, &d); err != nil {
			t.Fatal(err)
		}
		return d.Token
	}
	first := token(res.TraceID)
	set, err := ring.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	if claims, err := capability.VerifyDetached(first, set); err != nil || claims.TraceID != res.TraceID || claims.Constraints.Tool != "charge" {
		t.Errorf("%+v %v", claims, err)
	}
	if _, err := ring.Rotate(); err != nil {
		t.Fatal(err)
	}
	// The daemon sees the new key without being told.
	res, err = approve("two")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := capability.VerifyDetached(token(res.TraceID), set); err == nil {
		t.Error("a key that was rotated out still signs")
	}
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	_, err = approve("three")
	wantCode(t, err, tga.CapabilityInvalid)
	if one, two, three := b.tool.sends("one"), b.tool.sends("two"), b.tool.sends("three"); one != 1 || two != 1 || three != 0 {
		t.Errorf("%d, %d and %d sends", one, two, three)
	}
}
