package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/capability"
	"github.com/tgad/tgad/schemas/tga"
)

// body says otherwise. With self = true they may.
func TestWhoSubmitsDoesNotApprove(t *testing.T) {
	rule := "[[rule]]\ndecision = \"NEEDS_APPROVAL\"\n"
	b := startForPeers(t, rule+"[approval]\nself = false\n")
	ctx := t.Context()
	res, err := b.client.Call(ctx, charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	_, err = b.client.Decide(ctx, res.TraceID, true, "I think it is a good idea")
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
	got := b.as(copyOfTest(t), 2003, peerGID, []ask{{
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

// the socket carries a token of one of them, for this very call.
func TestAppendedApprovalNeedsACapability(t *testing.T) {
	dir := shortDir(t)
	keys := filepath.Join(dir, "keys")
	b := start(t, fmt.Sprintf("[capability]\nkey_file = %q\n", keys))
	ring, err := capability.Open(keys, "tgad", "tgad", capability.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := capability.Open(filepath.Join(dir, "others"), "tgad", "tgad", capability.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name  string
		token func(c chain, g runtime.Grant) (string, error)
		word  string
		code  tga.Code
	}{
		{"none", nil, tga.Approve, tga.CapabilityInvalid},
		{"another's key", func(_ chain, g runtime.Grant) (string, error) { return stranger.Mint(t.Context(), g) }, tga.Approve, tga.CapabilityInvalid},
		{"other arguments", func(_ chain, g runtime.Grant) (string, error) {
			g.ArgsDigest = tga.Sum([]byte(`{"amount":500}`))
			return ring.Mint(t.Context(), g)
		}, tga.Approve, tga.CapabilityInvalid},
		{"another trace", func(_ chain, g runtime.Grant) (string, error) { g.TraceID = newID(); return ring.Mint(t.Context(), g) }, tga.Approve, tga.CapabilityInvalid},
		{"a denial", nil, tga.Deny, ""},
		{"this call", func(_ chain, g runtime.Grant) (string, error) { return ring.Mint(t.Context(), g) }, tga.Approve, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			b.t = t
			c := mintChain(t, "raw-"+x.name, nil)
			p := c.request.Request.Proposal
			d := *c.decision
			body := *c.decision.Decision
			d.Decision, body.Decision, d.Digest, d.Canonical = &body, x.word, tga.Digest{}, nil
			if x.token != nil {
				token, err := x.token(c, runtime.Grant{
					TraceID: c.trace, PlanID: c.request.PlanID, Server: p.ToolServer, Tool: p.ToolName, ArgsDigest: tga.Sum(p.Args),
				})
				if err != nil {
					t.Fatal(err)
				}
				body.MintedCapability = token
			}
			if err := d.Seal(); err != nil {
				t.Fatal(err)
			}
			lease, err := b.client.Lease(t.Context(), c.trace, 0)
			if err != nil {
				t.Fatal(err)
			}
			if x.code != "" {
				_, err = b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.request, &d))
				wantCode(t, err, x.code) // with its request in one append
			}
			if _, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, c.request)); err != nil {
				t.Fatal(err)
			}
			before := b.everything()
			_, err = b.client.Append(t.Context(), c.trace, appending(lease.Lease, &d))
			if x.code != "" {
				wantCode(t, err, x.code)
				if after := b.everything(); after != before {
					t.Error("the refused decision changed the store")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if x.token != nil { // the last row: what the log has is no decision any more
				if err := os.Remove(keys); err != nil {
					t.Fatal(err)
				}
			}
			if again, err := b.client.Append(t.Context(), c.trace, appending(lease.Lease, &d)); err != nil || !again.Replayed {
				t.Errorf("the same again: %+v %v", again, err)
			}
		})
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
		return b.client.Decide(ctx, res.TraceID, true, "the invoice was checked")
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
